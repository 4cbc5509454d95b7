//! A weight and its role in training.

use precast_core::plan::{Builder, Category, Tensor};
use precast_kernels::Dtype;

use crate::category;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weight {
    /// Tensor that launches read.
    pub tensor: Tensor,
    pub role: Role,
}

/// Role of a weight in training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    Frozen,
    /// The optimizer updates it.
    Trained(Trained),
}

/// Optimizer state of a trained weight, each of as many elements; all but the moments in f32.
///
/// With several ranks, a rank keeps `m` and `v`, and `master` unless launches read it, only for its own pieces
/// ([`crate::Shards::own`]), one after the other; `grad` is complete.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trained {
    /// Master weights, which launches read in fp32, unless they read the values of blocks.
    pub master: Tensor,
    pub grad: Tensor,
    /// AdamW's first moments, in the format of the recipe.
    pub m: Tensor,
    /// AdamW's second moments, in the same format.
    pub v: Tensor,
}

impl Role {
    pub(super) fn trained(self) -> Option<Trained> {
        match self {
            Role::Frozen => None,
            Role::Trained(trained) => Some(trained),
        }
    }

    /// Returns the role of a range of elements.
    pub(super) fn slice(self, start: u64, elems: u64) -> Self {
        match self {
            Role::Frozen => Role::Frozen,
            Role::Trained(trained) => Role::Trained(trained.slice(start, elems)),
        }
    }
}

impl Trained {
    /// Returns the state of a range of elements.
    pub(super) fn slice(self, start: u64, elems: u64) -> Self {
        let Self { master, grad, m, v } = self;
        let [master, grad, m, v] = [master, grad, m, v].map(|of| of.slice(start, elems));
        Self { master, grad, m, v }
    }
}

/// Elements that a rank keeps of a trained range.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    /// Elements of the copy that launches read; none where they read the master weights.
    pub weights: Option<u64>,
    pub masters: u64,
    pub moments: (u64, Dtype),
}

impl Weight {
    /// Declares a trained buffer and its optimizer state.
    pub(super) fn declare_trained(
        b: &mut Builder,
        (name, category): (&str, Category),
        elems: u64,
        dtype: Dtype,
        Kept { weights, masters, moments }: Kept,
    ) -> Self {
        // A rank may keep nothing, but buffers cannot be empty.
        let mut flat = |part: &str, category, dtype: Dtype, kept: u64| {
            let buffer = b.persistent(format!("{name}.{part}"), category, dtype, kept.max(1));
            Tensor { elems, ..buffer }
        };
        let (master, tensor) = match weights {
            None => {
                let master = flat("master", category, Dtype::F32, elems);
                (master, master)
            }
            Some(weights) => {
                let master = flat("master", category::MASTER_WEIGHTS, Dtype::F32, masters);
                (master, Tensor { elems: weights, ..flat("weights", category, dtype, weights) })
            }
        };
        let grad = flat("grad", category::GRADIENTS, Dtype::F32, elems);
        let (count, of) = moments;
        let [m, v] = ["m", "v"].map(|part| flat(part, category::MOMENTS, of, count));
        Self { tensor, role: Role::Trained(Trained { master, grad, m, v }) }
    }

    /// Returns its optimizer state, if it trains.
    pub fn trained(self) -> Option<Trained> {
        self.role.trained()
    }

    /// Returns what launches read of a weight that they need in f32, whatever the precision: the master weights of one
    /// that trains.
    pub(crate) fn in_f32(self) -> Tensor {
        self.trained().map_or(self.tensor, |trained| trained.master)
    }

    /// Returns a range of its elements.
    pub(super) fn slice(self, start: u64, elems: u64) -> Self {
        Self { tensor: self.tensor.slice(start, elems), role: self.role.slice(start, elems) }
    }

    /// Joins this weight and the next if they are adjacent and agree in format and role: one GEMM computes both.
    pub fn join(self, next: Self) -> Option<Self> {
        let role = match (self.role, next.role) {
            (Role::Frozen, Role::Frozen) => Role::Frozen,
            (Role::Trained(a), Role::Trained(b)) => Role::Trained(Trained {
                master: a.master.join(b.master)?,
                grad: a.grad.join(b.grad)?,
                m: a.m.join(b.m)?,
                v: a.v.join(b.v)?,
            }),
            _ => return None,
        };
        Some(Self { tensor: self.tensor.join(next.tensor)?, role })
    }
}

#[cfg(test)]
mod tests {
    use precast_kernels::KERNELS;
    use precast_kernels::{Arch, Block, Format};

    use super::*;

    fn frozen(b: &mut Builder, format: impl Into<Format>) -> Weight {
        Weight { tensor: b.persistent("weights", category::TEACHER_WEIGHTS, format, 1024), role: Role::Frozen }
    }

    #[test]
    fn weights_stack_where_format_and_role_agree() {
        let b = &mut Builder::new(&KERNELS, Arch::Sim);
        let whole = frozen(b, Dtype::Bf16);
        let [first, second, third] = [(0, 256), (256, 512), (768, 256)].map(|(start, elems)| whole.slice(start, elems));
        assert_eq!(first.join(second), Some(whole.slice(0, 768)));
        assert_eq!(first.join(third), None, "they are apart");
        let elsewhere = Tensor { offset: 512, ..frozen(b, Dtype::F32).tensor };
        assert_eq!(first.join(Weight { tensor: elsewhere, ..first }), None, "another format");
        let [master, grad, m, v] = [0; 4].map(|_| b.persistent("state", category::MOMENTS, Dtype::F32, 1024));
        let trained = Weight { role: Role::Trained(Trained { master, grad, m, v }), ..whole };
        assert_eq!(trained.slice(0, 256).join(trained.slice(256, 768)), Some(trained));
        assert_eq!(first.join(trained.slice(256, 512)), None, "another role");
    }

    #[test]
    fn a_weight_in_blocks_takes_what_its_format_says() {
        let b = &mut Builder::new(&KERNELS, Arch::Sim);
        let whole = frozen(b, Format::Block(Block::Q4_K));
        assert_eq!(whole.tensor.bytes(), 4 * 144);
        let rest = whole.slice(256, 768);
        assert_eq!((rest.tensor.offset, rest.tensor.bytes()), (144, 3 * 144));
        assert_eq!(whole.slice(0, 256).join(rest), Some(whole));
        b.phase("none");
        assert_eq!(std::mem::replace(b, Builder::new(&KERNELS, Arch::Sim)).finish().arena_bytes, 768);
    }
}
