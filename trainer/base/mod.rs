//! Small things that every floor uses: notes, bounds, the roles of models.

pub mod checkpoint_name;
pub mod difference;
pub mod impostors;
pub mod io;
pub(crate) mod lines;
pub mod load_trace;
pub mod notes;
pub mod phase;
pub(crate) mod protobuf;
pub(crate) mod record_text;
pub mod roles;
pub mod signal;
pub mod startup_times;
pub mod stop;
