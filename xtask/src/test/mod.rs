//! `cargo xtask test`: set-up and every check, fastest to fail first.

mod programs;
mod steps;
mod times;

pub use steps::{ALL, MODELS, faults, test};
