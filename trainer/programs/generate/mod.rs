//! `precast generate`: what a model goes on with, from one prompt or from many.
//!
//! One plan, sealed before the first token: prompts fill a pool of keys and values, then phases compute one token of
//! each sequence and draw the next. `options` says what is asked for, `sequences` makes prompts of it, `decoder` opens
//! the device, `file` is what is written.

mod complete;
mod decoder;
mod file;
mod options;
mod sequences;

pub use complete::{Generated, answer, complete};
pub(crate) use decoder::{DecoderRequest, DeviceDecoder, too_many};
pub(crate) use options::refuse_cublas;
pub use options::{DecodingOptions, Generation};
