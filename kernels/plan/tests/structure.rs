//! What holds of the sources of this package: one place fills parameter blocks, and modules go one way.

use std::path::PathBuf;

use crate::one_way::{self, Arrows, assert_one_way, sources};

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

/// Module y uses module x: by `crate::x`.
fn arrows() -> Arrows {
    one_way::arrows(&package().join("src"), |code| {
        let used = code.split("crate::").skip(1).filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
        used.map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap().to_owned()).collect()
    })
}

#[test]
fn modules_depend_on_each_other_one_way() {
    let arrows = arrows();
    assert!(arrows["training"].contains("ops") && arrows["ops"].contains("builder"), "{arrows:?}");
    assert_one_way(arrows);
}
