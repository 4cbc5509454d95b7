//! What a kernel must equal: its host reference, and the launches that compare the two.

use std::borrow::Borrow;

use crate::dtype::Dtype;
use crate::format::Format;
use crate::host::Views;
use crate::kernel::Kernel;
use crate::operand::Operand;

/// How far a kernel may be from its host reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Largest ‖out − ref‖ / ‖ref‖.
    pub norm: f64,
    /// Largest |out − ref| of one element, as a share of the largest |ref|.
    pub element: f64,
    /// Differences up to this are none: for values that are themselves differences of larger ones.
    pub absolute: f64,
}

impl Tolerance {
    /// The same bits, zeros' signs included.
    pub const EXACT: Self = Self { norm: 0.0, element: 0.0, absolute: 0.0 };

    /// What rounding explains for outputs of this format computed in f32.
    pub fn of(format: Format) -> Self {
        match format {
            Format::Dense(Dtype::Bf16) => Self { norm: 4e-3, element: 1e-2, absolute: 0.0 },
            Format::Dense(Dtype::F32) => Self { norm: 2e-6, element: 1e-5, absolute: 0.0 },
            Format::Dense(Dtype::U32 | Dtype::I8) | Format::Block(_) => Self::EXACT,
        }
    }
}

/// The tokens that a benchmark gives a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    pub sequences: u32,
    /// Tokens in each.
    pub seq_len: u32,
}

impl Batch {
    /// Elements of a row where a key does not say: a large model's.
    pub const WIDTH: u32 = 4096;
    /// Tokens that a model knows, likewise.
    pub const VOCAB: u32 = 1 << 17;

    pub fn tokens(self) -> u32 {
        self.sequences * self.seq_len
    }

    /// Elements of a matrix with a row for each token.
    pub fn elems(self) -> u64 {
        u64::from(self.tokens()) * u64::from(Self::WIDTH)
    }
}

/// What every build of a kernel must equal.
pub trait Reference: Kernel {
    /// Keys worth checking whatever models there are: each dtype and flag, and sizes that are no whole vectors. Every
    /// program that lists or checks kernels knows a kernel by them before any plan launches it.
    fn examples() -> Vec<Self>
    where
        Self: Sized;

    /// The reference: what the launch must do, on the host.
    fn host(&self, params: &Self::Params, views: &mut Views<'_>);

    /// Parameter blocks (addresses left 0) of small, ragged launches that check the kernel.
    fn samples(&self) -> Vec<<Self::Params as ToOwned>::Owned>;

    /// The launch that a benchmark times, addresses left 0: of a model's size, so that it fills a GPU and no cache holds it.
    /// The largest sample, which does neither, where a kernel does not say.
    fn typical(&self, _batch: Batch) -> <Self::Params as ToOwned>::Owned {
        let samples = self.samples().into_iter();
        samples.max_by_key(|params| self.bytes(params.borrow())).expect("a kernel has samples")
    }

    /// Allowed distance between kernel and reference for an operand.
    fn tolerance(&self, operand: &Operand) -> Tolerance {
        Tolerance::of(operand.format)
    }
}
