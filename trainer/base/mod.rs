//! Small things that every floor uses, those of inputs among them: signals, phases, times of a start.

pub mod load_trace;
pub mod phase;
pub mod signal;
pub mod startup_times;
pub mod stop;

pub use precast_inputs::base::{
    checkpoint_name, difference, impostors, io, lines, notes, protobuf, record_text, roles,
};
