use std::ops::{Deref, DerefMut};

use rayon::prelude::*;

use super::rotation::rotation;
use crate::abi::int8_columns_params;
use crate::host::{Store, Views, round_to, vectorized};
use crate::{Dtype, Out};

/// Multiplies the row by 1 / r and by the Hadamard matrix of each block of r: the Walsh-Hadamard transform, smallest
/// strides first. The factor comes first: no sum overflows.
fn rotate(row: &mut [f32], r: usize) {
    let factor = 1.0 / r as f32;
    vectorized(|| row.iter_mut().for_each(|value| *value *= factor));
    for block in row.chunks_exact_mut(r) {
        let mut stride = 1;
        while stride < r {
            for pair in block.chunks_exact_mut(2 * stride) {
                let (low, high) = pair.split_at_mut(stride);
                low.iter_mut().zip(high).for_each(|(a, b)| (*a, *b) = (*a + *b, *a - *b));
            }
            stride *= 2;
        }
    }
}

/// Rotates a row and writes its values; returns its scale.
fn quantize_row(row: &mut [f32], q: &mut [i8], r: usize) -> f32 {
    const LEAST: f32 = 7.888_609e-31; // 2^-100
    rotate(row, r);
    let largest =
        row.iter().fold(0.0f32, |largest, value| if value.is_nan() { *value } else { largest.max(value.abs()) });
    let finite = row.iter().all(|value| value.is_finite());
    if !finite || largest < LEAST {
        q.fill(0);
        return if finite { 0.0 } else { f32::NAN };
    }
    let inverse = f64::from(127.0 / largest);
    // Two f32 multiply exactly in f64.
    q.iter_mut().zip(row.iter()).for_each(|(q, value)| *q = (f64::from(*value) * inverse).round_ties_even() as i8);
    largest * ((r as f32).sqrt() / 127.0)
}

pub(super) fn quantize(k: u32, views: &mut Views<'_>) {
    let x = views.load("x");
    let q = views.write::<i8>("q");
    let scale = views.write::<f32>("scale");
    let (columns, r) = (k as usize, rotation(k).expect("no variant admits other rows") as usize);
    q.par_chunks_mut(columns).zip(x.par_chunks(columns)).zip(scale).for_each(|((q, x), scale)| {
        *scale = quantize_row(&mut x.to_vec(), q, r);
    });
}

pub(super) fn columns(n: u32, p: &int8_columns_params, views: &mut Views<'_>) {
    let x = views.load("x");
    let q = views.write::<i8>("q");
    let scale = views.write::<f32>("scale");
    let (n, r) = (n as usize, rotation(n).expect("no variant admits other columns") as usize);
    q.par_chunks_mut(n).zip(scale).enumerate().for_each(|(column, (q, scale))| {
        let mut row: Vec<f32> = x.iter().skip(column).step_by(p.columns as usize).copied().collect();
        *scale = quantize_row(&mut row, q, r);
    });
}

/// Rows that a kernel writes, in f32. Dropping them rounds them to each stored format, int8 included.
pub(crate) struct RowStore<'a> {
    /// Destination in floating point.
    dense: Option<Store<'a>>,
    /// Values without such a destination.
    values: Vec<f32>,
    /// Values and scales in int8.
    int8: Option<(&'a mut [i8], &'a mut [f32])>,
}

impl<'a> RowStore<'a> {
    /// Takes the buffer of this name, and those of int8 values and scales if rows are quantized.
    pub fn new(views: &mut Views<'a>, name: &str, out: Out) -> Self {
        let dense = out.is_dense().then(|| views.store(name));
        let int8 = out.is_int8().then(|| (views.write::<i8>("q"), views.write::<f32>("scale")));
        let elems = if dense.is_some() { 0 } else { int8.as_ref().map_or(0, |(q, _)| q.len()) };
        Self { dense, values: vec![0.0; elems], int8 }
    }
}

impl Deref for RowStore<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        self.dense.as_deref().unwrap_or(&self.values)
    }
}

impl DerefMut for RowStore<'_> {
    fn deref_mut(&mut self) -> &mut [f32] {
        self.dense.as_deref_mut().unwrap_or(&mut self.values)
    }
}

impl Drop for RowStore<'_> {
    fn drop(&mut self) {
        let Some((q, scales)) = self.int8.take() else { return };
        // A kernel that writes both formats writes bf16.
        let dtype = if self.dense.is_some() { Dtype::Bf16 } else { Dtype::F32 };
        let width = q.len() / scales.len();
        let r = rotation(width as u32).expect("no variant admits other rows") as usize;
        self.par_chunks(width).zip(q.par_chunks_mut(width)).zip(scales).for_each(|((row, q), scale)| {
            let mut rounded: Vec<f32> = row.iter().map(|value| round_to(dtype, *value)).collect();
            *scale = quantize_row(&mut rounded, q, r);
        });
    }
}
