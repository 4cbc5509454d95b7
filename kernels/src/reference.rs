//! What a kernel must equal: its host reference, and the launches that compare the two.

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
            Format::Dense(Dtype::U32) | Format::Block(_) => Self::EXACT,
        }
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

    /// Allowed distance between kernel and reference for an operand.
    fn tolerance(&self, operand: &Operand) -> Tolerance {
        Tolerance::of(operand.format)
    }
}
