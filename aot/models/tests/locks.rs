//! The committed lock covers every kernel, built from the current sources.

use std::collections::BTreeMap;
use std::path::Path;

use precast_aot::{Arch, lock};
use precast_fatbins::Lock;
use precast_kernels::OPTIONS;
use precast_models::kernels::unlaunched;
use precast_models::{Model, SHARED_LOCK, Selection};

use crate::support::program::{aot, ends};

/// Finds in seconds the mismatch that a build finds after compiling: a kernel that is not the locked one.
#[test]
fn every_kernel_is_locked_with_its_source_and_options() {
    let path = lock::path(&Path::new(env!("CARGO_MANIFEST_DIR")).join("locks"), SHARED_LOCK);
    let text = std::fs::read_to_string(&path).unwrap();
    text.parse::<Lock>().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // `arch key[variant] cubin source compiler; options`
    let mut locked = BTreeMap::new();
    for line in text.lines().skip(1) {
        let [arch, name, _, source, rest] = line.splitn(5, ' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        locked.insert(format!("{arch} {name}"), (source, rest.split_once("; ").unwrap().1));
    }
    let (options, mut wrong) = (OPTIONS.join(" "), Vec::new());
    let archs = Arch::GPUS.to_vec();
    let all = Selection { models: Model::built_in(), keys: unlaunched(), archs };
    for task in all.request().tasks() {
        let (name, source) = (format!("{} {}", task.arch, task.pair), task.source_digest().to_string());
        if locked.remove(&name) != Some((&*source, &*options)) {
            wrong.push(name);
        }
    }
    wrong.extend(locked.keys().map(|name| format!("{name}, which is not built")));
    assert!(wrong.is_empty(), "precast-aot lock writes the lock of\n{}", wrong.join("\n"));
}

/// Models share the lock: each build is held to its own lines, whichever others there are.
#[test]
fn a_build_is_held_to_its_lines_of_the_shared_lock() {
    let dir = tempfile::tempdir().unwrap();
    let path = lock::path(dir.path(), SHARED_LOCK);
    let built = |text: Option<&str>| {
        let _ = std::fs::remove_file(&path);
        if let Some(text) = text {
            std::fs::write(&path, text).unwrap();
        }
        let mut build = aot("build --locked --arch sm_121 --model smollm2-135m --locks");
        let (code, _, message) = ends(build.arg(dir.path()).arg("--out").arg(dir.path().join("out.bundle")));
        (code, message)
    };
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("locks");
    let text = std::fs::read_to_string(lock::path(&committed, SHARED_LOCK)).unwrap();
    assert_eq!(built(Some(&text)), (Some(0), String::new()));
    let own = text.lines().find(|line| line.starts_with("sm_121 swiglu.fwd{x=bf16}")).unwrap();
    let other = text.lines().find(|line| line.starts_with("sm_121 embedding.fwd{h=1536,")).unwrap();
    let with = |line: &str, by: &str| built(Some(&text.replace(&format!("{line}\n"), by)));
    assert_eq!(with(other, "").0, Some(0));
    let (code, message) = with(own, "");
    assert!(code == Some(3) && message.contains("ADDED   sm_121 swiglu.fwd{x=bf16}"), "{message}");
    let cubin = own.split(' ').nth(2).unwrap();
    let (code, message) = with(own, &format!("{}\n", own.replace(cubin, &"0".repeat(64))));
    assert!(code == Some(3) && message.contains("CHANGED sm_121 swiglu.fwd{x=bf16}"), "{message}");
    let (code, message) = built(None);
    assert!(code == Some(3) && message.contains("built-in.lock: precast-aot lock writes it"), "{message}");
}

/// A bundle with kernels that the lock lacks, as of another variant, is not published; a broken lock stays as it is.
#[test]
fn what_is_published_is_as_locked() {
    let dir = tempfile::tempdir().unwrap();
    let (path, bundle) = (lock::path(dir.path(), SHARED_LOCK), dir.path().join("out.bundle"));
    let committed = lock::path(&Path::new(env!("CARGO_MANIFEST_DIR")).join("locks"), SHARED_LOCK);
    let text = std::fs::read_to_string(&committed).unwrap();
    ends(aot("build --arch sm_121 --model smollm2-135m --out").arg(&bundle));
    let publish = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let mut publish = aot("publish --bundle");
        let to = dir.path().join("published");
        ends(publish.arg(&bundle).arg("--locks").arg(dir.path()).arg("--to").arg(to))
    };
    assert_eq!(publish(&text).0, Some(0));
    let own = text.lines().find(|line| line.starts_with("sm_121 swiglu.fwd{x=bf16}")).unwrap();
    let (code, _, message) = publish(&text.replace(own, &own.replace("[threads=128]", "[threads=64]")));
    assert!(code == Some(3) && message.contains("ADDED   sm_121 swiglu.fwd{x=bf16}[threads=128]"), "{message}");
    let broken = format!("{text}<<<<<<< HEAD\n");
    std::fs::write(&path, &broken).unwrap();
    let (code, _, message) = ends(aot("lock --model smollm2-135m --locks").arg(dir.path()));
    assert!(code == Some(3) && message.contains("<<<<<<< HEAD"), "{code:?} {message}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), broken);
}

/// It would name the lock that the built-in models share.
#[test]
fn no_model_is_called_as_the_shared_lock() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("built-in.json");
    std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("smollm2-135m.json"), &path).unwrap();
    let (code, _, message) = ends(aot("keys --arch sm_121 --model").arg(&path));
    assert!(code != Some(0) && message.contains("would be called built-in"), "{message}");
}
