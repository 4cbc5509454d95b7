//! The largest update of a run: how far weights, as they are written, end from where they began.

use std::path::Path;

use precast_core::host::numbers;
use precast_kernels::Dtype;
use precast_plan::Parameters;
use rayon::prelude::*;

use super::{Access, Checkpoint, CheckpointError, Scratch, Tensors};

impl Checkpoint {
    /// Returns `max |w - v|` over the weights v of this model and w of a file, both in a dtype.
    ///
    /// # Errors
    /// [`CheckpointError`] where one cannot be read.
    pub fn largest_update(&self, written: &Path, dtype: Dtype, access: Access) -> Result<f32, CheckpointError> {
        let written = Tensors::of_file(written.to_owned())?;
        let [mut one, mut other] = [(); 2].map(|()| Scratch::of(access));
        let mut largest = 0f32;
        for parameter in Parameters::new(self.config()).list {
            let dtype = parameter.dtype(dtype);
            for range in self.tensors().parts(&parameter.name, access)? {
                let began = self.tensors().read(&parameter.name, range.clone(), dtype.into(), &mut one)?;
                let ended = written.read(&parameter.name, range, dtype.into(), &mut other)?;
                largest = largest.max(farthest(began, ended, dtype));
            }
        }
        Ok(largest)
    }
}

/// Bytes that one task compares.
const TASK_BYTES: usize = 1 << 16;

/// Returns the largest difference of two lists of numbers of a dtype.
pub(crate) fn farthest(began: &[u8], ended: &[u8], dtype: Dtype) -> f32 {
    let pairs = began.par_chunks(TASK_BYTES).zip(ended.par_chunks(TASK_BYTES));
    pairs.map(|(began, ended)| numbers::farthest(began, ended, dtype)).reduce(|| 0.0, f32::max)
}
