//! Parameter blocks: the Rust twins of the C structs in the headers of this folder.
//!
//! `kernels/src/abi.rs` is committed, so that a plain build needs no libclang. This package depends on nothing that is
//! made of it: where a header is wrong and the kernels do not compile, it still does.

use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use bindgen::callbacks::{DeriveInfo, ParseCallbacks};

/// Parameter blocks travel as bytes.
#[derive(Debug)]
struct PlainData;

impl ParseCallbacks for PlainData {
    fn add_derives(&self, _info: &DeriveInfo<'_>) -> Vec<String> {
        vec!["bytemuck::Pod".into(), "bytemuck::Zeroable".into(), "PartialEq".into()]
    }
}

/// The Rust twins of every struct of the headers in a folder.
///
/// # Errors
/// Where there is no libclang, a header does not parse, or a struct has bytes that belong to no field: they would be
/// uninitialized in what is launched.
pub fn generate(headers: &Path, rustfmt: &Path) -> Result<String> {
    let mut names = Vec::new();
    for entry in headers.read_dir().with_context(|| format!("cannot read {}", headers.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(name.ends_with(".h").then_some(name));
    }
    names.sort_unstable();
    let all: String = names.iter().map(|name| format!("#include \"{name}\"\n")).collect();
    let folder = headers.canonicalize().with_context(|| format!("cannot read {}", headers.display()))?;
    let builder = bindgen::Builder::default()
        .header_contents("all.h", &all)
        .clang_arg(format!("-I{}", folder.display()))
        .clang_arg("-DINT8")
        .allowlist_file(format!("{}/[a-z0-9_]+\\.h", folder.display()))
        .allowlist_var("MASKED_TOKEN")
        .blocklist_type("__uint.*_t")
        .parse_callbacks(Box::new(PlainData))
        .derive_default(true)
        .explicit_padding(true)
        .layout_tests(true)
        .rustfmt_configuration_file(Some(rustfmt.canonicalize().context("rustfmt.toml is not there")?))
        .disable_header_comment()
        .generate_comments(false)
        .raw_line("//! Parameter blocks: the Rust twins of the C structs in `kernels/abi`, made by bindgen.")
        .raw_line("//!")
        .raw_line("//! Not edited by hand: `cargo xtask abi` regenerates it, and so does `cargo run -p precast-abi`.")
        .raw_line(concat!(
            "#![allow(non_camel_case_types, missing_docs, clippy::undocumented_unsafe_blocks, ",
            "clippy::unreadable_literal)]"
        ));
    // It panics where there is no libclang.
    let bindings = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| builder.generate()));
    let bindings = bindings.map_err(|_| anyhow!("no libclang: `cargo xtask abi` installs it and runs this program"))?;
    let bindings = bindings.context("the headers do not parse")?.to_string();
    let padded = padded(&bindings);
    ensure!(
        padded.is_empty(),
        "implicit padding in {}: order the fields by size, addresses first, or declare the rest as `uint32_t reserved`",
        padded.join(", ")
    );
    Ok(bindings)
}

/// The structs that bindgen had to pad.
fn padded(bindings: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for block in bindings.split("pub struct ").skip(1) {
        let body = block.split("\n}").next().unwrap_or_default();
        if body.contains("__bindgen_padding") {
            found.extend(block.split(' ').next());
        }
    }
    found
}
