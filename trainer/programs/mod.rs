//! The commands, each from its start to its end.

pub mod bench;
pub mod cache;
pub mod compare;
mod covered;
pub mod data;
pub mod decode_check;
pub mod distill;
pub mod evaluate;
pub mod evidence;
pub mod export;
pub mod failure;
pub mod generate;
pub mod init;
pub mod merge;
pub mod plan;
mod random_steps;
mod rank_end;
mod reader;
pub mod signing;
pub mod smoke;
pub mod teacher_distance;
