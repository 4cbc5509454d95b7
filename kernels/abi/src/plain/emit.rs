//! Rust of the entries: structs, files, and a declaration of each kernel.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::read::{Entry, Record, Records, Value};

/// A CUDA file that was read.
pub(super) struct File {
    /// Its path in the package.
    pub path: String,
    /// That path from the folder of the generated file.
    pub from_out: String,
    /// Headers by the names of their `#include`, with paths as above.
    pub headers: Vec<(String, String)>,
    /// Digest of its declarations and its headers'.
    pub interface: String,
    /// Instances of templates, as C++ spells them.
    pub instances: Vec<String>,
    pub entries: Vec<Entry>,
}

const IMPORTS: &str = "\
#![cfg_attr(rustfmt, rustfmt_skip)]
#![allow(dead_code, missing_docs, non_camel_case_types, non_snake_case, unused_imports)]

use precast_core::abi::address;
use precast_core::bytemuck::{NoUninit, Zeroable};
use precast_core::plain::{PlainKernel, PlainUnit};
use precast_core::{Source, plain, source};
";

/// Writes all of it, but for what stands in the head.
pub(super) fn body(files: &[File], records: &Records, out: &str, command: &str) -> String {
    let mut text = IMPORTS.to_owned();
    for (name, record) in records {
        text += &self::record(name, record);
    }
    for file in files {
        text += &unit(file, out, command);
        for entry in &file.entries {
            text += &kernel(file, entry);
        }
    }
    let all: Vec<String> =
        files.iter().flat_map(|file| &file.entries).map(|entry| format!("&{}", entry.rust().to_uppercase())).collect();
    text + &format!(
        "\n/// Every kernel, for `Kernels::new`.\npub const PLAIN: &[&PlainKernel] = &[{}];\n",
        all.join(", ")
    )
}

/// Returns a name that two statics would have.
pub(super) fn twice(files: &[File]) -> Option<String> {
    let entries = files.iter().flat_map(|file| &file.entries).map(|entry| entry.rust().to_uppercase());
    let mut seen = BTreeSet::from(["PLAIN".to_owned()]);
    files.iter().map(name_of).chain(entries).find(|name| !seen.insert(name.clone()))
}

/// A struct whose bytes all belong to a field.
fn record(name: &str, Record { fields, bytes, align }: &Record) -> String {
    let (mut lines, mut end) = (String::new(), 0);
    let padding = |lines: &mut String, end: usize, to: usize| {
        if to > end {
            *lines += &format!("    pub padding_{end}: [u8; {}],\n", to - end);
        }
    };
    for Value { name, c_type, rust_type, offset, bytes } in fields {
        padding(&mut lines, end, *offset);
        lines += &format!("    /// `{c_type}`\n    pub {}: {rust_type},\n", word(name));
        end = offset + bytes;
    }
    padding(&mut lines, end, *bytes);
    format!(
        "\n/// `{name}`, {bytes} bytes.\n#[derive(Clone, Copy, Debug, PartialEq, NoUninit, Zeroable)]\n\
         #[bytemuck(crate = \"precast_core::bytemuck\")]\n#[repr(C, align({align}))]\npub struct {name} {{\n{lines}}}\n"
    )
}

fn unit(file: &File, out: &str, command: &str) -> String {
    let headers: String =
        file.headers.iter().map(|(name, path)| format!("            ({name:?}, include_str!({path:?})),\n")).collect();
    let headers = if headers.is_empty() { "&[]".to_owned() } else { format!("&[\n{headers}        ]") };
    let mut entries: Vec<&str> = Vec::new();
    for name in file.entries.iter().map(Entry::base) {
        if !entries.contains(&name) {
            entries.push(name);
        }
    }
    format!(
        "\npub static {}: PlainUnit = PlainUnit {{\n    source: Source {{\n        path: {:?},\n        \
         text: include_str!({:?}),\n        headers: {headers},\n        common: &source::AS_IT_IS,\n    }},\n    \
         entries: &{entries:?},\n    instances: &{:?},\n    interface: {:?},\n    file: {out:?},\n    \
         command: {command:?},\n}};\n",
        name_of(file),
        file.path,
        file.from_out,
        file.instances,
        file.interface,
    )
}

fn kernel(file: &File, entry: &Entry) -> String {
    let Entry { name, symbol, parameters } = entry;
    let mut text = format!("\nplain! {{\n    /// `{name}` of `{}`.\n", file.path);
    for Value { name, c_type, .. } in parameters {
        let _ = writeln!(text, "    /// - `{name}`: `{c_type}`");
    }
    let given = parameters.iter().map(|value| format!("{}: {} = {}", word(&value.name), value.rust_type, value.offset));
    let given: Vec<String> = given.collect();
    text + &format!(
        "    {} {} = {name:?} as {symbol:?},\n    {}({})\n}}\n",
        name_of(file),
        entry.rust().to_uppercase(),
        word(&entry.rust()),
        given.join(", ")
    )
}

/// The static of a file.
fn name_of(file: &File) -> String {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    name.replace(|char: char| !char.is_ascii_alphanumeric(), "_").to_uppercase()
}

/// A name that is no word of Rust.
fn word(name: &str) -> String {
    match syn::parse_str::<syn::Ident>(name) {
        Ok(_) => name.to_owned(),
        Err(_) if ["self", "Self", "super", "crate", "_"].contains(&name) => format!("{name}_"),
        Err(_) => format!("r#{name}"),
    }
}
