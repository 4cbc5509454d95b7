//! Small things that every floor uses: notes, bounds, the roles of models.

pub(crate) mod bounded;
pub mod checkpoint_name;
pub mod impostors;
pub mod io;
pub(crate) mod lines;
pub mod note;
pub mod phase;
pub(crate) mod protobuf;
pub(crate) mod record_text;
pub mod roles;
pub mod signal;
pub mod startup;
pub mod stop;
pub mod verbose;
