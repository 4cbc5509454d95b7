//! Rounds master weights to the values that they have in blocks.

use std::ops::Range;

use precast_core::plan::Tensor;
use precast_kernels::{abi::FakeQuantArgs, fake_quant::FakeQuant};

use super::Ops;
use crate::weights::Rounded;

impl Ops<'_> {
    /// Overwrites, in the copy of a range of the master weights, the matrices that are read as values of blocks.
    pub fn round(&mut self, name: &str, rounded: &[Rounded], (master, range): (Tensor, &Range<u64>), copy: Tensor) {
        let x = copy.format.dtype().expect("a dense copy");
        let parts = rounded.iter().filter_map(|one| Some((one.block, one.within(range)?)));
        for (index, (w, Range { start, end })) in parts.enumerate() {
            let [elems, of_master] = [end - start, range.start + start];
            let (master, x_part) = (master.slice(of_master, elems), copy.slice(start, elems));
            let args = FakeQuantArgs { master, x: x_part, n: elems };
            self.launch(&format!("{name}.rounded.{index}"), FakeQuant { w, x }, args);
        }
    }
}
