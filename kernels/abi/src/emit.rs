//! Rust of the declarations: parameter blocks, arguments, keys with their operands, and the list of all kernels.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anyhow::{Context, Result, bail, ensure};

use crate::declaration::{BlockComment, Field, Kernel, Operand, OperandExtent, Struct, TYPES, camel, top_level};
use crate::expression::{Names, dtype, grouped, tokens};
use crate::headers::Headers;

/// Imports of the file.
const IMPORTS: &str = "\
#![allow(dead_code, missing_docs, non_camel_case_types, unused_imports)]

use std::mem::offset_of;

pub use precast_core::abi::{address, tensor_map};
use precast_core::bytemuck::{Pod, Zeroable};
use precast_core::{Block, Content, Dtype, Format, Kernel, Op, Operand, Scalar, arguments, key, operand};
";

/// Writes all of it, but for what stands in the head.
///
/// # Errors
/// Comments that do not declare a kernel or an operand, with file, line, struct, field and text; two kernels of one
/// name; none.
pub(crate) fn body(Headers { constants, structs }: &Headers) -> Result<String> {
    let mut out = IMPORTS.to_owned();
    out.push_str(&own_types(structs)?);
    for (name, value) in constants {
        writeln!(out, "\npub const {name}: u32 = {value};")?;
    }
    let mut kernels: BTreeMap<String, (String, &Struct)> = BTreeMap::new();
    for block in structs {
        let said = block.block()?;
        out.push_str(&pod(block, &said)?);
        if said.kernels.is_empty() {
            continue;
        }
        out.push_str(&arguments(block)?);
        for kernel in &said.kernels {
            out.push_str(&implementation(block, &said, kernel, structs)?);
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
    out.push_str("\n/// Every kernel, in the order of operations.\npub const OPS: &[Op] = &[\n");
    for (key, _) in kernels.values() {
        writeln!(out, "Op::of::<{key}>(),")?;
    }
    out.push_str("];\n");
    Ok(out)
}

/// Imports the types of key fields that are the program's own.
fn own_types(structs: &[Struct]) -> Result<String> {
    let mut types = BTreeSet::new();
    for block in structs {
        types.extend(block.block()?.kernels.into_iter().flat_map(|kernel| kernel.fields).map(|(_, kind)| kind));
    }
    types.retain(|kind| !TYPES.contains(&&**kind));
    let types: Vec<String> = types.into_iter().collect();
    Ok(if types.is_empty() { String::new() } else { format!("use super::{{{}}};\n", types.join(", ")) })
}

/// The block, as bytes.
fn pod(block: &Struct, said: &BlockComment) -> Result<String> {
    let mut out = String::from("\n");
    let of: Vec<String> = said.kernels.iter().map(|kernel| format!("`{}`", kernel.op)).collect();
    if !of.is_empty() {
        writeln!(out, "/// Parameter block of {}.", of.join(" and "))?;
    }
    for paragraph in &said.doc {
        out.push_str(&comment(paragraph));
    }
    let align = block.align.map(|align| format!(", align({align})")).unwrap_or_default();
    writeln!(out, "#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]")?;
    writeln!(out, "#[bytemuck(crate = \"precast_core::bytemuck\")]\n#[repr(C{align})]")?;
    writeln!(out, "pub struct {} {{", block.name)?;
    for field in &block.fields {
        out.push_str(&comment(&quoted(&field.doc)));
        writeln!(out, "pub {}: {},", field.name, field.kind)?;
    }
    out.push_str("}\n");
    Ok(out)
}

/// A doc comment, in lines that fit.
fn comment(text: &str) -> String {
    wrapped(text).iter().map(|line| format!("/// {line}\n")).collect()
}

/// The text in lines that fit.
fn wrapped(text: &str) -> Vec<String> {
    const COLUMNS: usize = 110;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < COLUMNS => *line = format!("{line} {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A comment whose shape reads as code.
fn quoted(doc: &str) -> String {
    match doc.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((shape, rest)) => format!("`[{shape}]`{rest}"),
        None => doc.to_owned(),
    }
}

/// Arguments of a launch, by name: operands, those that some launches do not have, scalars. What means nothing is not
/// there.
fn arguments(block: &Struct) -> Result<String> {
    let (mut operands, mut optional) = (Vec::new(), Vec::new());
    for (field, operand) in block.operands()? {
        if operand.is_optional() { &mut optional } else { &mut operands }.push(field.name.clone());
    }
    let scalars = block.fields.iter().filter(|field| !field.is_operand() && !field.is_reserved());
    let scalars: Vec<String> = scalars.map(|field| format!("{}: {}", field.name, field.kind)).collect();
    let name = format!("{}Args", camel(block.name.trim_end_matches("_params")));
    let mut out = format!("\narguments! {{\n    {name} of {} {{\n", block.name);
    for (group, fields) in [("operands", operands), ("optional", optional), ("scalars", scalars)] {
        for line in wrapped(&format!("{group} {{ {} }}", fields.join(", "))) {
            writeln!(out, "        {line}")?;
        }
    }
    out.push_str("    }\n}\n");
    Ok(out)
}

/// The key, and what a launch of it touches.
fn implementation(block: &Struct, said: &BlockComment, kernel: &Kernel, structs: &[Struct]) -> Result<String> {
    let (names, key) = (block.names(kernel), kernel.key());
    let fields: Vec<String> = kernel.fields.iter().map(|(name, kind)| format!("{name}: {kind}")).collect();
    let fields = fields.join(", ");
    let mut out = format!(
        "\nkey! {{\n{}    pub struct {key} = \"{}\" {{ {fields} }}\n}}\n\nimpl Kernel for {key} {{\n",
        comment(&kernel.doc).replace("///", "    ///"),
        kernel.op
    );
    writeln!(out, "type Params = {};\n", block.name)?;
    let at = || format!("{}: {} of {}", block.place, kernel.op, block.name);
    if let Some(tail) = block.tail {
        let fields = &block.fields[tail..];
        let (_, first) = block
            .operands()?
            .into_iter()
            .find(|(field, _)| field.name == fields[0].name)
            .context("the first field behind `#ifdef INT8` is no operand")
            .with_context(at)?;
        let condition = first.uses.first().and_then(|first| first.condition.as_deref());
        let condition = condition.context("what stands behind `#ifdef INT8` has a condition");
        let condition = condition.and_then(|condition| names.value(condition)).with_context(at)?;
        writeln!(
            out,
            "fn params_bytes(&self) -> usize {{\nif {condition} {{ size_of::<Self::Params>() }} else {{ \
             offset_of!(Self::Params, {}) }}\n}}\n",
            fields[0].name
        )?;
    }
    let mut operands = String::new();
    for (field, operand) in block.operands()? {
        let at = || format!("{}: {}: {}.{}: `{}`", field.place, kernel.op, block.name, field.name, field.doc);
        operands.push_str(&uses(block, field, &operand, &names, structs).with_context(at)?);
    }
    let declared = block.operands()?;
    let variables = names.variables(declared.iter().flat_map(|(_, operand)| operand.shape()));
    let body = format!("{variables}let operands = [\n{operands}];\noperands.into_iter().flatten().collect()");
    let p = |body: &str| if tokens(body).contains(&"p") { "p" } else { "_p" };
    writeln!(out, "fn operands(&self, {}: &Self::Params) -> Vec<Operand> {{\n{body}\n}}", p(&body))?;
    for (name, expression) in [("flops", &said.flops), ("bytes", &said.bytes)] {
        if let Some(expression) = expression {
            let count = names.count(expression).with_context(|| format!("{}: {name}", at()))?;
            let body = names.variables([expression.as_str()].into_iter()) + &count;
            writeln!(out, "\nfn {name}(&self, {}: &Self::Params) -> u64 {{\n{body}\n}}", p(&body))?;
        }
    }
    out.push_str("}\n");
    Ok(out)
}

/// A field of a block of scalars as a checked launch gets it: of a range, below a bound, or this number, which is 0
/// where its comment begins with none.
fn scalar(field: &Field) -> Result<String> {
    let (said, _) = field.doc.split_once(':').unwrap_or((&field.doc, ""));
    let inside = |name: &str| said.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
    let is_number = |text: &str| text.parse::<f64>().is_ok();
    Ok(match (field.kind.as_str(), inside("uniform"), inside("below")) {
        ("f32", Some(range), None) if range.split(", ").all(is_number) => format!("Scalar::Uniform({range})"),
        ("u32", None, Some(bound)) if is_number(bound) => format!("Scalar::Below({bound})"),
        ("f32", None, None) => format!("Scalar::Float({})", if is_number(said) { said } else { "0.0" }),
        ("u32", None, None) => format!("Scalar::Word({})", if is_number(said) { said } else { "0" }),
        _ => bail!(
            "{}: {}: `{said}`: a float is `uniform(a, b)` or a number, a u32 is `below(n)` or a number",
            field.place,
            field.name
        ),
    })
}

/// An operand once for each access, of which a launch has one at most.
fn uses(block: &Struct, field: &Field, operand: &Operand, names: &Names<'_>, structs: &[Struct]) -> Result<String> {
    let (format, elems, mut content) = match &operand.place {
        OperandExtent::Step(step) => {
            let found = structs.iter().find(|other| other.name == *step);
            let Some(step) = found else { bail!("`{step}` is no struct of the headers") };
            let format = step.as_operand().with_context(|| format!("{} does not say `operand: dtype`", step.name))?;
            let format = dtype(format).with_context(|| format!("`{format}` is no dtype"))?;
            let fields: Vec<String> = step.fields.iter().map(scalar).collect::<Result<_>>()?;
            (format.to_owned(), fields.len().to_string(), Some(format!("Scalars(&[{}])", fields.join(", "))))
        }
        OperandExtent::Array { shape, format } => {
            let extents: Result<Vec<String>> = shape.iter().map(|extent| names.count(extent)).collect();
            let extents = extents?;
            let elems: Vec<String> = match &extents[..] {
                [only] => vec![only.clone()],
                _ => extents.iter().map(|extent| grouped(extent)).collect(),
            };
            (names.dtype(format)?, elems.join(" * "), None)
        }
    };
    if let Some(said) = &operand.content {
        let (kind, rest) = said.split_once('(').unwrap_or((said, ")"));
        let arguments: Result<Vec<String>> = top_level(rest.strip_suffix(')').unwrap_or(rest), ", ")
            .filter(|argument| !argument.is_empty())
            .map(|argument| match block.fields.iter().any(|field| field.is_operand() && field.name == argument) {
                true => Ok(format!("{argument:?}")),
                false => names.value(argument),
            })
            .collect();
        let arguments = arguments?.join(", ");
        content = Some(if arguments.is_empty() { camel(kind) } else { format!("{}({arguments})", camel(kind)) });
    }
    let with = content.map(|content| format!(".with(Content::{content})")).unwrap_or_default();
    let mut out = String::new();
    for usage in &operand.uses {
        let made = format!("operand!({} Self::Params, {}: {format}, {elems}){with}", usage.access, field.name);
        match &usage.condition {
            Some(condition) => writeln!(out, "{}.then(|| {made}),", grouped(&names.value(condition)?))?,
            None => writeln!(out, "Some({made}),")?,
        }
    }
    Ok(out)
}
