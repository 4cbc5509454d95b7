//! Rounds master weights to the values that they have in blocks.

use std::ops::Range;

use precast_core::plan::Tensor;
use precast_kernels::{abi::FakeQuantArgs, fake_quant::FakeQuant};

use super::Ops;
use crate::weights::Rounded;

impl Ops<'_> {
    /// Overwrites, in the copy of a range of the master weights, the matrices that are read as values of blocks.
    pub fn round(&mut self, name: &str, rounded: &[Rounded], range: &Range<u64>, [master, copy]: [Tensor; 2]) {
        let x = copy.format.dtype().expect("a dense copy");
        let parts = rounded.iter().filter_map(|one| Some((one.block, one.within(range)?)));
        for (index, (w, Range { start, end })) in parts.enumerate() {
            let n = end - start;
            let args = FakeQuantArgs { master: master.slice(start, n), x: copy.slice(start, n), n };
            self.launch(&format!("{name}.rounded.{index}"), FakeQuant { w, x }, args);
        }
    }
}
