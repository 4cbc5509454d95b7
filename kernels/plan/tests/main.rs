//! Tests plans: that the build covers them, their memory, ranks, adapters and formats.

mod adapters;
mod coverage;
mod cublas;
mod int8;
mod int8_training;
mod ranks;
mod stored;
mod teacher;
