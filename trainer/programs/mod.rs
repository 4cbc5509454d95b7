//! The commands, each from its start to its end.

pub mod bench;
pub mod cache;
pub mod compare;
pub mod data;
pub mod decode_check;
pub mod distill;
pub mod evaluate;
pub mod evidence;
pub mod export;
pub mod generate;
pub mod init;
pub mod merge;
pub mod plan;
pub mod smoke;
pub mod teacher_distance;
