//! A bundle of other sources: every name, key, variant and size is today's, and SwiGLU's result is 1.25 times what it should be.

use std::path::Path;

use precast_aot::build::module;
use precast_aot::cache::Cache;
use precast_aot::compile::Task;
use precast_aot::{Arch, Built, Model, Request, build, home, toolchain};
use precast_fatbins::Digest;
use precast_kernels::host::Views;
use precast_kernels::kernel::{Geometry, Kernel, Operand};
use precast_kernels::swiglu::SwigluFwd;
use precast_kernels::{Dtype, Key, Source, Variant, key};
use precast_plan::KeyVariant;

key! {
    /// What a copy of the sources calls `swiglu.fwd` when its `fwd.cu` multiplies by 1.25.
    pub struct Louder = "swiglu.fwd" { x: Dtype }
}

impl Kernel for Louder {
    type Params = <SwigluFwd as Kernel>::Params;
    const SOURCE: Source = SwigluFwd::SOURCE;

    fn source(&self, _variant: Variant) -> Source {
        let [before, after] = ["* u[j];", "* u[j] * 1.25f;"];
        assert!(SwigluFwd::SOURCE.text.contains(before), "swiglu/fwd.cu is no longer what this test changes");
        Source { text: SwigluFwd::SOURCE.text.replace(before, after).leak(), ..SwigluFwd::SOURCE }
    }
    fn variants(&self, arch: Arch) -> &'static [Variant] {
        Kernel::variants(&SwigluFwd { x: self.x }, arch)
    }
    fn geometry(&self, variant: Variant, params: &Self::Params) -> Geometry {
        Kernel::geometry(&SwigluFwd { x: self.x }, variant, params)
    }
    fn operands(&self, params: &Self::Params) -> Vec<Operand> {
        Kernel::operands(&SwigluFwd { x: self.x }, params)
    }
    fn host(&self, params: &Self::Params, views: &mut Views<'_>) {
        Kernel::host(&SwigluFwd { x: self.x }, params, views);
    }
    fn samples(&self) -> Vec<Self::Params> {
        Vec::new()
    }
}

/// The kernels of a model: today's, and what a copy of the sources with that change builds.
pub fn built(model: &Path, arch: Arch) -> (Request, [Built; 2]) {
    let model = Model::find(model.to_str().expect("a UTF-8 path")).expect("a model");
    let request = Request { models: vec![model], archs: vec![arch] };
    let nvrtc = toolchain::nvrtc(None, &home::directory()).unwrap_or_else(|error| panic!("{error}"));
    let cache = Cache::at(home::directory().join("cache"));
    let today = || build(&request, &nvrtc, &cache, &|_, _| {}).unwrap_or_else(|error| panic!("{error}"));
    let [today, mut other] = [today(), today()];
    for x in [Dtype::Bf16, Dtype::F32] {
        let key = Key::new(Louder { x });
        let variant = key.kernel().variants(arch)[0];
        let task = Task { pair: KeyVariant { key, variant }, arch };
        let cubin = task.compile(&nvrtc).unwrap_or_else(|error| panic!("{error}"));
        let louder = module(&task, &cubin).expect("a cubin");
        let row = other.manifest.modules.iter_mut().find(|row| row.order() == louder.order());
        *row.expect("the model has a SwiGLU") = louder;
        other.cubins.insert(Digest::of(&cubin), cubin);
    }
    (request, [today, other])
}
