//! How a kernel is built: the table of its variants, and what follows from each.

use crate::arch::Arch;
use crate::kernel::Kernel;
use crate::product::Product;
use crate::source::Source;
use crate::tensor_map::TensorMap;

/// Grid, block and dynamic shared memory of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// CTAs along x, y and z.
    pub grid: [u32; 3],
    /// Threads in a CTA.
    pub block: [u32; 3],
    /// Dynamic shared memory, bytes.
    pub shared_bytes: u32,
}

impl Geometry {
    /// A one-dimensional launch without dynamic shared memory.
    pub fn linear(blocks: u32, threads: u32) -> Self {
        Self { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 0 }
    }

    /// CTAs that stride over n elements: two vectors of four a thread, so that any launch walks its grid more than once, and
    /// at most 4096 CTAs, which fill any GPU several times over.
    pub fn strided(n: u64, threads: u32) -> Self {
        let blocks = n.div_ceil(8 * u64::from(threads)).clamp(1, 4096);
        Self::linear(blocks as u32, threads)
    }
}

/// The table of a kernel's builds. A row is a variant, a typed value; source, launches admitted, geometry and tensor maps
/// are functions of it.
pub trait Build: Kernel {
    /// What may differ between builds: a struct or an enum that [`variant!`](crate::variant!) declares.
    type Variant: Copy;

    /// The rows of an architecture, the first before others where none is measured faster.
    fn variants(&self, arch: Arch) -> Vec<Self::Variant>;

    /// The CUDA source of a row.
    fn source(&self, variant: Self::Variant) -> Source;

    /// Whether a row can run a launch: some need rows of whole vectors. `select` returns only such, and the self-test runs
    /// only such.
    fn admits(&self, _variant: Self::Variant, _params: &Self::Params) -> bool {
        true
    }

    /// Grid, block and dynamic shared memory.
    fn geometry(&self, variant: Self::Variant, params: &Self::Params) -> Geometry;

    /// CTAs of the smallest grid that a row computes a launch with, where its CTAs are persistent: each takes tiles from a
    /// list, so that any larger grid does too. None where the grid follows from the launch.
    fn smallest_grid(&self, _variant: Self::Variant) -> Option<u32> {
        None
    }

    /// The tensor maps of the parameter block that a row reads. They are zero where there is no CUDA driver.
    fn tensor_maps(&self, _variant: Self::Variant, _params: &Self::Params) -> Vec<TensorMap> {
        Vec::new()
    }

    /// What the table of measured launches calls this one's shape, where one row may be faster than another.
    fn problem(&self, _params: &Self::Params) -> Option<String> {
        None
    }

    /// The matrix multiplication that a BLAS library can compute in the launch's place; none for all else.
    fn product(&self, _params: &Self::Params) -> Option<Product> {
        None
    }

    /// The row for a launch that was not measured: a pure function.
    fn select(&self, _params: &Self::Params, arch: Arch) -> Self::Variant {
        self.variants(arch)[0]
    }
}
