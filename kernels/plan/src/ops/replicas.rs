//! Sums gradients and losses of replicas.

use precast_kernels::{Dtype, abi::AddArgs, add::Add};

use super::Ops;
use crate::category;
use crate::share::{Fold, Share};
use precast_core::plan::{Builder, Tensor};

/// Operands of the sum, and sums of earlier replicas that wait for their neighbors.
pub(crate) struct Sums {
    /// Gradients and losses of the replica computed last, f32.
    pub own: [Tensor; 2],
    pub waiting: Vec<[Tensor; 2]>,
}

impl Sums {
    pub fn new(b: &mut Builder, own: [Tensor; 2], share: Share) -> Self {
        let waiting = (0..share.waiting()).map(|place| {
            let grad = b.persistent(format!("replicas.{place}.grad"), category::GRADIENTS, Dtype::F32, own[0].elems);
            let losses = b.persistent(format!("replicas.{place}.losses"), category::INPUTS, Dtype::F32, own[1].elems);
            [grad, losses]
        });
        let waiting = waiting.collect();
        Self { own, waiting }
    }
}

impl Ops<'_> {
    /// `y += x`.
    pub fn add(&mut self, name: &str, x: Tensor, y: Tensor) {
        let args = AddArgs { x, y, n: x.elems };
        self.launch(name, Add {}, args);
    }

    fn add_each(&mut self, x: [Tensor; 2], y: [Tensor; 2]) {
        self.add("grad", x[0], y[0]);
        self.add("losses", x[1], y[1]);
    }

    /// Folds one replica's gradients and losses into the tree.
    pub fn fold(&mut self, fold: Fold, sums: &Sums) {
        let kept = |place: u32| sums.waiting[place as usize];
        match fold {
            Fold::Keep { waiting } => {
                self.cast("grad", sums.own[0], kept(waiting)[0]);
                self.cast("losses", sums.own[1], kept(waiting)[1]);
            }
            Fold::Join { waiting, levels } => {
                self.add_each(sums.own, kept(waiting - 1));
                for below in (waiting - levels..waiting - 1).rev() {
                    self.add_each(kept(below + 1), kept(below));
                }
            }
            Fold::Total { waiting } => (0..waiting).rev().for_each(|place| self.add_each(kept(place), sums.own)),
        }
    }
}
