//! A kernel as its C header declares it: its parameter block, the buffers that a launch touches, and what that costs.
//!
//! Implemented in `abi.rs`, which is made of the headers. How a kernel is built is [`Build`](crate::Build), what it must equal
//! is [`Reference`](crate::Reference).

use crate::operand::{Access, Operand};

/// One kernel: what follows from its key and a parameter block, however it is built.
pub trait Kernel {
    /// The parameter block: the Rust twin of the C struct in `kernels/abi`. Bytes where the kernel's type is erased.
    type Params: ToOwned + ?Sized;

    /// Bytes of the parameter block that a launch is given: it may end in fields that kernels of other formats alone have.
    fn params_bytes(&self) -> usize
    where
        Self::Params: Sized,
    {
        size_of::<Self::Params>()
    }

    /// Every buffer the launch touches. No two overlap unless both are only read.
    fn operands(&self, params: &Self::Params) -> Vec<Operand>;

    /// Floating-point operations of the launch, where they bound its time.
    fn flops(&self, _params: &Self::Params) -> u64 {
        0
    }

    /// Bytes the launch has to move: each input read once and each output written once, unless it touches only a part of
    /// one. What it works in is its own affair.
    fn bytes(&self, params: &Self::Params) -> u64 {
        let passes = |access: Access| u64::from(access.reads()) + u64::from(access.is_output());
        self.operands(params).iter().map(|operand| passes(operand.access) * operand.bytes()).sum()
    }
}
