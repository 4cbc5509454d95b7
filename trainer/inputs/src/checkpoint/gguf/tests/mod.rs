//! Tests on files that [`writer`] makes.

mod blocks;
mod container;
mod experts;
mod hostile;
mod models;
mod qwen35;
mod samples;
mod tokenizers;
mod writer;
mod written;

use std::io::Write;

use precast_kernels::Dtype;
use serde_json::Value;

use self::writer::Writer;
use super::Gguf;
use crate::checkpoint::fault::Fault;
use crate::checkpoint::single_file::SingleFile;
use crate::checkpoint::{CheckpointError, Scratch};

/// Opens a file of these bytes.
fn open(bytes: &[u8]) -> Result<Gguf, Fault> {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("room for it");
    Gguf::read(file.path())
}

/// What is wrong with a file of these bytes.
fn fault(bytes: &[u8]) -> Fault {
    open(bytes).err().expect("it must not open")
}

/// The configuration of a file that opens.
fn config(writer: &Writer) -> Value {
    open(&writer.bytes()).and_then(|gguf| gguf.config()).unwrap()
}

/// Asserts that a file has no configuration, and that the message has this part.
fn has_no_config(writer: &Writer, part: &str) {
    let error = open(&writer.bytes()).and_then(|gguf| gguf.config()).unwrap_err().to_string();
    assert!(error.contains(part), "{error}");
}

/// A tensor's values.
fn read(gguf: &Gguf, name: &str) -> Vec<f32> {
    try_read(gguf, name).expect("it reads")
}

fn try_read(gguf: &Gguf, name: &str) -> Result<Vec<f32>, CheckpointError> {
    let elements = gguf.tensors.shape(name).expect("the tensor is there").iter().product();
    let mut scratch = Scratch::default();
    gguf.tensors.read(name, 0..elements, Dtype::F32.into(), &mut scratch).map(bytemuck::pod_collect_to_vec)
}
