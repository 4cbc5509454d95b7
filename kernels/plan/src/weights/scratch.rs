//! Scratch for dequantized matrices.

use precast_core::plan::{Builder, Category, Tensor};
use precast_kernels::Dtype;

use super::layer::{Blocks, Matrix};
use super::weight::Weight;
use crate::config::ModelConfig;
use crate::formats::Formats;
use crate::parameters::{ALIGN, Parameter, all_stacks};

/// Alignment of the head's parts, rows.
const ALIGN_ROWS: u64 = 64;

/// Scratch for a model's dequantized matrices. It is not transient: shared memory would order launches that are
/// independent.
///
/// Consecutive GEMMs use two slots in rotation, so that a matrix is dequantized while the previous GEMM runs. The
/// head, which comes last, uses all of it: its part outside of both slots waits for nothing.
pub(super) struct Scratch {
    all: Tensor,
    slots: [Tensor; 2],
}

impl Scratch {
    /// Declares scratch for the largest matrices in blocks; none without such matrices.
    pub fn new(
        b: &mut Builder,
        (name, category): (&str, Category),
        config: &ModelConfig,
        formats: &Formats,
        dtype: Dtype,
    ) -> Option<Self> {
        let mut slots = [0; 2];
        for (layer, stacks) in (0..).zip(all_stacks(config)) {
            for (index, stack) in stacks.iter().enumerate() {
                if formats.of(&stack.parts[0].parameter(layer, "weight")).is_some() {
                    slots[index % 2] = slots[index % 2].max(stack.elems().next_multiple_of(ALIGN));
                }
            }
        }
        let head = Parameter::head(config);
        let of_head = formats.of(&head.name).map(|_| config.head_elems());
        let elems = of_head.unwrap_or(0).max(slots[0] + slots[1]);
        (elems > 0).then(|| {
            let all = b.persistent(format!("{name}.scratch"), category, dtype, elems);
            Self { all, slots: [all.slice(0, slots[0]), all.slice(slots[0], slots[1])] }
        })
    }

    /// Returns the matrix [n, k] of the GEMM with this index in a layer, joining adjacent parts of one format.
    pub fn stack(&self, index: usize, weights: impl Iterator<Item = Weight>, (n, k): (u32, u32)) -> Matrix {
        let mut parts: Vec<Tensor> = Vec::new();
        for Weight { tensor, .. } in weights {
            match parts.last().and_then(|last| last.join(tensor)) {
                Some(joined) => *parts.last_mut().expect("it has been joined") = joined,
                None => parts.push(tensor),
            }
        }
        let scratch = self.slots[index % 2].slice(0, u64::from(n) * u64::from(k));
        Matrix::Blocks(Blocks { parts, scratch })
    }

    /// Returns the head [columns, hidden], in parts of its rows: in one slot, in the other, and in neither.
    pub fn head(&self, weight: Weight, config: &ModelConfig) -> Matrix {
        let (vocab, hidden) = (u64::from(config.vocab), u64::from(config.hidden));
        let [first, second] = self.slots.map(|slot| slot.elems);
        let one = first / hidden / ALIGN_ROWS * ALIGN_ROWS;
        let both = (first + second).div_ceil(hidden).next_multiple_of(ALIGN_ROWS);
        let ends = [one.min(vocab), both.min(vocab), vocab];
        let starts = [0, ends[0], ends[1]];
        let rows = starts.into_iter().zip(ends).filter(|(start, end)| start < end);
        let parts = rows.map(|(start, end)| weight.tensor.slice(start * hidden, (end - start) * hidden)).collect();
        Matrix::Blocks(Blocks { parts, scratch: self.all.slice(0, config.head_elems()) })
    }
}
