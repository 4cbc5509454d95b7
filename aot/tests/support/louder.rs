//! A bundle of other sources: every name, key, variant and size is current, and SwiGLU's result is scaled by 1.25.

use std::path::Path;

use precast_aot::cache::Cache;
use precast_aot::compile::Task;
use precast_aot::{Arch, Built, Model, Request, build, home, toolchain};
use precast_fatbins::{Digest, ModuleEntry};
use precast_kernels::host::Views;
use precast_kernels::swiglu::SwigluFwd;
use precast_kernels::{Build, Dtype, Geometry, Kernel, Key, KeyVariant, Operand, Out, Reference, Source, key};

key! {
    /// Key of `swiglu.fwd` in a copy of the sources whose `fwd.cu` multiplies by 1.25.
    pub struct Louder = "swiglu.fwd" { x: Dtype }
}

impl Louder {
    fn own(&self) -> SwigluFwd {
        SwigluFwd { n: None, out: Out::Dense, x: self.x }
    }
}

impl Kernel for Louder {
    type Params = <SwigluFwd as Kernel>::Params;

    fn operands(&self, params: &Self::Params) -> Vec<Operand> {
        self.own().operands(params)
    }
}

impl Build for Louder {
    type Variant = <SwigluFwd as Build>::Variant;

    fn variants(&self, arch: Arch) -> Vec<Self::Variant> {
        self.own().variants(arch)
    }
    fn source(&self, variant: Self::Variant) -> Source {
        let [before, after] = ["* u[j];", "* u[j] * 1.25f;"];
        let source = self.own().source(variant);
        assert!(source.text.contains(before), "swiglu/fwd.cu is no longer what this test changes");
        Source { text: source.text.replace(before, after).leak(), ..source }
    }
    fn geometry(&self, variant: Self::Variant, params: &Self::Params) -> Geometry {
        self.own().geometry(variant, params)
    }
}

impl Reference for Louder {
    fn examples() -> Vec<Self> {
        Vec::new()
    }
    fn host(&self, params: &Self::Params, views: &mut Views<'_>) {
        self.own().host(params, views);
    }
    fn samples(&self) -> Vec<Self::Params> {
        Vec::new()
    }
}

/// Builds a model's kernels from the current sources, and from a copy with that change.
pub fn built(model: &Path, arch: Arch) -> (Request, [Built; 2]) {
    let model = Model::find(model.to_str().expect("a UTF-8 path")).expect("a model");
    let request = Request::of_models(vec![model], vec![arch]);
    let nvrtc = toolchain::nvrtc(None, &home::directory()).unwrap_or_else(|error| panic!("{error}"));
    let cache = Cache::at(home::directory().join("cache"));
    let today = || build(&request, &nvrtc, &cache, &|_, _| {}).unwrap_or_else(|error| panic!("{error}"));
    let [today, mut other] = [today(), today()];
    for x in [Dtype::Bf16, Dtype::F32] {
        let key = Key::new(Louder { x });
        let variant = key.kernel().variants(arch)[0];
        let task = Task { pair: KeyVariant { key, variant }, arch };
        let cubin = task.compile(&nvrtc).unwrap_or_else(|error| panic!("{error}"));
        let louder = ModuleEntry::compiled(&task.pair, task.arch, &cubin).expect("a cubin");
        let row = other.manifest.modules.iter_mut().find(|row| row.order() == louder.order());
        *row.expect("the model has a SwiGLU") = louder;
        other.cubins.insert(Digest::of(&cubin), cubin);
    }
    (request, [today, other])
}
