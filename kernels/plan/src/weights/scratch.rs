//! Scratch for dequantized matrices.

use precast_core::plan::{Builder, Category, Tensor};
use precast_kernels::Dtype;

use super::layer::{Blocks, Matrix};
use super::weight::Weight;
use crate::config::{ExpertsConfig, ModelConfig};
use crate::formats::Formats;
use crate::parameters::{ALIGN, Parameter, Stack, all_stacks};

/// Alignment of the head's parts, rows.
const ALIGN_ROWS: u64 = 64;

/// Scratch for a model's dequantized matrices. It is not transient: shared memory would order launches that are
/// independent.
///
/// Consecutive GEMMs use two slots in rotation, so that a matrix is dequantized while the previous GEMM runs. The
/// head, which comes last, uses all of it: its part outside of both slots waits for nothing. Experts are dequantized in
/// groups, which use the slots in rotation: as many experts as let both slots lie in what the head needs anyway.
pub(super) struct Scratch {
    all: Tensor,
    slots: [Tensor; 2],
}

/// True if a matrix of a layer's GEMM is in blocks.
fn in_blocks(formats: &Formats, layer: u32, stack: &Stack) -> bool {
    formats.of(&stack.parts[0].parameter(layer, "weight")).is_some()
}

/// Returns the experts whose matrices one GEMM reads: all, or if they are in blocks a group of neighbors, of which each
/// but the last has as many.
pub(super) fn expert_group(config: &ModelConfig, experts: ExpertsConfig, formats: &Formats) -> u32 {
    let mut stored = (0..).zip(all_stacks(config)).filter_map(|(layer, stacks)| {
        let of_experts = stacks[2..].iter().filter(|stack| in_blocks(formats, layer, stack));
        of_experts.map(|stack| stack.elems() / u64::from(experts.matrices())).max()
    });
    let Some(largest) = stored.by_ref().max() else { return experts.matrices() };
    let most = (config.head_elems() / 2 / largest).clamp(1, experts.matrices().into()) as u32;
    let groups = experts.matrices().div_ceil(most);
    experts.matrices().div_ceil(groups)
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
        let group = config.experts.map(|experts| (expert_group(config, experts, formats), experts.matrices()));
        let mut slots = [0; 2];
        for (layer, stacks) in (0..).zip(all_stacks(config)) {
            for (index, stack) in stacks.iter().enumerate().filter(|(_, stack)| in_blocks(formats, layer, stack)) {
                let (elems, of) = match group.filter(|_| index >= 2) {
                    Some((group, all)) => (stack.elems() / u64::from(all) * u64::from(group), 0..2),
                    None => (stack.elems(), index % 2..index % 2 + 1),
                };
                slots[of].iter_mut().for_each(|slot| *slot = elems.next_multiple_of(ALIGN).max(*slot));
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
        let [own, other] = [self.slots[index % 2], self.slots[(index + 1) % 2]];
        let of_all = |slot: Tensor| slot.slice(0, slot.elems.min(u64::from(n) * u64::from(k)));
        Matrix::Blocks(Blocks { parts, scratch: [own, other].map(of_all) })
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
        Matrix::Blocks(Blocks { parts, scratch: [self.all.slice(0, config.head_elems()); 2] })
    }
}
