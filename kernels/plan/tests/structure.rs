//! What holds of the sources of this package: one place fills parameter blocks, and modules go one way.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn sources(directory: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found
}

fn package() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Names of parameter blocks: the last word of `gemm_fwd_params`.
fn names_a_block(text: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word.len() > 7 && word.ends_with("_params"))
}

#[test]
fn operations_alone_fill_parameter_blocks() {
    let (src, checkout) = (package().join("src"), package().join("../.."));
    let rooms = ["aot/src", "fatbins/src", "runtime/src", "trainer"].map(|room| checkout.join(room));
    let mut filled = 0;
    for (path, text) in rooms.iter().chain([&src]).flat_map(|room| sources(room)) {
        // Blocks are known by their types, which all stand in `abi`.
        let fills = text.contains("abi::") && names_a_block(&text);
        let is_op = path.starts_with(src.join("ops"));
        assert!(!fills || is_op, "{} fills a parameter block", path.display());
        filled += usize::from(fills);
    }
    assert!(filled >= 8, "{filled} files of operations: this test looks for the wrong thing");
}

/// `use crate::x` in module y, top-level modules of this package alone.
fn arrows() -> BTreeMap<String, BTreeSet<String>> {
    let src = package().join("src");
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in sources(&src) {
        let inside = path.strip_prefix(&src).unwrap().with_extension("");
        let module = inside.iter().next().unwrap().to_str().unwrap().to_owned();
        let code = text.split("#[cfg(test)]").next().unwrap();
        let used = code.split("crate::").skip(1).filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
        let used = used.map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap().to_owned());
        arrows.entry(module.clone()).or_default().extend(used.filter(|other| *other != module));
    }
    arrows.remove("lib");
    arrows
}

#[test]
fn modules_depend_on_each_other_one_way() {
    let mut arrows = arrows();
    assert!(arrows["training"].contains("ops") && arrows["ops"].contains("builder"), "{arrows:?}");
    // Take away what depends on nothing that is left, until nothing is left.
    while let Some(module) = arrows.iter().find(|(_, used)| used.is_empty()).map(|(module, _)| module.clone()) {
        arrows.remove(&module);
        for used in arrows.values_mut() {
            used.remove(&module);
        }
    }
    assert!(arrows.is_empty(), "in a circle: {arrows:?}");
}
