//! A run on disk: the directory that it owns, what it is, its checkpoints, and how it stops.

pub mod checkpoint;
pub mod disk_space;
pub mod identity;
pub mod log;
pub mod out;
pub mod phase;
pub mod signal;
pub mod stop;
pub mod tokens;
