//! Measures the distance between two gradients.

use precast_kernels::abi::GradDistancePartialArgs;
use precast_kernels::grad_distance::{self, GradDistancePartial};

use super::Ops;
use precast_core::plan::Tensor;

impl Ops<'_> {
    /// Sums a b, a a and b b over groups of elements, f32: [3, groups].
    pub fn grad_distance(&mut self, name: &str, a: Tensor, b: Tensor, partial: Tensor) {
        let args = GradDistancePartialArgs { a, b, partial, n: a.elems, group: grad_distance::GROUP };
        self.launch(&format!("{name}.distance"), GradDistancePartial {}, args);
    }
}
