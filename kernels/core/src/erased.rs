//! Type-erased kernels: parameter blocks are bytes and variants numbers; the traits are the same.

use std::borrow::Borrow;

use bytemuck::Pod;

use crate::arch::Arch;
use crate::blas::BlasGemm;
use crate::build::Build;
use crate::card::Card;
use crate::fields::Fields;
use crate::geometry::Geometry;
use crate::host::Views;
use crate::kernel::Kernel;
use crate::operand::Operand;
use crate::plain::PlainKernel;
use crate::reference::{Batch, Reference, Tolerance};
use crate::source::Source;
use crate::tensor_map::TensorMap;
use crate::variant::{Numbers, Variant};

/// A kernel that can be registered.
pub trait Registered: Fields + Kernel<Params: Pod> + Build<Variant: Numbers> + Reference {}

impl<K: Fields + Kernel<Params: Pod> + Build<Variant: Numbers> + Reference> Registered for K {}

/// A kernel whose key type is erased, as a [`Key`](crate::Key) holds it.
pub trait AnyKernel: Kernel<Params = [u8]> + Build<Variant = Variant> + Reference + Send + Sync {}

/// Implements [`AnyKernel`].
#[derive(Clone)]
pub(crate) struct Erased<K>(pub K);

impl<K: Registered> AnyKernel for Erased<K> {}

/// Reads a parameter block; missing last fields are zeros.
///
/// # Panics
/// If there are more bytes: the block is another kernel's.
fn block<P: Pod>(params: &[u8]) -> P {
    let mut block = P::zeroed();
    bytemuck::bytes_of_mut(&mut block)[..params.len()].copy_from_slice(params);
    block
}

/// Returns the bytes of a parameter block, as a launch receives them.
pub fn bytes<K: Registered>(kernel: &K, params: &K::Params) -> Vec<u8> {
    bytemuck::bytes_of(params)[..params_bytes(kernel)].to_vec()
}

/// Returns the bytes of parameters that a launch passes. A plain kernel takes those of its file, without the padding
/// that ends the header's struct.
pub(crate) fn params_bytes<K: Registered>(kernel: &K) -> usize {
    kernel.plain().map_or_else(|| kernel.params_bytes(), PlainKernel::params_bytes)
}

/// Returns the typed variant.
///
/// # Panics
/// If it is another kernel's.
fn typed<V: Numbers>(variant: Variant) -> V {
    V::of(variant).unwrap_or_else(|| panic!("`{variant}` is no variant of this kernel"))
}

impl<K: Registered> Kernel for Erased<K> {
    type Params = [u8];

    fn operands(&self, params: &[u8]) -> Vec<Operand> {
        self.0.operands(&block(params))
    }
    fn flops(&self, params: &[u8]) -> u64 {
        self.0.flops(&block(params))
    }
    fn bytes(&self, params: &[u8]) -> u64 {
        self.0.bytes(&block(params))
    }
}

impl<K: Registered> Build for Erased<K> {
    type Variant = Variant;

    fn variants(&self, arch: Arch) -> Vec<Variant> {
        self.0.variants(arch).into_iter().map(Numbers::erase).collect()
    }
    fn plain(&self) -> Option<&'static PlainKernel> {
        self.0.plain()
    }
    fn source(&self, variant: Variant) -> Source {
        self.0.plain().map_or_else(|| self.0.source(typed(variant)), |plain| plain.unit.source)
    }
    fn admits(&self, variant: Variant, params: &[u8]) -> bool {
        self.0.admits(typed(variant), &block(params))
    }
    fn geometry(&self, variant: Variant, params: &[u8]) -> Geometry {
        self.0.geometry(typed(variant), &block(params))
    }
    fn smallest_grid(&self, variant: Variant) -> Option<u32> {
        self.0.smallest_grid(typed(variant))
    }
    fn tensor_maps(&self, variant: Variant, params: &[u8]) -> Vec<TensorMap> {
        self.0.tensor_maps(typed(variant), &block(params))
    }
    fn problem(&self, params: &[u8]) -> Option<String> {
        self.0.problem(&block(params))
    }
    fn select_for(&self, params: &[u8], arch: Arch, card: Card) -> Variant {
        self.0.select_for(&block(params), arch, card).erase()
    }
    fn sums_as(&self, selected: Variant, other: Variant) -> bool {
        self.0.sums_as(typed(selected), typed(other))
    }
    fn blas_gemm(&self, params: &[u8]) -> Option<BlasGemm> {
        self.0.blas_gemm(&block(params))
    }
    fn select(&self, params: &[u8], arch: Arch) -> Variant {
        self.0.select(&block(params), arch).erase()
    }
}

impl<K: Registered> Reference for Erased<K> {
    fn examples() -> Vec<Self> {
        K::examples().into_iter().map(Self).collect()
    }
    fn host(&self, params: &[u8], views: &mut Views<'_>) {
        self.0.host(&block(params), views);
    }
    fn samples(&self) -> Vec<Vec<u8>> {
        self.0.samples().iter().map(|params| bytes(&self.0, params.borrow())).collect()
    }
    fn typical(&self, batch: Batch) -> Vec<u8> {
        bytes(&self.0, self.0.typical(batch).borrow())
    }
    fn tolerance(&self, operand: &Operand) -> Tolerance {
        self.0.tolerance(operand)
    }
}
