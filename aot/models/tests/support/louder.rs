//! A bundle of other sources: every name, key, variant and size is current, and SwiGLU's result is scaled by 1.25.

use std::path::Path;

use precast_aot::cache::Cache;
use precast_aot::{Arch, Built, build, home, toolchain};
use precast_fatbins::{Digest, ModuleEntry};
use precast_kernels::swiglu::SwigluFwd;
use precast_kernels::{Dtype, Gate, Key, Out};
use precast_models::{Model, Selection};

use edited::{Edited, task};

#[path = "edited.rs"]
pub mod edited;

/// A copy of `swiglu/fwd.cu` that multiplies by 1.25.
fn louder(text: &str) -> String {
    let [before, after] = ["* u[j];", "* u[j] * 1.25f;"];
    assert!(text.contains(before), "swiglu/fwd.cu is no longer what this test changes");
    text.replace(before, after)
}

/// Builds a model's kernels from the current sources, and from a copy with that change.
pub fn built(model: &Path, arch: Arch) -> (Selection, [Built; 2]) {
    let model = Model::find(model.to_str().expect("a UTF-8 path")).expect("a model");
    let selection = Selection::of_models(vec![model], vec![arch]);
    let request = selection.request();
    let nvrtc = toolchain::nvrtc(None, &home::directory()).unwrap_or_else(|error| panic!("{error}"));
    let cache = Cache::at(home::directory().join("cache"));
    let today = || build(&request, &nvrtc, &cache, &|_, _| {}).unwrap_or_else(|error| panic!("{error}"));
    let [today, mut other] = [today(), today()];
    for x in [Dtype::Bf16, Dtype::F32] {
        let task =
            task(Key::new(Edited::new(SwigluFwd { gate: Gate::Silu, n: None, out: Out::Dense, x }, louder)), arch);
        let cubin = task.compile(&nvrtc).unwrap_or_else(|error| panic!("{error}"));
        let louder = ModuleEntry::compiled(&task.pair, task.arch, &cubin).expect("a cubin");
        let row = other.manifest.modules.iter_mut().find(|row| row.order() == louder.order());
        *row.expect("the model has a SwiGLU") = louder;
        other.cubins.insert(Digest::of(&cubin), cubin);
    }
    (selection, [today, other])
}
