//! Whether the modules of a package use each other one way: for the tests of this package and of `kernels/plan`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The modules that each top-level module uses.
pub type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Every Rust source below a directory, with its text.
pub fn sources(directory: &Path) -> Vec<(PathBuf, String)> {
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

/// The arrows of a package. `used` lists the modules that a piece of code without comments and tests names.
pub fn arrows(src: &Path, used: impl Fn(&str) -> Vec<String>) -> Arrows {
    let mut arrows = Arrows::new();
    for (path, text) in sources(src) {
        let inside = path.strip_prefix(src).unwrap().with_extension("");
        let module = inside.iter().next().unwrap().to_str().unwrap().to_owned();
        let shipped = text.split("#[cfg(test)]").next().unwrap();
        let code: Vec<&str> = shipped.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let used = used(&code.join("\n")).into_iter().filter(|other| *other != module);
        arrows.entry(module.clone()).or_default().extend(used);
    }
    arrows.remove("lib");
    arrows
}

/// Takes away what depends on nothing that is left, until nothing is left.
pub fn assert_one_way(mut arrows: Arrows) {
    while let Some(module) = arrows.iter().find(|(_, used)| used.is_empty()).map(|(module, _)| module.clone()) {
        arrows.remove(&module);
        for used in arrows.values_mut() {
            used.remove(&module);
        }
    }
    assert!(arrows.is_empty(), "modules depend on each other in a circle: {arrows:?}");
}
