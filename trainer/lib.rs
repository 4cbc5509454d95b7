//! WHY: data, checkpoints, the training loop, reports, and the `precast` program.

pub mod adapter;
pub mod bench;
pub mod bundle;
pub mod checkpoint;
pub mod cli;
pub mod config;
pub mod data;
pub mod device;
pub mod disguise;
pub mod distill;
pub mod error;
pub mod evaluate;
pub mod evidence;
pub mod heading;
pub mod host_memory;
pub mod init;
pub mod metrics;
pub mod models;
pub mod one_memory;
pub mod outcome;
pub mod pair;
pub mod random_blocks;
pub mod record;
pub mod report;
pub mod run;
pub mod schedule;
pub mod score;
pub mod session;
pub mod smoke;
pub mod sources;
pub mod startup;
pub mod tokenizer;
pub mod verbose;
pub mod weight_format;

pub use error::Failure;
