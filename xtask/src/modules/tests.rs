//! Rules for the modules of every package, and of single ones.

use std::collections::BTreeSet;
use std::fs;

use super::check::{TRAINER, circles, folders, pictures};
use super::graph::{Arrows, ModulePath};
use super::{members, sources};

/// The trainer's floors, from the ground up.
const FLOORS: [&str; 7] = ["base", "options", "ranks", "device", "run", "programs", "cli"];

/// Returns the arrows between modules in the root of a package.
fn arrows(package: &str) -> Arrows {
    let members = members().unwrap();
    let member = members.iter().find(|member| member.name == package).unwrap();
    folders(member).unwrap().remove(&ModulePath::new()).unwrap()
}

#[test]
fn modules_use_each_other_one_way() {
    let members = members().unwrap();
    let plan = arrows("precast-plan");
    assert!(members.len() >= 12 && plan["training"].contains("ops") && plan["ops"].contains("weights"), "{plan:?}");
    let found = circles(&members).unwrap();
    assert_eq!(found, [""; 0], "modules that use each other");
}

#[test]
fn a_floor_of_the_trainer_uses_those_below_it() {
    let arrows = arrows(TRAINER);
    let modules: BTreeSet<&str> = arrows.keys().map(String::as_str).collect();
    let expected: BTreeSet<&str> = FLOORS.into_iter().collect();
    assert_eq!(modules, expected, "a module of the trainer stands on a floor");
    for (height, floor) in FLOORS.iter().enumerate() {
        let used = &arrows[*floor];
        // `base` and `options` stand on other packages alone.
        assert!(height < 2 || FLOORS[..height].iter().any(|below| used.contains(*below)), "{floor} uses nothing");
        let up: Vec<&&str> = FLOORS[height + 1..].iter().filter(|above| used.contains(**above)).collect();
        assert!(up.is_empty(), "{floor} uses {up:?} above it");
    }
}

#[test]
fn families_of_kernels_know_neither_keys_nor_the_registry() {
    let (arrows, root) = (arrows("precast-kernels"), crate::run::root().join("kernels/src"));
    let families: Vec<&String> = arrows.keys().filter(|module| arrows[*module].contains("abi")).collect();
    let families: Vec<&&String> = families.iter().filter(|family| root.join(family).is_dir()).collect();
    assert!(families.len() >= 12, "{families:?}");
    for path in families.iter().flat_map(|family| sources(&root.join(family)).unwrap()) {
        let text = fs::read_to_string(&path).unwrap();
        let shipped = text.split("#[cfg(test)]").next().unwrap_or_default();
        let code = shipped.lines().filter(|line| !line.trim_start().starts_with("//"));
        let mut words = code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
        let wrong = words.find(|word| ["Key", "KeyVariant", "Registry", "KERNELS", "Erased", "Table"].contains(word));
        assert_eq!(wrong, None, "{}", path.display());
    }
}

/// True for names of parameter blocks and of their arguments: `gemm_fwd_params`, `GemmFwdArgs`.
fn names_a_block(text: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| word.len() > 7 && ["_params", "Args"].iter().any(|end| word.ends_with(end)))
}

#[test]
fn operations_alone_fill_parameter_blocks() {
    let mut filled = 0;
    for member in members().unwrap().iter().filter(|member| member.name != "precast-kernels") {
        for path in member.roots.iter().flat_map(|root| sources(root).unwrap()) {
            // Types of `abi` mark parameter blocks.
            let text = fs::read_to_string(&path).unwrap();
            let fills = text.contains("abi::") && names_a_block(&text);
            let is_op = path.to_string_lossy().contains("/kernels/plan/src/ops/");
            assert!(!fills || is_op, "{} fills a parameter block", path.display());
            filled += usize::from(fills);
        }
    }
    assert!(filled >= 8, "{filled} files of operations: this test looks for the wrong thing");
}

#[test]
fn the_drawings_show_what_the_modules_use() {
    for (path, picture) in pictures(&members().unwrap()).unwrap() {
        let drawn = fs::read_to_string(crate::run::root().join(&path)).unwrap_or_default();
        assert!(drawn == picture, "{}: `cargo xtask modules` redraws it", path.display());
    }
}
