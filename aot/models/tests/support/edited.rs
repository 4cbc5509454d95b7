//! Kernels whose sources were edited: the same keys, variants and parameter blocks.

use precast_aot::Arch;
use precast_aot::compile::Task;
use precast_kernels::fields::{Field, Fields};
use precast_kernels::host::Views;
use precast_kernels::{Build, Geometry, Kernel, Key, KeyVariant, Operand, Reference, Source};

/// A kernel with another text as its source.
#[derive(Clone, Debug, PartialEq)]
pub struct Edited<K> {
    kernel: K,
    text: &'static str,
}

impl<K: Fields + Build + Reference> Edited<K> {
    pub fn new(kernel: K, edit: impl Fn(&str) -> String) -> Self {
        let variant = kernel.variants(Arch::Sm89)[0];
        let text = edit(kernel.source(variant).text).leak();
        Self { kernel, text }
    }
}

impl<K: Fields> Fields for Edited<K> {
    const OP: &'static str = K::OP;

    fn fields(&self) -> Vec<Field> {
        self.kernel.fields()
    }
    fn from_pairs(_pairs: &[(&str, &str)]) -> Option<Self> {
        None
    }
}

impl<K: Fields + Kernel> Kernel for Edited<K> {
    type Params = K::Params;

    fn params_bytes(&self) -> usize
    where
        Self::Params: Sized,
    {
        self.kernel.params_bytes()
    }
    fn operands(&self, params: &Self::Params) -> Vec<Operand> {
        self.kernel.operands(params)
    }
}

impl<K: Fields + Build> Build for Edited<K> {
    type Variant = K::Variant;

    fn variants(&self, arch: Arch) -> Vec<Self::Variant> {
        self.kernel.variants(arch)
    }
    fn source(&self, variant: Self::Variant) -> Source {
        Source { text: self.text, ..self.kernel.source(variant) }
    }
    fn geometry(&self, variant: Self::Variant, params: &Self::Params) -> Geometry {
        self.kernel.geometry(variant, params)
    }
}

impl<K: Fields + Reference> Reference for Edited<K> {
    fn examples() -> Vec<Self> {
        Vec::new()
    }
    fn host(&self, params: &Self::Params, views: &mut Views<'_>) {
        self.kernel.host(params, views);
    }
    fn samples(&self) -> Vec<<Self::Params as ToOwned>::Owned> {
        self.kernel.samples()
    }
}

/// Compiling a key's first variant.
pub fn task(key: Key, arch: Arch) -> Task {
    let variant = key.kernel().variants(arch)[0];
    Task { pair: KeyVariant { key, variant }, arch }
}
