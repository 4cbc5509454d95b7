//! Structs and constants of the headers, as libclang reads them.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use precast_core::source::HEADERS;
use precast_system::includes::Included;
use quote::ToTokens;
use syn::{Attribute, Expr, ExprLit, Fields, Item, Lit, Meta};

use crate::declaration::{Field, Struct, declares};
use crate::expression::tokens;

/// All that the headers say.
#[derive(Debug, Default)]
pub(crate) struct Headers {
    /// Names and values.
    pub constants: Vec<(String, String)>,
    pub structs: Vec<Struct>,
}

/// Reads headers; those of `precast-core` lie in `scratch` meanwhile.
///
/// # Errors
/// No libclang, a header that does not parse, or a struct with bytes that belong to no field: they would be
/// uninitialized in what is launched.
pub(crate) fn read(files: &[Included], scratch: &Path) -> Result<Headers> {
    let mut headers = parse(&bindings(files, scratch, Blocks::Whole)?)?;
    let short = parse(&bindings(files, scratch, Blocks::WithoutTails)?)?;
    for whole in &mut headers.structs {
        place(whole, files);
        refuse(whole)?;
        let short = short.structs.iter().find(|short| short.name == whole.name);
        let short = short.with_context(|| format!("{} stands behind an `#ifdef`: fields may, no block", whole.name))?;
        whole.tail = (short.fields.len() < whole.fields.len()).then_some(short.fields.len());
    }
    Ok(headers)
}

/// Says of a struct and its fields where they are declared, as `path:line`.
fn place(found: &mut Struct, files: &[Included]) {
    let starts = |line: &str| tokens(line).windows(3).any(|words| words[0] == "struct" && words[2] == found.name);
    let at = files.iter().find_map(|file| Some((file, file.text.lines().position(starts)?)));
    let Some((file, first)) = at else { return };
    let place = |line: usize| format!("{}:{}", file.path.display(), line + 1);
    found.place = place(first);
    let block = || file.text.lines().enumerate().skip(first).take_while(|(_, line)| !line.starts_with('}'));
    for field in &mut found.fields {
        let code = |line: &str| line.split("//").next().is_some_and(|code| tokens(code).contains(&&*field.name));
        field.place = place(block().find(|(_, line)| code(line)).map_or(first, |(line, _)| line));
    }
}

/// Refuses a struct that cannot be sent to a device.
fn refuse(found: &Struct) -> Result<()> {
    let Struct { name, place, .. } = found;
    ensure!(
        !found.fields.iter().any(|field| field.name.starts_with("__bindgen_padding")),
        "{place}: implicit padding in {name}: order the fields by size, addresses first, or declare the rest as \
         `uint32_t reserved`"
    );
    let pointer = found.fields.iter().find(|field| field.kind.starts_with('*'));
    match pointer {
        Some(field) => bail!(
            "{}: {name}.{} is a pointer: an operand is `address {1}`, and its dtype stands in its comment",
            field.place,
            field.name
        ),
        None => Ok(()),
    }
}

/// Fields that blocks have.
#[derive(Clone, Copy, PartialEq)]
enum Blocks {
    Whole,
    /// Without those that some kernels alone are given.
    WithoutTails,
}

/// Macros that let a block end in fields for some kernels: of int8, and of moments in another format than f32.
const TAILS: [&str; 2] = ["INT8", "KEY_MOMENTS"];

/// Lets bindgen translate the headers.
fn bindings(files: &[Included], scratch: &Path, blocks: Blocks) -> Result<String> {
    for (name, text) in HEADERS {
        std::fs::write(scratch.join(name), text)?;
    }
    let all: String = files.iter().map(|file| format!("#include \"{}\"\n", file.name)).collect();
    let mut builder = bindgen::Builder::default()
        .header_contents("all.h", &all)
        .blocklist_type("__uint.*_t|address|tensor_map")
        .clang_args(TAILS.iter().filter(|_| blocks == Blocks::Whole).map(|name| format!("-D{name}")))
        .clang_arg("-fparse-all-comments")
        .explicit_padding(true)
        .layout_tests(cfg!(test))
        .formatter(bindgen::Formatter::None);
    let folders: BTreeSet<&Path> = files.iter().filter_map(|file| file.path.parent()).collect();
    for folder in folders {
        let folder = folder.canonicalize().with_context(|| format!("cannot read {}", folder.display()))?;
        let folder = folder.to_str().with_context(|| format!("{} is not UTF-8", folder.display()))?;
        builder = builder.clang_arg(format!("-I{folder}")).allowlist_file(format!("{}/[^/]+\\.h", literal(folder)));
    }
    builder = builder.clang_arg(format!("-I{}", scratch.display()));
    // It panics where there is no libclang.
    let bindings = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| builder.generate()));
    let bindings = bindings.map_err(|_| anyhow!("no libclang: {} names its folder", crate::libclang::VARIABLE))?;
    Ok(bindings.context("the headers do not parse")?.to_string())
}

/// A regular expression of this text alone.
fn literal(text: &str) -> String {
    let is_plain = |char: char| char.is_alphanumeric() || "/_- ".contains(char);
    text.chars().flat_map(|char| (!is_plain(char)).then_some('\\').into_iter().chain([char])).collect()
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
                    place: String::new(),
                });
                let (name, fields): (String, Vec<Field>) = (item.ident.to_string(), fields.collect());
                headers.structs.push(Struct {
                    name,
                    place: String::from("a header"),
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

/// Paragraphs of a comment, each a line, without the `<` of one behind its field. Those that declare something begin
/// one.
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

    use super::*;

    /// Returns the numbers of lines like `["Offset of field: block::field"][offset_of!(block, field) - 16usize]`, by
    /// the text in quotes.
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
        let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("");
        let folders = precast_system::generated::folders(&kernels.join("src")).unwrap();
        let (files, scratch) = (precast_system::generated::headers(&folders).unwrap(), tempfile::tempdir().unwrap());
        let headers = read(&files, scratch.path()).unwrap();
        assert!(headers.structs.len() > 40, "{}", headers.structs.len());
        let clang = said(&bindings(&files, scratch.path(), Blocks::Whole).unwrap());
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
