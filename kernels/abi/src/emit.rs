//! Rust of the declarations: parameter blocks, arguments, keys with their operands, and the list of all kernels.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anyhow::{Context, Result, bail, ensure};

use crate::declaration::{
    BlockComment, Field, Kernel, Operand, OperandExtent, Struct, TYPES, camel, check_numbers, top_level,
};
use crate::expression::{Names, dtype, grouped};
use crate::headers::Headers;

/// Imports of the file.
const IMPORTS: &str = "\
#![cfg_attr(rustfmt, rustfmt_skip)]
#![allow(clippy::nonminimal_bool, dead_code, missing_docs, non_camel_case_types, unused_imports)]

pub use precast_core::abi::{address, tensor_map};
use precast_core::{Block, Content, Dtype, Format, Scalar, operations, parameters};
";

/// Writes all of it, but for what stands in the head.
///
/// # Errors
/// Comments that do not declare a kernel or an operand, with file, line, struct, field and text; two kernels of one
/// name; none.
pub(crate) fn body(Headers { constants, structs }: &Headers) -> Result<String> {
    let (mut out, mut types) = (String::new(), BTreeSet::new());
    for (name, value) in constants {
        writeln!(out, "\npub const {name}: u32 = {value};")?;
    }
    let mut kernels: BTreeMap<String, (String, &Struct)> = BTreeMap::new();
    for block in structs {
        let said = block.block()?;
        out.push_str(&declared(block, &said, structs)?);
        for kernel in &said.kernels {
            types.extend(kernel.fields.iter().map(|(_, kind)| kind.clone()));
            // Of two names one type may be made, too: `a.b_c` and `a_b.c`.
            let key = kernel.key();
            if let Some((op, (_, other))) = kernels.iter().find(|(_, (name, _))| *name == key) {
                bail!(
                    "{}: {}: `{}` is a kernel already: `{op}` of {}",
                    block.place,
                    block.name,
                    kernel.op,
                    other.place
                );
            }
            kernels.insert(kernel.op.clone(), (key, block));
        }
    }
    ensure!(!kernels.is_empty(), "no header declares a kernel: above a block stands `/// op {{ field: Type }}: text`");
    let keys: Vec<String> = kernels.into_values().map(|(key, _)| key).collect();
    let own = types.iter().filter(|kind| !TYPES.contains(&&***kind)).map(|kind| format!("use super::{kind};\n"));
    let own: String = own.collect();
    Ok(IMPORTS.to_owned() + &own + &out + "\noperations! {\n" + &lines("    ", &keys.join(", ")) + "}\n")
}

/// A block, and the kernels that take it.
fn declared(block: &Struct, said: &BlockComment, structs: &[Struct]) -> Result<String> {
    let mut out = String::from("\nparameters! {\n");
    let of: Vec<String> = said.kernels.iter().map(|kernel| format!("`{}`", kernel.op)).collect();
    if !of.is_empty() {
        writeln!(out, "    /// Parameter block of {}.", of.join(" and "))?;
    }
    out.extend(said.doc.iter().map(|paragraph| lines("    /// ", paragraph)));
    out.extend(block.align.map(|align| format!("    #[repr(align({align}))]\n")));
    let [first, others @ ..] = &said.kernels[..] else {
        writeln!(out, "    pub struct {} {{", block.name)?;
        for field in &block.fields {
            let checked = if block.as_operand().is_some() { format!(" = {}", scalar(field)?) } else { String::new() };
            writeln!(out, "{}        {}: {}{checked};", comment(field), field.name, field.kind)?;
        }
        return Ok(out + "    }\n}\n");
    };
    writeln!(out, "    pub struct {}, {}Args {{", block.name, camel(block.name.trim_end_matches("_params")))?;
    let (fields, launch) = launch(block, said, first, structs)?;
    for other in others {
        let same = self::launch(block, said, other, structs)? == (fields.clone(), launch.clone());
        ensure!(same, "{}: {}: {} and {} read it differently", block.place, block.name, first.op, other.op);
    }
    out = out + &fields + "    }\n" + &launch;
    for kernel in &said.kernels {
        let fields: Vec<String> = kernel.fields.iter().map(|(name, kind)| format!("{name}: {kind}")).collect();
        let fields = if fields.is_empty() { String::new() } else { format!(" {} ", fields.join(", ")) };
        out.push_str(&lines("    /// ", &kernel.doc));
        writeln!(out, "    kernel {} = \"{}\" {{{fields}}};", kernel.key(), kernel.op)?;
    }
    Ok(out + "}\n")
}

/// The fields of a block as a kernel sees them, and what else it says of a launch.
fn launch(block: &Struct, said: &BlockComment, kernel: &Kernel, structs: &[Struct]) -> Result<(String, String)> {
    let (names, operands) = (block.names(kernel), block.operands()?);
    let at = || format!("{}: {} of {}", block.place, kernel.op, block.name);
    let mut fields = String::new();
    for field in &block.fields {
        let (name, kind) = (&field.name, &field.kind);
        fields.push_str(&comment(field));
        match operands.iter().find(|(own, _)| own.name == *name) {
            Some((_, operand)) => {
                let at = || format!("{}: {}: {}.{name}: `{}`", field.place, kernel.op, block.name, field.doc);
                fields.push_str(&lines("        ", &used(block, field, operand, &names, structs).with_context(at)?));
            }
            None if field.is_reserved() => writeln!(fields, "        internal {name}({kind});")?,
            None => writeln!(fields, "        scalar {name}({kind});")?,
        }
    }
    let mut said_of = Vec::new();
    if let Some(tail) = block.tail.map(|tail| &block.fields[tail]) {
        let condition = match operands.iter().find(|(field, _)| field.name == tail.name) {
            Some((_, first)) => first.uses.first().and_then(|first| first.condition.as_deref()),
            None => tail.doc.strip_prefix("if ").and_then(|doc| top_level(doc, ": ").next()),
        };
        let condition = condition.context("what stands behind an `#ifdef` has a condition");
        let condition = condition.and_then(|condition| names.value(condition)).with_context(at)?;
        said_of.push(format!("before {} unless {condition};", tail.name));
    }
    let mut counts: Vec<&str> = operands.iter().flat_map(|(_, operand)| operand.shape()).collect();
    for (name, expression) in [("flops", &said.flops), ("bytes", &said.bytes)] {
        if let Some(expression) = expression {
            let count = names.count(expression).with_context(|| format!("{}: {name}", at()))?;
            said_of.push(format!("{name} = {count};"));
            counts.push(expression);
        }
    }
    let counts = format!("|self, p| [{}]", names.variables(counts.into_iter()).join(", "));
    let inside: String = said_of.iter().map(|said| lines("        ", said)).collect();
    let end = if inside.is_empty() { " {}" } else { " {" };
    let close = if inside.is_empty() { "" } else { "    }\n" };
    Ok((fields, lines("    ", &(counts + end)) + &inside + close))
}

/// The comment of a field.
fn comment(field: &Field) -> String {
    lines("        /// ", &quoted(&field.doc))
}

/// A text in lines that fit, behind an indent.
fn lines(indent: &str, text: &str) -> String {
    const COLUMNS: usize = 118;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < COLUMNS => *line = format!("{line} {word}"),
            _ => lines.push(format!("{indent}{word}")),
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// A comment whose shape reads as code.
fn quoted(doc: &str) -> String {
    match doc.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((shape, rest)) => format!("`[{shape}]`{rest}"),
        None => doc.to_owned(),
    }
}

/// A field of a block of scalars as a checked launch gets it: of a range, below a bound, or this number, which is 0
/// where its comment begins with none.
fn scalar(field: &Field) -> Result<String> {
    let (said, _) = field.doc.split_once(':').unwrap_or((&field.doc, ""));
    let inside = |name: &str| said.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
    let is_number = |text: &str| text.parse::<f64>().is_ok_and(f64::is_finite);
    for (name, arguments) in ["uniform", "below"].into_iter().filter_map(|name| Some((name, inside(name)?))) {
        let arguments: Vec<&str> = arguments.split(", ").collect();
        check_numbers(name, &arguments).with_context(|| format!("{}: {}: `{said}`", field.place, field.name))?;
    }
    Ok(match (field.kind.as_str(), inside("uniform"), inside("below")) {
        ("f32", Some(range), None) if range.split(", ").all(is_number) => format!("Scalar::Uniform({range})"),
        ("u32", None, Some(bound)) if bound.parse::<u32>().is_ok() => format!("Scalar::Below({bound})"),
        ("f32", None, None) => format!("Scalar::Float({})", if is_number(said) { said } else { "0.0" }),
        ("u32", None, None) => format!("Scalar::Word({})", if is_number(said) { said } else { "0" }),
        _ => bail!(
            "{}: {}: `{said}`: a float is `uniform(a, b)` or a number, a u32 is `below(n)` or a number",
            field.place,
            field.name
        ),
    })
}

/// An operand: its accesses, of which a launch has one at most, its format, elements and content.
fn used(block: &Struct, field: &Field, operand: &Operand, names: &Names<'_>, structs: &[Struct]) -> Result<String> {
    let mut of = match &operand.place {
        OperandExtent::Step(step) => {
            let found = structs.iter().find(|other| other.name == *step);
            let Some(found) = found else { bail!("`{step}` is no struct of the headers") };
            let format = found.as_operand().with_context(|| format!("{step} does not say `operand: dtype`"))?;
            let format = dtype(format).with_context(|| format!("`{format}` is no dtype"))?;
            vec![format, found.fields.len().to_string(), format!("Content::Scalars({step}::CHECKED)")]
        }
        OperandExtent::Array { shape, format } => {
            let extents = shape.iter().map(|extent| names.count(extent)).collect::<Result<Vec<String>>>()?;
            let elems = match &extents[..] {
                [only] => only.clone(),
                _ => extents.iter().map(|extent| grouped(extent)).collect::<Vec<_>>().join(" * "),
            };
            vec![names.dtype(format)?, elems]
        }
    };
    if let Some(said) = &operand.content {
        let (kind, rest) = said.split_once('(').unwrap_or((said, ")"));
        let arguments = top_level(rest.strip_suffix(')').unwrap_or(rest), ", ").filter(|argument| !argument.is_empty());
        let is_operand = |name: &str| block.fields.iter().any(|field| field.is_operand() && field.name == name);
        let arguments: Result<Vec<String>> = arguments
            .map(|argument| if is_operand(argument) { Ok(format!("{argument:?}")) } else { names.value(argument) })
            .collect();
        let arguments = Some(arguments?.join(", ")).filter(|arguments| !arguments.is_empty());
        let arguments = arguments.map(|arguments| format!("({arguments})")).unwrap_or_default();
        of.truncate(2);
        of.push(format!("Content::{}{arguments}", camel(kind)));
    }
    let uses = operand.uses.iter().map(|usage| {
        let condition = usage.condition.as_ref().map(|condition| names.value(condition)).transpose()?;
        Ok(usage.access.to_owned() + &condition.map(|condition| format!(" if {condition}")).unwrap_or_default())
    });
    let uses = uses.collect::<Result<Vec<String>>>()?.join(", ");
    let word = if operand.is_optional() { "optional" } else { "operand" };
    Ok(format!("{word} {}({uses} => {});", field.name, of.join(", ")))
}
