//! Tests plans: that the build covers them, their memory, ranks, adapters and formats.

mod adapters;
mod coverage;
mod cublas;
mod int8;
mod int8_training;
#[path = "../../tests/one_way.rs"]
mod one_way;
mod ranks;
mod stored;
mod structure;
mod teacher;
