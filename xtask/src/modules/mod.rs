//! `cargo xtask modules`: reads imports between the modules of each package. Draws the packages and the trainer's
//! floors for ARCHITECTURE.md, and refuses circles.

mod check;
mod drawing;
mod graph;
mod imports;
mod members;

pub use check::modules;
pub use graph::{shipped, sources};
pub use members::members;

#[cfg(test)]
mod tests;
