//! WHY: data, checkpoints, the training loop, reports, and the `precast` program.

pub mod adapter;
mod added_tokens;
pub mod bench;
mod bounded;
pub mod bundle;
pub mod certificate;
mod charsmap;
pub mod chat;
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
pub mod forward;
pub mod generate;
pub mod gpu;
pub mod growth;
pub mod guard;
pub mod heading;
pub mod host_memory;
pub mod init;
pub mod metrics;
pub mod models;
pub mod note;
pub mod one_memory;
pub mod outcome;
pub mod pair;
mod protobuf;
pub mod random_blocks;
pub mod ranks;
pub mod record;
pub mod report;
pub mod run;
pub mod schedule;
pub mod score;
mod seal;
pub mod session;
pub mod smoke;
pub mod sources;
pub mod startup;
pub mod still;
pub mod tensorboard;
pub mod tokenizer;
mod upload;
pub mod verbose;
pub mod watch;
pub mod weight_format;

pub use error::Failure;

#[global_allocator]
static ALLOCATOR: bounded::Counted = bounded::Counted;
