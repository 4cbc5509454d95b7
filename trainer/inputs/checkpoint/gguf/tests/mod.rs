//! Tests on files that [`writer`] makes.

mod blocks;
mod container;
mod hostile;
mod models;
mod samples;
mod tokenizers;
mod writer;

use std::io::Write;

use super::{Fault, Gguf, GgufError};

/// Opens a file of these bytes.
fn open(bytes: &[u8]) -> Result<Gguf, GgufError> {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("room for it");
    Gguf::open(file.path())
}

/// What is wrong with a file of these bytes.
fn fault(bytes: &[u8]) -> Fault {
    open(bytes).err().expect("it must not open").fault
}

/// A tensor's values.
fn read(gguf: &Gguf, name: &str) -> Vec<f32> {
    let shape = gguf.shape(name).expect("the tensor is there");
    let mut out = vec![f32::NAN; shape.iter().product::<u64>() as usize];
    gguf.read(name, &mut out).expect("it reads");
    out
}
