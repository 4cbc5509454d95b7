//! `src/abi.rs` is what bindgen makes of `abi/abi.h`: committed, so that a plain build needs no libclang,
//! and compared here, so that it cannot drift. `PRECAST_BLESS=1` writes it anew.

use std::path::Path;

use bindgen::callbacks::{DeriveInfo, ParseCallbacks};

/// Parameter blocks travel as bytes.
#[derive(Debug)]
struct PlainData;

impl ParseCallbacks for PlainData {
    fn add_derives(&self, _info: &DeriveInfo<'_>) -> Vec<String> {
        vec!["bytemuck::Pod".into(), "bytemuck::Zeroable".into(), "PartialEq".into()]
    }
}

#[test]
fn committed_blocks_are_what_bindgen_makes_of_the_headers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let bindings = bindgen::Builder::default()
        .header(root.join("abi/abi.h").display().to_string())
        .allowlist_file(".*/abi/[a-z_]+\\.h")
        .allowlist_var("MASKED_TOKEN")
        .blocklist_type("__uint.*_t")
        .parse_callbacks(Box::new(PlainData))
        .derive_default(true)
        .layout_tests(true)
        .rustfmt_configuration_file(Some(root.join("../rustfmt.toml").canonicalize().expect("rustfmt.toml is there")))
        .disable_header_comment()
        .generate_comments(false)
        .raw_line("//! Parameter blocks: the Rust twins of the C structs in `kernels/abi`, made by bindgen.")
        .raw_line("//!")
        .raw_line("//! Not edited by hand: `PRECAST_BLESS=1 cargo test -p precast-kernels --test abi` writes it anew.")
        .raw_line("#![allow(non_camel_case_types, missing_docs, clippy::undocumented_unsafe_blocks, clippy::unreadable_literal)]")
        .generate()
        .expect("abi.h parses")
        .to_string();
    let path = root.join("src/abi.rs");
    if std::env::var_os("PRECAST_BLESS").is_some() {
        std::fs::write(&path, &bindings).expect("src/abi.rs is writable");
    }
    let committed = std::fs::read_to_string(&path).expect("src/abi.rs is there");
    assert!(
        committed == bindings,
        "kernels/abi and src/abi.rs differ: PRECAST_BLESS=1 cargo test -p precast-kernels --test abi"
    );
}
