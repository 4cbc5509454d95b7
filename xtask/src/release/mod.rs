//! `cargo xtask release`: everything that a release holds, from a clean checkout and pinned tools. The same sources
//! give the same bytes.

mod archive;
mod build;
mod check;
mod command;
mod commit;
mod configuration;
mod crates;
mod dist;
pub mod elf;
pub mod environment;
mod files;
mod hosts;
mod kernels;
mod make;
mod materials;
mod names;
mod notices;
mod package;
mod pages;
mod provenance;
mod readme;
mod reproduce;
mod sign;
mod sums;
mod tools;
mod wheel;
mod zig;

pub use command::{Arguments, release};
