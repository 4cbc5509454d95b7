//! The system under every program: whole files, bounded input, printed lines, progress, threads, bug reports.

#![deny(missing_docs)]

pub mod bug;
pub mod built;
mod cause;
mod count;
pub mod files;
pub mod generated;
pub mod includes;
pub mod input;
pub mod progress;
pub mod stdout;
pub mod tee;
pub mod terminal;
pub mod threads;

pub use cause::cause;
pub use count::count;
