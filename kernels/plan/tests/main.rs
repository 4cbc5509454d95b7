//! Tests plans: coverage by the build, variants of launches, memory, ranks, adapters and formats.

mod adapters;
mod cached;
mod cards;
mod choices;
mod coverage;
mod cublas;
mod decoding;
mod int8;
mod int8_training;
mod ranks;
mod rounded;
mod stored;
mod support;
mod teacher;
mod vocabulary;
