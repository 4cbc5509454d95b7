//! A kernel that is taken as it is and that no header declares, among those that one does.

use crate::arch::Arch;
use crate::build::Build;
use crate::erased::AnyKernel;
use crate::geometry::Geometry;
use crate::host::Views;
use crate::kernel::Kernel;
use crate::operand::Operand;
use crate::plain::PlainKernel;
use crate::reference::Reference;
use crate::variant::Variant;

/// Has no operands, and is launched with the caller's geometry.
pub(crate) struct Undeclared(pub &'static PlainKernel);

impl AnyKernel for Undeclared {}

impl Kernel for Undeclared {
    type Params = [u8];

    fn operands(&self, _params: &[u8]) -> Vec<Operand> {
        Vec::new()
    }
}

impl Build for Undeclared {
    type Variant = Variant;

    fn variants(&self, arch: Arch) -> Vec<Variant> {
        if arch == Arch::Sim { Vec::new() } else { vec![Variant::new(&[])] }
    }
    fn plain(&self) -> Option<&'static PlainKernel> {
        Some(self.0)
    }
    fn geometry(&self, _variant: Variant, _params: &[u8]) -> Geometry {
        Geometry::linear(0, 0)
    }
}

/// Of no launch: what asks for one is given a [`Registry`](crate::Registry), which has no such kernel.
impl Reference for Undeclared {
    fn examples() -> Vec<Self> {
        Vec::new()
    }
    fn host(&self, _params: &[u8], _views: &mut Views<'_>) {}
    fn samples(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }
}
