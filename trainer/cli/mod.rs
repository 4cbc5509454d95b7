//! The commands of `precast`.

mod bench;
mod cache;
mod command;
mod compare;
mod data;
mod distill;
mod doctor;
mod either;
mod eval;
mod evidence;
mod export;
mod generate;
mod help;
mod init;
mod kernels;
mod log;
mod merge;
mod output;
mod plan;
mod renamed;
mod run;
mod selftest;
mod shell;
mod smoke;
#[cfg(test)]
mod tests;
mod version;

pub use run::{finish, main};
