//! Builds of a kernel: the table of its variants, and their properties.

use crate::arch::Arch;
use crate::blas::BlasGemm;
use crate::card::Card;
use crate::geometry::Geometry;
use crate::kernel::Kernel;
use crate::plain::PlainKernel;
use crate::source::Source;
use crate::tensor_map::TensorMap;

/// The table of a kernel's builds. A row is a variant, a typed value; source, admitted launches, geometry and tensor
/// maps are functions of it.
pub trait Build: Kernel {
    /// Parameters of a build: a struct or an enum that [`variant!`](crate::variant!) declares.
    type Variant: Copy + PartialEq;

    /// Returns the rows of an architecture, in order of preference if none is measured faster.
    fn variants(&self, arch: Arch) -> Vec<Self::Variant>;

    /// Returns the kernel that this one declares, if its file is compiled as it is. It gets no macros, so key and rows
    /// decide geometry alone, and the key has the kernel's name and no fields.
    fn plain(&self) -> Option<&'static PlainKernel> {
        None
    }

    /// Returns the CUDA source of a row. A plain kernel needs no implementation: its source is always its file.
    ///
    /// # Panics
    /// When a build, a check or a launch asks for the source of a kernel that implements neither this method nor
    /// [`Self::plain`].
    fn source(&self, _variant: Self::Variant) -> Source {
        self.plain().expect("a kernel implements `source` or `plain`").unit.source
    }

    /// True if a row can run a launch: some need rows of whole vectors. `select` returns only such rows, and the
    /// self-test runs only these.
    fn admits(&self, _variant: Self::Variant, _params: &Self::Params) -> bool {
        true
    }

    /// Returns grid, block and dynamic shared memory of a launch.
    fn geometry(&self, variant: Self::Variant, params: &Self::Params) -> Geometry;

    /// Returns the CTAs of the smallest grid that can run a launch, if a row's CTAs are persistent: each takes tiles
    /// from a list, so any larger grid works too. None if the launch determines the grid.
    fn smallest_grid(&self, _variant: Self::Variant) -> Option<u32> {
        None
    }

    /// Returns the tensor maps of the parameter block that a row reads. They are zero without a CUDA driver.
    fn tensor_maps(&self, _variant: Self::Variant, _params: &Self::Params) -> Vec<TensorMap> {
        Vec::new()
    }

    /// Names the launch's shape in the table of measured launches; none if all rows are equally fast.
    fn problem(&self, _params: &Self::Params) -> Option<String> {
        None
    }

    /// Selects the variant for a launch by the figures of a card; by the architecture's rule where cards do not differ.
    fn select_for(&self, params: &Self::Params, arch: Arch, _card: Card) -> Self::Variant {
        self.select(params, arch)
    }

    /// True if the results of another variant have the bits of this one's, since both sum in the same order.
    fn sums_as(&self, selected: Self::Variant, other: Self::Variant) -> bool {
        selected == other
    }

    /// Returns the matrix multiplication that a BLAS library can compute instead; none for other launches.
    fn blas_gemm(&self, _params: &Self::Params) -> Option<BlasGemm> {
        None
    }

    /// Selects the row for a launch that was not measured: a pure function. The default is the first that admits it.
    ///
    /// # Panics
    /// If no row admits the launch.
    fn select(&self, params: &Self::Params, arch: Arch) -> Self::Variant {
        let mut rows = self.variants(arch).into_iter();
        rows.find(|row| self.admits(*row, params)).expect("a variant admits any launch")
    }
}
