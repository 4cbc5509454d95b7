//! Sources are read from disk by the checker's program alone: it checks what all others are built with, where nothing
//! was edited.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use precast_kernels::{KERNELS, Key, Source};
use precast_simt::suite::ARCHS;

use crate::checkout::Checkout;
use crate::named;

/// Every source that an example is built from.
fn sources() -> Vec<Source> {
    let built = |key: Key| ARCHS.into_iter().flat_map(move |arch| key.built(arch).collect::<Vec<_>>());
    let sources = KERNELS.examples().into_iter().flat_map(built).map(|pair| pair.source());
    sources.map(|source| (source.path, source)).collect::<BTreeMap<_, _>>().into_values().collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn what_lies_on_disk_is_what_programs_are_built_with() {
    let (checkout, sources) = (Checkout::at(&root()), sources());
    for built in &sources {
        let read = checkout.source(built).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((read.text, read.includes()), (built.text, built.includes()), "{}", built.path);
    }
    assert!(sources.len() > 40, "{}", sources.len());
}

/// A checkout of a family's source and of every header.
fn copy() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["kernels/src/cast", "kernels/core/cuda", "kernels/cuda", "kernels/src"] {
        fs::create_dir_all(dir.path().join(folder)).unwrap();
        for entry in fs::read_dir(root().join(folder)).unwrap().map(Result::unwrap) {
            if entry.path().is_file() {
                fs::copy(entry.path(), dir.path().join(folder).join(entry.file_name())).unwrap();
            }
        }
    }
    dir
}

#[test]
fn an_edit_is_read_wherever_it_is() {
    let dir = copy();
    let key = KERNELS.parse("cast{from=bf16,to=f32}").unwrap();
    let built = key.kernel().source(key.kernel().variants(ARCHS[0])[0]);
    let read = || Checkout::at(dir.path()).source(&built).map_err(|error| error.to_string());
    let edit = |name: &str, from: &str, to: &str| {
        let text = fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(text.contains(from), "{name}: {from}");
        fs::write(dir.path().join(name), text.replace(from, to)).unwrap();
    };
    edit("kernels/src/cast/cast.cu", "p.n / 4 * 4", "p.n / 4 * 5");
    assert!(read().unwrap().text.contains("p.n / 4 * 5"));
    edit("kernels/core/cuda/device.cuh", "store4(", "store4_(");
    assert!(read().unwrap().includes().iter().any(|(name, text)| *name == "device.cuh" && !text.contains("store4(")));
    assert_eq!(read().unwrap().headers().len(), built.headers().len());

    edit("kernels/src/cast/cast.cu", "#include \"cast.h\"", "#include \"cast.h\"\n#include \"cast/new.cuh\"");
    let error = read().unwrap_err();
    assert_eq!(error, "cast/cast.cu includes cast/new.cuh, which its `source!` does not list (`mod.rs` of the family)");
    fs::remove_file(dir.path().join("kernels/src/cast/cast.h")).unwrap();
    assert!(read().unwrap_err().contains("cast.h: No such file"), "a source is never taken in part from the program");
}

#[test]
fn examples_are_found_by_a_part_of_their_name() {
    let found =
        |text: &str| named(text).map(|checks| checks.iter().map(|(pair, _)| pair.to_string()).collect::<Vec<_>>());
    let norms = found("rmsnorm.fwd").unwrap();
    assert!(!norms.is_empty() && norms.iter().all(|name| name.contains("rmsnorm.fwd")), "{norms:?}");
    let key = "rmsnorm.fwd{h=896,residual=false,x=bf16}";
    assert!(KERNELS.examples().iter().all(|example| example.text() != key));
    assert!(found(key).unwrap().iter().all(|name| name.starts_with(key)));
    let error = found("rmsnrom").unwrap_err().to_string();
    assert!(error.starts_with("no example has `rmsnrom` in its name"), "{error}");
}
