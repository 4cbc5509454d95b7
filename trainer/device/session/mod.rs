//! A sealed training run on a device: weights up, steps, weights down.

mod hidden_states;
mod ready;
mod state;
mod steps;
mod upload;

pub use hidden_states::HiddenStates;
pub use ready::Session;
pub(crate) use ready::read_columns;
