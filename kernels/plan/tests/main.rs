//! Tests plans: that the build covers them, what their launches are built as, their memory, ranks, adapters and formats.

mod adapters;
mod choices;
mod coverage;
mod cublas;
mod int8;
mod int8_training;
mod ranks;
mod stored;
mod teacher;
