//! A kernel as its C header declares it: its parameter block, the buffers that a launch touches, and its cost.
//!
//! Implemented in `abi.rs`, which is generated from the headers. A kernel's builds are in [`Build`](crate::Build), its
//! required results in [`Reference`](crate::Reference).

use crate::operand::{Access, Operand};
use crate::plain::Parameter;

/// Properties of a kernel that follow from its key and a parameter block, in any build.
pub trait Kernel {
    /// The parameter block: the Rust twin of the C struct in its header; bytes if the kernel's type is erased.
    type Params: ToOwned + ?Sized;

    /// Lists the fields of the parameter block that a launch says, as its header declares them.
    fn parameters() -> &'static [Parameter]
    where
        Self: Sized,
    {
        &[]
    }

    /// Returns the bytes of the parameter block that a launch receives: the block may end in fields for other formats
    /// only.
    fn params_bytes(&self) -> usize
    where
        Self::Params: Sized,
    {
        size_of::<Self::Params>()
    }

    /// Returns every buffer that the launch touches. No two overlap unless both are only read.
    fn operands(&self, params: &Self::Params) -> Vec<Operand>;

    /// Returns the floating-point operations of the launch, if they bound its time; else 0.
    fn flops(&self, _params: &Self::Params) -> u64 {
        0
    }

    /// Returns the bytes that the launch must move: each input read once and each output written once, unless it
    /// touches only a part of one. Scratch does not count.
    fn bytes(&self, params: &Self::Params) -> u64 {
        let passes = |access: Access| u64::from(access.reads()) + u64::from(access.is_output());
        self.operands(params).iter().map(|operand| passes(operand.access) * operand.bytes()).sum()
    }
}
