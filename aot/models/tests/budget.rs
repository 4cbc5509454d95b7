//! A kernel over budget is never built, from whatever source.

use std::fs;
use std::path::PathBuf;

use precast_aot::cache::Cache;
use precast_aot::compile::Task;
use precast_aot::prebuilt::{self, PrebuiltError};
use precast_aot::{Arch, BuildError, build, home};
use precast_fatbins::{Digest, ModuleEntry};
use precast_kernels::cast::Cast;
use precast_kernels::{Dtype, Key};
use precast_models::Selection;

use crate::support::louder::edited::{Edited, task};
use crate::support::program::{aot, ends, nvrtc, tiny_json, tiny_model};

/// A `cast` whose array has no room in registers.
const SPILLING: &str = "#include \"cast.h\"\n#include \"device.cuh\"\n\nKERNEL(cast_params) {\n    uint32_t \
    kept[64];\n    \
                        for (uint32_t i = 0; i < 64; i++) kept[(i * p.n) % 64] = i;\n    \
                        ((uint32_t*)p.y)[threadIdx.x] = kept[threadIdx.x % 64];\n}\n";

const KEYS: [[Dtype; 2]; 2] = [[Dtype::F32, Dtype::Bf16], [Dtype::Bf16, Dtype::F32]];

/// Replaces the trainer's source of a key by a spilling one under the same symbol.
fn spilling(arch: Arch) -> Vec<(Task, Vec<u8>)> {
    let compiled = KEYS.map(|[from, to]| {
        let edited = Edited::new(Cast { from, to }, |_| SPILLING.to_owned());
        let cubin = task(Key::new(edited), arch).compile(&nvrtc()).unwrap_or_else(|error| panic!("{error}"));
        let own = task(Key::new(Cast { from, to }), arch);
        let cubin = crate::support::renamed::renamed(&cubin, &own.pair.entry(arch));
        (own, cubin)
    });
    compiled.into()
}

#[test]
fn every_build_of_any_model_is_checked_for_spills() {
    let request = Selection::of_models(vec![tiny_model()], vec![Arch::Sm121]).request();
    let (nvrtc, home) = (nvrtc(), tempfile::tempdir().unwrap());
    let cache = Cache::at(home.path().join("cache"));
    let within = build(&request, &nvrtc, &Cache::at(home::directory().join("cache")), &|_, _| {}).unwrap();
    for task in request.tasks() {
        let name = (task.pair.key.to_string(), task.pair.variant.to_string(), task.arch.to_string());
        let row = within.manifest.modules.iter().find(|row| row.order() == (&*name.0, &*name.1, &*name.2)).unwrap();
        cache.put(&task.cache_key(nvrtc.identity()), &within.cubins[&row.code.as_ref().unwrap().digest]);
    }
    let spilling: Vec<_> =
        spilling(Arch::Sm121).into_iter().filter(|(task, _)| request.tasks().contains(task)).collect();
    assert!(!spilling.is_empty());
    for (task, cubin) in &spilling {
        cache.put(&task.cache_key(nvrtc.identity()), cubin);
    }
    let over = match build(&request, &nvrtc, &cache, &|_, _| {}).unwrap_err() {
        BuildError::OverBudget(over) => over,
        other => panic!("{other}"),
    };
    assert_eq!(over.0.len(), spilling.len());
    assert!(over.0.iter().all(|line| line.contains("cast{") && line.contains("stack frame of 256 bytes")), "{over}");
    // The program exits with 3 and writes nothing.
    std::os::unix::fs::symlink(home::directory().join("toolchain"), home.path().join("toolchain")).unwrap();
    let out = home.path().join("out.bundle");
    let mut program = aot("build --arch sm_121 --model");
    program.env("PRECAST_HOME", home.path()).arg(tiny_json()).arg("--out").arg(&out);
    let (code, _, message) = ends(&mut program);
    assert_eq!(code, Some(3));
    assert!(message.contains(&format!("error: {over}")), "{message}");
    assert!(!out.exists());
    // A published bundle is checked like a built one.
    let mut published = within;
    for (task, cubin) in &spilling {
        let spilled = ModuleEntry::compiled(&task.pair, task.arch, cubin).unwrap();
        let row = published.manifest.modules.iter_mut().find(|row| row.order() == spilled.order()).unwrap();
        *row = spilled;
        published.cubins.insert(Digest::of(cubin), cubin.clone());
    }
    fs::write(home.path().join("precast.bundle"), published.encode()).unwrap();
    let error = prebuilt::select(home.path(), &[], &request).unwrap_err();
    assert!(matches!(&error, PrebuiltError::OverBudget { error, .. } if *error == over), "{error}");
}

#[test]
fn compiler_threads_are_as_many_as_asked_for_up_to_the_cores() {
    let build = |jobs: &str| {
        let dir = tempfile::tempdir().unwrap();
        let mut program = aot(&format!("build --arch sm_121 --jobs {jobs} --model"));
        let (code, _, said) = ends(program.arg(tiny_json()).arg("--out").arg(dir.path().join("out")));
        (code, said)
    };
    let cores = std::thread::available_parallelism().unwrap();
    let (code, said) = build("100000");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&format!("this machine has {cores} cores, so {cores} kernels")), "{said}");
    let (code, said) = build("1");
    assert_eq!((code, said.contains("note")), (Some(0), false), "{said}");
    // The thread pool starts no more either.
    let older = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fatbins/tests/fixtures/older/older.bundle");
    assert_eq!(ends(aot("verify").env("RAYON_NUM_THREADS", "60000").arg(older)).0, Some(3));
    for wrong in ["0", "-1", "many", "99999999999999999999999"] {
        assert_eq!(build(wrong).0, Some(2), "{wrong}");
    }
}
