//! Memory that conversions work in.

use half::bf16;
use precast_kernels::Dtype;
use rayon::prelude::*;

use super::file::{Access, Raw};

/// Buffers that conversions reuse: fresh memory for every tensor of a large model costs more than its arithmetic.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(super) raw: Raw,
    pub(super) values: Vec<f32>,
    rounded: Vec<bf16>,
    pub(super) blocks: Vec<u8>,
}

impl Scratch {
    /// Of a reader that has weights in memory in one way.
    pub fn of(access: Access) -> Self {
        Self { raw: Raw::new(access), ..Self::default() }
    }

    /// `count` values to be written whole.
    pub fn values(&mut self, count: usize) -> &mut [f32] {
        self.values.resize(count, 0.0);
        &mut self.values
    }

    /// So many bytes of blocks to be written whole.
    pub fn blocks(&mut self, bytes: usize) -> &mut [u8] {
        self.blocks.resize(bytes, 0);
        &mut self.blocks
    }

    /// The values as bytes of a dtype, rounded to nearest even.
    pub fn encode(&mut self, dtype: Dtype) -> &[u8] {
        match dtype {
            Dtype::Bf16 => {
                self.rounded.resize(self.values.len(), bf16::ZERO);
                self.rounded.par_iter_mut().zip(&self.values).for_each(|(r, value)| *r = bf16::from_f32(*value));
                bytemuck::cast_slice(&self.rounded)
            }
            Dtype::F32 | Dtype::U32 => bytemuck::cast_slice(&self.values),
            Dtype::I8 => panic!("the device quantizes: no file is uploaded as int8"),
        }
    }
}
