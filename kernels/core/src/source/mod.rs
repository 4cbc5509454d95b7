//! CUDA sources: their text, the headers that they include, and the digest of both; and a reader of C++ that finds what
//! a source uses of them.

mod reach;
mod text;
pub mod words;

pub use text::{AS_IT_IS, COMMON, Common, HEADERS, Header, OPTIONS, Source};
