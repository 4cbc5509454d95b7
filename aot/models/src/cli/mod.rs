//! Commands of `precast-aot`.

mod abi;
mod build;
mod command;
mod compare_evidence;
mod compile;
mod diff;
mod diff_code;
mod failure;
mod inspect;
mod io;
mod keys;
mod lock;
mod publish;
mod sign;
mod summarize_evidence;
mod targets;
mod toolchain;
mod verify;

pub use command::{Arguments, finish, run, version};
