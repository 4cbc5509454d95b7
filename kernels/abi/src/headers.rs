//! Structs and constants of the headers, as libclang reads them.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, ensure};
use quote::ToTokens;
use syn::{Attribute, Expr, ExprLit, Fields, Item, Lit, Meta};

use crate::declaration::{Field, Struct, declares};

/// All that the headers say.
#[derive(Debug, Default)]
pub(crate) struct Headers {
    /// Names and values.
    pub constants: Vec<(String, String)>,
    pub structs: Vec<Struct>,
}

/// Reads the headers of these folders, in the order of their names.
///
/// # Errors
/// No libclang, a header that does not parse, or a struct with bytes that belong to no field: they would be
/// uninitialized in what is launched.
pub(crate) fn read(folders: &[PathBuf]) -> Result<Headers> {
    let all = includes(folders)?;
    let mut headers = parse(&bindings(folders, &all, Blocks::Whole)?)?;
    let short = parse(&bindings(folders, &all, Blocks::WithoutInt8)?)?;
    for whole in &mut headers.structs {
        let short = short.structs.iter().find(|short| short.name == whole.name);
        let short =
            short.with_context(|| format!("{} stands behind `#ifdef INT8`: fields may, no block", whole.name))?;
        whole.tail = (short.fields.len() < whole.fields.len()).then_some(short.fields.len());
    }
    Ok(headers)
}

/// Returns a line for each header of the folders, in the order of their names, which differ.
fn includes(folders: &[PathBuf]) -> Result<String> {
    let mut names = Vec::new();
    for folder in folders {
        let read = || format!("cannot read {}", folder.display());
        for entry in folder.read_dir().with_context(read)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            names.extend(name.ends_with(".h").then_some(name));
        }
    }
    names.sort_unstable();
    let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
    ensure!(twice.is_none(), "two headers are called {}", twice.map_or("", |pair| &pair[0]));
    Ok(names.iter().map(|name| format!("#include \"{name}\"\n")).collect())
}

/// Fields that blocks have.
#[derive(Clone, Copy, PartialEq)]
enum Blocks {
    Whole,
    /// Without those that kernels of int8 alone are given.
    WithoutInt8,
}

/// Lets bindgen translate the headers.
fn bindings(folders: &[PathBuf], all: &str, blocks: Blocks) -> Result<String> {
    let mut builder = bindgen::Builder::default()
        .header_contents("all.h", all)
        .blocklist_type("__uint.*_t|address|tensor_map")
        .clang_args((blocks == Blocks::Whole).then_some("-DINT8"))
        .clang_arg("-fparse-all-comments")
        .clang_arg(concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../core/cuda"))
        .explicit_padding(true)
        .layout_tests(cfg!(test))
        .formatter(bindgen::Formatter::None);
    for folder in folders {
        let folder = folder.canonicalize().with_context(|| format!("cannot read {}", folder.display()))?;
        builder = builder
            .clang_arg(format!("-I{}", folder.display()))
            .allowlist_file(format!("{}/[a-z0-9_]+\\.h", folder.display()));
    }
    // It panics where there is no libclang.
    let bindings = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| builder.generate()));
    let bindings = bindings.map_err(|_| anyhow!("no libclang: `cargo xtask abi` installs it and runs this program"))?;
    Ok(bindings.context("the headers do not parse")?.to_string())
}

fn parse(bindings: &str) -> Result<Headers> {
    let mut headers = Headers::default();
    for item in syn::parse_file(bindings).context("bindgen's output does not parse")?.items {
        match item {
            Item::Const(item) if item.ident != "_" => {
                headers.constants.push((item.ident.to_string(), item.expr.to_token_stream().to_string()));
            }
            Item::Struct(item) => {
                let Fields::Named(fields) = item.fields else { continue };
                let fields = fields.named.into_iter().map(|field| Field {
                    name: field.ident.map(|ident| ident.to_string()).unwrap_or_default(),
                    kind: field.ty.to_token_stream().to_string().replace("usize", "").replace(" ;", ";"),
                    doc: doc(&field.attrs).join(" "),
                });
                let (name, fields): (String, Vec<Field>) = (item.ident.to_string(), fields.collect());
                ensure!(
                    !fields.iter().any(|field| field.name.starts_with("__bindgen_padding")),
                    "implicit padding in {name}: order the fields by size, addresses first, or declare the rest as \
                     `uint32_t reserved`"
                );
                headers.structs.push(Struct {
                    name,
                    doc: doc(&item.attrs),
                    fields,
                    align: align(&item.attrs),
                    tail: None,
                });
            }
            _ => {}
        }
    }
    Ok(headers)
}

/// Paragraphs of a comment, each a line, without the `<` of one behind its field. Those that declare something begin one.
fn doc(attributes: &[Attribute]) -> Vec<String> {
    let texts = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    let mut paragraphs = vec![String::new()];
    for line in texts.collect::<Vec<_>>().join("\n").lines() {
        let line = line.trim().trim_start_matches('<').trim();
        if line.is_empty() || declares(line) {
            paragraphs.push(String::new());
        }
        if let Some(last) = paragraphs.last_mut() {
            *last = [last, line].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
        }
    }
    paragraphs.retain(|paragraph| !paragraph.is_empty());
    paragraphs
}

/// The alignment that a struct asks for, in bytes.
fn align(attributes: &[Attribute]) -> Option<u64> {
    let text = attributes.iter().map(|attribute| attribute.to_token_stream().to_string());
    let found = text
        .filter_map(|text| text.split_once("align (").or(text.split_once("align(")).map(|(_, rest)| rest.to_owned()));
    found.filter_map(|rest| rest.split_once(')')?.0.trim().trim_end_matches("u64").parse().ok()).next()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;

    /// Returns the numbers of lines like `["Offset of field: block::field"][offset_of!(block, field) - 16usize]`, by the text in
    /// quotes.
    fn said(bindings: &str) -> BTreeMap<String, u64> {
        let rows = bindings.split("[\"").skip(1).filter_map(|row| {
            let (name, rest) = row.split_once("\"]")?;
            let number = rest.split_once("usize]")?.0.rsplit_once("- ")?.1;
            Some((name.to_owned(), number.parse().ok()?))
        });
        rows.collect()
    }

    /// Bytes of a Rust type.
    fn bytes(kind: &str, structs: &BTreeMap<String, u64>) -> u64 {
        match kind {
            "u32" | "f32" => 4,
            "u64" | "address" => 8,
            _ => match kind.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')?.split_once("; ")) {
                Some((element, count)) => bytes(element, structs) * count.parse::<u64>().unwrap(),
                None => structs[kind],
            },
        }
    }

    #[test]
    fn sizes_and_offsets_are_those_of_clang() {
        let folders = crate::folders(&Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("")).unwrap();
        let headers = read(&folders).unwrap();
        assert!(headers.structs.len() > 40, "{}", headers.structs.len());
        let includes = includes(&folders).unwrap();
        let clang = said(&bindings(&folders, &includes, Blocks::Whole).unwrap());
        let mut sizes = BTreeMap::from([("tensor_map".to_owned(), 128)]);
        for found in &headers.structs {
            let mut offset = 0;
            for field in &found.fields {
                assert_eq!(clang[&format!("Offset of field: {}::{}", found.name, field.name)], offset, "{field:?}");
                offset += bytes(&field.kind, &sizes);
            }
            assert_eq!(clang[&format!("Size of {}", found.name)], offset, "{}", found.name);
            sizes.insert(found.name.clone(), offset);
        }
        let tail = |name: &str| headers.structs.iter().find(|found| found.name == name).unwrap().tail;
        let gemm = headers.structs.iter().find(|found| found.name == "gemm_fwd_params").unwrap();
        assert_eq!(gemm.fields[tail("gemm_fwd_params").unwrap()].name, "x_scale");
        assert_eq!(tail("gemm_dgrad_params"), None);
    }
}
