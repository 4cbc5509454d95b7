//! `precast merge`: an adapter added into its model.

use std::path::Path;

use half::f16;
use precast_kernels::Dtype;
use precast_plan::{Factor, Parameter, Parameters};
use precast_system::files::Existing;
use rayon::prelude::*;
use safetensors::tensor::Dtype as Stored;

use crate::inputs::adapter::Adapter;
use crate::inputs::checkpoint::{Checkpoint, Scratch, Student, Weights, write_model};
use crate::programs::failure::Failure;
use crate::run::out::check_directory;

/// Writes the model `W + scale B A`: the sum in f32, over the rank in its order, and rounded once to the dtype of the model's own
/// tensors, which is bf16 for those in blocks. [`Existing::Replace`] replaces a model that Precast wrote. Returns what is to be said of it.
///
/// # Errors
/// [`Failure`] where model or adapter cannot be read, or the directory cannot be written.
pub fn merge(base: &Path, adapter: &Path, out: &Path, existing: Existing) -> Result<String, Failure> {
    let out = check_directory(out, existing, &[base, adapter])?;
    let base = Checkpoint::open(base)?;
    let adapter = Adapter::open(adapter, (base.path(), base.config()))?;
    let parameters = Parameters::new(base.config()).list;
    let dtype = base.element();
    let model = Student { config: &base.json, parameters: &parameters, dtype, tokenizer_from: &[&base] };
    let mut scratch = Scratch::default();
    write_model(&out, existing, &model, |parameter, write| {
        let mut read = Scratch::default();
        let values = scratch.values(parameter.elems() as usize);
        bytemuck::cast_slice_mut(values).copy_from_slice(base.read(parameter, Dtype::F32.into(), &mut read)?);
        if let Some(adapted) = adapter.layout.each.iter().find(|adapted| adapted.parameter() == parameter.name) {
            let mut matrix = |factor| adapter.read(adapted, factor, &mut read).map(bytemuck::pod_collect_to_vec);
            let (a, b): (Vec<f32>, Vec<f32>) = (matrix(Factor::A)?, matrix(Factor::B)?);
            add_product(values, &a, &b, adapter.layout.scale(adapted), adapted.rank);
        }
        Ok::<_, Failure>(write(&rounded(&mut scratch, parameter, dtype))?)
    })?;
    Ok(format!("{adapter}\nmerged into {} ({}), rounded once to {dtype:?}", base.path().display(), base.stored()))
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

/// The values of `scratch` as bytes of a dtype, rounded to nearest even.
fn rounded(scratch: &mut Scratch, parameter: &Parameter, dtype: Stored) -> Vec<u8> {
    match dtype {
        Stored::F16 => {
            let values = scratch.values(parameter.elems() as usize);
            let mut halves = vec![f16::ZERO; values.len()];
            halves.par_iter_mut().zip(values).for_each(|(half, value)| *half = f16::from_f32(*value));
            bytemuck::cast_slice(&halves).to_vec()
        }
        Stored::BF16 => scratch.encode(Dtype::Bf16).to_vec(),
        _ => scratch.encode(Dtype::F32).to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// |found - exact| <= (rank + 2) 2^-24 (|w| + scale |b| |a|): of rank products and sums, the scaling and the addition each rounds
    /// once to f32.
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
