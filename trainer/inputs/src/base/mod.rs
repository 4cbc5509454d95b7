//! Small things that every floor uses: notes, bounds, the roles of models.

pub mod checkpoint_name;
pub mod difference;
pub mod impostors;
pub mod io;
pub mod lines;
pub mod notes;
pub mod protobuf;
pub mod record_text;
pub mod roles;
