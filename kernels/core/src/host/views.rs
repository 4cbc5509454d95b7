//! Typed views of the buffers of one launch.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;
use half::bf16;
use rayon::prelude::*;

use crate::dtype::Dtype;
use crate::format::Format;
use crate::operand::Operand;

enum Bytes<'a> {
    Read(&'a [u8]),
    Write(&'a mut [u8]),
}

/// The buffers of one launch, by field name. Each is taken once.
pub struct Views<'a>(Vec<(&'static str, Format, Bytes<'a>)>);

impl<'a> Views<'a> {
    /// Returns a launch without buffers.
    pub fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a buffer that is only read.
    pub fn push_read(&mut self, operand: &Operand, bytes: &'a [u8]) {
        self.0.push((operand.name, operand.format, Bytes::Read(bytes)));
    }

    /// Adds a buffer that is written.
    pub fn push_write(&mut self, operand: &Operand, bytes: &'a mut [u8]) {
        self.0.push((operand.name, operand.format, Bytes::Write(bytes)));
    }

    fn take(&mut self, name: &str) -> (Format, Bytes<'a>) {
        match self.0.iter().position(|view| view.0 == name) {
            Some(index) => {
                let (_, format, bytes) = self.0.swap_remove(index);
                (format, bytes)
            }
            None => panic!("operand `{name}` is not declared by its kernel, or is taken twice"),
        }
    }

    /// Takes a buffer to read in its stored type.
    pub fn read<T: Pod>(&mut self, name: &str) -> &'a [T] {
        match self.take(name).1 {
            Bytes::Read(bytes) => bytemuck::cast_slice(bytes),
            Bytes::Write(bytes) => bytemuck::cast_slice(bytes),
        }
    }

    /// Takes a buffer to write in its stored type.
    pub fn write<T: Pod>(&mut self, name: &str) -> &'a mut [T] {
        match self.take(name).1 {
            Bytes::Read(_) => panic!("operand `{name}` is declared as read only"),
            Bytes::Write(bytes) => bytemuck::cast_slice_mut(bytes),
        }
    }

    /// Takes a float buffer to read in f32.
    pub fn load(&mut self, name: &str) -> Cow<'a, [f32]> {
        let (format, bytes) = self.take(name);
        let bytes: &'a [u8] = match bytes {
            Bytes::Read(bytes) => bytes,
            Bytes::Write(bytes) => bytes,
        };
        match format {
            Format::Dense(Dtype::F32) => Cow::Borrowed(bytemuck::cast_slice(bytes)),
            Format::Dense(Dtype::Bf16) => Cow::Owned(widen(bytemuck::cast_slice(bytes))),
            other => panic!("operand `{name}` is {other}: it holds no floats"),
        }
    }

    /// Takes a float buffer to write, or read and write, in f32; rounded to its dtype when dropped.
    pub fn store(&mut self, name: &str) -> Store<'a> {
        let (format, bytes) = self.take(name);
        let Bytes::Write(bytes) = bytes else { panic!("operand `{name}` is declared as read only") };
        match format {
            Format::Dense(Dtype::F32) => Store::Direct(bytemuck::cast_slice_mut(bytes)),
            Format::Dense(Dtype::Bf16) => {
                let stored: &mut [bf16] = bytemuck::cast_slice_mut(bytes);
                Store::Rounded { values: widen(stored), stored }
            }
            other => panic!("operand `{name}` is {other}: it holds no floats"),
        }
    }
}

impl Default for Views<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// A float buffer being written in f32. Dropping it rounds once, like a kernel's store.
pub enum Store<'a> {
    /// The buffer is f32.
    Direct(&'a mut [f32]),
    /// The buffer is bf16.
    Rounded {
        /// Values, f32.
        values: Vec<f32>,
        /// Destination of the rounded values.
        stored: &'a mut [bf16],
    },
}

impl Deref for Store<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Store::Direct(values) => values,
            Store::Rounded { values, .. } => values,
        }
    }
}

impl DerefMut for Store<'_> {
    fn deref_mut(&mut self) -> &mut [f32] {
        match self {
            Store::Direct(values) => values,
            Store::Rounded { values, .. } => values,
        }
    }
}

impl Drop for Store<'_> {
    fn drop(&mut self) {
        if let Store::Rounded { values, stored } = self {
            stored.par_chunks_mut(CHUNK).zip(values.par_chunks(CHUNK)).for_each(|(stored, values)| {
                for (stored, value) in stored.iter_mut().zip(values) {
                    *stored = bf16::from_f32(*value);
                }
            });
        }
    }
}

/// Elements converted per task.
const CHUNK: usize = 1 << 14;

fn widen(stored: &[bf16]) -> Vec<f32> {
    let mut values = vec![0.0; stored.len()];
    values.par_chunks_mut(CHUNK).zip(stored.par_chunks(CHUNK)).for_each(|(values, stored)| {
        for (value, stored) in values.iter_mut().zip(stored) {
            *value = f32::from_bits(u32::from(stored.to_bits()) << 16);
        }
    });
    values
}

/// Rounds to the dtype, as kernels do internally.
pub fn round_to(dtype: Dtype, value: f32) -> f32 {
    match dtype {
        Dtype::Bf16 => bf16::from_f32(value).to_f32(),
        Dtype::F32 | Dtype::U32 | Dtype::I8 => value,
    }
}
