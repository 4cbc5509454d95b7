//! `precast merge`: an adapter added into its model.

use std::fmt;
use std::path::Path;

use half::{bf16, f16};
use precast_kernels::Dtype;
use precast_plan::{Factor, Parameter, Parameters};
use precast_system::files::Existing;
use rayon::prelude::*;
use safetensors::tensor::Dtype as Stored;

use crate::base::notes::note;
use crate::inputs::adapter::Adapter;
use crate::inputs::checkpoint::{Checkpoint, ModelSource, Scratch, Weights, write_model};
use crate::run::failure::Failure;
use crate::run::out::check_directory;

/// Writes the model `W + scale B A`: the sum in f32, over the rank in its order, and rounded once to the dtype of the
/// model's own tensors, which is bf16 for those in blocks. [`Existing::Replace`] replaces a model that Precast wrote.
/// Returns what is to be said of it.
///
/// # Errors
/// [`Failure`] where model or adapter cannot be read, or the directory cannot be written.
pub fn merge(base: &Path, adapter: &Path, out: &Path, existing: Existing) -> Result<String, Failure> {
    let out = check_directory(out, existing, &[base, adapter])?;
    let merged = Merged::open(base, adapter)?;
    let base = &merged.base;
    let parameters = Parameters::new(base.config()).list;
    let dtype = merged.dtype;
    let model = ModelSource { config: &base.json, parameters: &parameters, dtype, tokenizer_from: &[base] };
    let (mut values, mut scratch) = (Vec::new(), Scratch::default());
    write_model(&out, existing, &model, |parameter, write| {
        values.resize(parameter.elems() as usize, 0.0);
        merged.read(parameter, &mut values, &mut scratch)?;
        Ok::<_, Failure>(write(&stored_as(&values, model.dtype_of(parameter)))?)
    })?;
    Ok(merged.to_string())
}

/// A model with an adapter added to it.
pub(super) struct Merged {
    pub base: Checkpoint,
    adapter: Adapter,
    /// What its values are rounded to.
    dtype: Stored,
}

impl Merged {
    /// # Errors
    /// [`Failure`] where model or adapter cannot be read.
    pub fn open(base: &Path, adapter: &Path) -> Result<Self, Failure> {
        let base = Checkpoint::open(base)?;
        let adapter = Adapter::open(adapter, (base.path(), base.config()))?;
        adapter.other_base_note(base.path()).iter().for_each(note);
        let dtype = base.element();
        Ok(Self { base, adapter, dtype })
    }

    /// The values of a parameter, rounded once to the dtype of the base's own; `values` has room for exactly as many.
    ///
    /// # Errors
    /// [`Failure`] where they cannot be read.
    pub fn read(&self, parameter: &Parameter, values: &mut [f32], scratch: &mut Scratch) -> Result<(), Failure> {
        let Self { base, adapter, dtype } = self;
        bytemuck::cast_slice_mut(values).copy_from_slice(base.read(parameter, Dtype::F32.into(), scratch)?);
        if let Some(adapted) = adapter.layout.each.iter().find(|adapted| adapted.parameter() == parameter.name) {
            let mut matrix = |factor| adapter.read(adapted, factor, scratch).map(bytemuck::pod_collect_to_vec);
            let (a, b): (Vec<f32>, Vec<f32>) = (matrix(Factor::A)?, matrix(Factor::B)?);
            add_product(values, &a, &b, adapter.layout.scale(adapted), adapted.rank);
        }
        match dtype {
            _ if parameter.dtype(Dtype::Bf16) == Dtype::F32 => {}
            Stored::F16 => values.par_iter_mut().for_each(|value| *value = f16::from_f32(*value).to_f32()),
            Stored::BF16 => values.par_iter_mut().for_each(|value| *value = bf16::from_f32(*value).to_f32()),
            _ => {}
        }
        Ok(())
    }
}

impl fmt::Display for Merged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { base, adapter, dtype } = self;
        let (path, stored) = (base.path().display(), base.stored());
        write!(f, "{adapter}\nmerged into {path} ({stored}), rounded once to {dtype:?}")
    }
}

/// Adds `scale b a` to `w` [rows, columns]; `a` [rank, columns], `b` [rows, rank]. Each element is
/// `w + scale (b0 a0 + b1 a1 + ...)`, every operation rounded to f32.
fn add_product(w: &mut [f32], a: &[f32], b: &[f32], scale: f32, rank: u32) {
    let rank = rank as usize;
    let columns = a.len() / rank;
    w.par_chunks_mut(columns).zip(b.par_chunks(rank)).for_each_init(
        || vec![0.0f32; columns],
        |sum, (w, b)| {
            sum.fill(0.0);
            for (a, b) in a.chunks(columns).zip(b) {
                sum.iter_mut().zip(a).for_each(|(sum, a)| *sum += b * a);
            }
            w.iter_mut().zip(&*sum).for_each(|(w, sum)| *w += scale * sum);
        },
    );
}

/// Values that are of a dtype as its bytes.
fn stored_as(values: &[f32], dtype: Stored) -> Vec<u8> {
    match dtype {
        Stored::F16 => halves(values, |value| f16::from_f32(value).to_le_bytes()),
        Stored::BF16 => halves(values, |value| bf16::from_f32(value).to_le_bytes()),
        _ => bytemuck::cast_slice(values).to_vec(),
    }
}

fn halves(values: &[f32], half: impl Fn(f32) -> [u8; 2] + Sync) -> Vec<u8> {
    let mut bytes = vec![[0; 2]; values.len()];
    bytes.par_iter_mut().zip(values).for_each(|(bytes, value)| *bytes = half(*value));
    bytes.into_flattened()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// |found - exact| <= (rank + 2) 2^-24 (|w| + scale |b| |a|): of rank products and sums, the scaling and the
    /// addition each rounds once to f32.
    #[test]
    fn a_merged_element_is_within_its_bound() {
        use rand::{RngExt, SeedableRng};
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(1);
        for (rows, columns, rank) in [(3usize, 5usize, 1usize), (64, 48, 17), (7, 130, 256)] {
            let mut draw = |count: usize| (0..count).map(|_| rng.random_range(-1.0f32..1.0)).collect::<Vec<_>>();
            let (w, a, b, scale) = (draw(rows * columns), draw(rank * columns), draw(rows * rank), 2.0f32 / 3.0);
            let mut merged = w.clone();
            add_product(&mut merged, &a, &b, scale, rank as u32);
            for i in 0..rows {
                for j in 0..columns {
                    let terms = (0..rank).map(|r| f64::from(b[i * rank + r]) * f64::from(a[r * columns + j]));
                    let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
                    let before = f64::from(w[i * columns + j]);
                    let exact = before + f64::from(scale) * sum;
                    let bound = (rank + 2) as f64 * 2f64.powi(-24) * (before.abs() + f64::from(scale) * size);
                    let found = f64::from(merged[i * columns + j]);
                    assert!((found - exact).abs() <= bound, "{found} {exact} {bound}");
                }
            }
        }
    }
}
