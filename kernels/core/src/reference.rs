//! Required results of a kernel: its host reference, and the launches to compare.

use std::borrow::Borrow;

use crate::dtype::Dtype;
use crate::format::Format;
use crate::host::Views;
use crate::kernel::Kernel;
use crate::operand::Operand;

/// Allowed distance of a kernel from its host reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Largest ‖out − ref‖ / ‖ref‖.
    pub norm: f64,
    /// Largest |out − ref| of one element, as a share of the largest |ref|.
    pub element: f64,
    /// Differences up to this are ignored, for values that are differences of larger ones.
    pub absolute: f64,
}

impl Tolerance {
    /// Bit equality, signs of zeros included.
    pub const EXACT: Self = Self { norm: 0.0, element: 0.0, absolute: 0.0 };

    /// Returns the tolerance that rounding explains for outputs of this format computed in f32.
    pub fn of(format: Format) -> Self {
        match format {
            Format::Dense(Dtype::Bf16) => Self { norm: 4e-3, element: 1e-2, absolute: 0.0 },
            Format::Dense(Dtype::F32) => Self { norm: 2e-6, element: 1e-5, absolute: 0.0 },
            Format::Dense(Dtype::U32 | Dtype::I8) | Format::Block(_) => Self::EXACT,
        }
    }
}

/// Tokens of a benchmark's launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Sequences of a batch.
    pub sequences: u32,
    /// Tokens of each sequence.
    pub seq_len: u32,
}

impl Batch {
    /// Width of a row if a key has none: a large one.
    pub const WIDTH: u32 = 4096;
    /// Size of the vocabulary if a key has none: a large one.
    pub const VOCAB: u32 = 1 << 17;

    /// Returns the tokens of the batch.
    pub fn tokens(self) -> u32 {
        self.sequences * self.seq_len
    }

    /// Returns the elements of a matrix with a row per token.
    pub fn elems(self) -> u64 {
        u64::from(self.tokens()) * u64::from(Self::WIDTH)
    }
}

/// Required results of a kernel in every build.
pub trait Reference: Kernel {
    /// Returns keys to check for any program: each dtype and flag, and sizes that are no whole vectors. Programs
    /// that list or check kernels know a kernel by them before any plan launches it.
    fn examples() -> Vec<Self>
    where
        Self: Sized;

    /// Computes the launch's required results on the host.
    fn host(&self, params: &Self::Params, views: &mut Views<'_>);

    /// Returns parameter blocks (addresses 0) of small, ragged launches that check the kernel.
    fn samples(&self) -> Vec<<Self::Params as ToOwned>::Owned>;

    /// Returns the launch that a benchmark times, addresses 0: of a size in use, so that it fills a GPU and exceeds
    /// its caches. The default is the largest sample, which does neither.
    fn typical(&self, _batch: Batch) -> <Self::Params as ToOwned>::Owned {
        let samples = self.samples().into_iter();
        samples.max_by_key(|params| self.bytes(params.borrow())).expect("a kernel has samples")
    }

    /// Returns the allowed distance between kernel and reference for an operand.
    fn tolerance(&self, operand: &Operand) -> Tolerance {
        Tolerance::of(operand.format)
    }
}
