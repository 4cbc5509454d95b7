//! The system under every program: files that are whole or not there, files of others within limits, lines that are printed,
//! threads, and what is said of a bug.

pub mod bug;
mod count;
pub mod files;
pub mod input;
pub mod shell;
pub mod stdout;
pub mod tee;
pub mod terminal;
pub mod threads;

pub use count::count;
