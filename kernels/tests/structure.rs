//! What holds of the sources of this package: modules go one way, and what is above the families stays there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::one_way::{self, Arrows, assert_one_way};

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The names in `{a, b::{c}, d}` or the one name, after `crate::`.
fn named(rest: &str) -> Vec<&str> {
    match rest.strip_prefix('{') {
        Some(list) => words(list.split('}').next().unwrap()).collect(),
        None => words(rest).take(1).collect(),
    }
}

/// Module x uses module y: by `crate::y`, or by a name that `lib.rs` re-exports from y.
fn arrows() -> Arrows {
    let src = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src");
    let lib = std::fs::read_to_string(src.join("lib.rs")).unwrap();
    let modules: BTreeSet<&str> = lib
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'))
        .collect();
    let mut home: BTreeMap<&str, &str> = modules.iter().map(|module| (*module, *module)).collect();
    for line in lib.lines().filter_map(|line| line.strip_prefix("pub use ")) {
        let (module, names) = line.split_once("::").unwrap();
        home.extend(named(names).into_iter().map(|name| (name, module)));
    }
    // Macros stand at the root of the crate.
    home.extend([("key", "fields"), ("operand", "operand"), ("source", "source"), ("variant", "variant")]);
    one_way::arrows(&src, |code| {
        let used = code.split("crate::").skip(1).flat_map(named);
        // In a path, `key` is the module; in a list, the macro.
        let used = used.filter_map(|name| home.get(name).map(|module| (*module).to_owned()));
        let paths = code.split("crate::").skip(1).filter(|rest| rest.starts_with("key::"));
        used.chain(paths.map(|_| "key".to_owned())).collect()
    })
}

#[test]
fn modules_depend_on_each_other_one_way() {
    let arrows = arrows();
    assert!(arrows["registry"].contains("gemm") && arrows["gemm"].contains("build"), "{arrows:?}");
    assert_one_way(arrows);
}

#[test]
fn families_know_neither_keys_nor_the_registry() {
    let arrows = arrows();
    let families = arrows["registry"].iter().filter(|module| arrows[*module].contains("kernel"));
    let families: Vec<&String> = families.filter(|module| arrows[*module].contains("abi")).collect();
    assert!(families.len() >= 12, "{families:?}");
    for family in families {
        let above = ["key", "registry", "tuned", "erased", "check"];
        let wrong: Vec<&&str> = above.iter().filter(|module| arrows[family].contains(**module)).collect();
        assert!(wrong.is_empty(), "{family} uses {wrong:?}");
    }
}
