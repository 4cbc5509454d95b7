//! Declarations of kernels: structs of the headers, with what their comments say of kernels and operands.

use anyhow::{Context, Result, bail, ensure};

use crate::expression::Names;

/// A struct of a header.
#[derive(Debug)]
pub(crate) struct Struct {
    pub name: String,
    /// Place of its declaration: `path:line`.
    pub place: String,
    /// The comment above it, a paragraph a line.
    pub doc: Vec<String>,
    pub fields: Vec<Field>,
    /// Alignment in bytes, where the header asks for one.
    pub align: Option<u64>,
    /// Index of the first field behind an `#ifdef`.
    pub tail: Option<usize>,
}

/// A field of a struct.
#[derive(Debug)]
pub(crate) struct Field {
    pub name: String,
    /// Its Rust type.
    pub kind: String,
    pub doc: String,
    /// Place of its declaration: `path:line`.
    pub place: String,
}

impl Field {
    /// True for an address.
    pub fn is_operand(&self) -> bool {
        self.kind == "address"
    }

    /// True if its bytes mean nothing to whoever launches: padding, and maps that the driver fills in.
    pub fn is_reserved(&self) -> bool {
        self.name.starts_with("reserved") || self.kind.contains("tensor_map")
    }
}

/// A kernel: a line `family.operation { field: Type }: text` above its parameter block.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// `family.operation`.
    pub op: String,
    /// Baked fields as (name, Rust type).
    pub fields: Vec<(String, String)>,
    pub doc: String,
}

impl Kernel {
    /// The name of its key type: `softmax.rows` gives `SoftmaxRows`.
    pub fn key(&self) -> String {
        camel(&self.op)
    }
}

/// Joins words between dots and underscores, each with a capital.
pub(crate) fn camel(name: &str) -> String {
    let words = name.split(['.', '_']).map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        format!("{}{rest}", first.to_uppercase())
    });
    words.collect()
}

/// True if a line above a struct declares something: a kernel, its cost, or the struct as an operand.
pub(crate) fn declares(line: &str) -> bool {
    ["flops: ", "bytes: ", "operand: "].iter().any(|word| line.starts_with(word)) || op(line).is_some()
}

/// The operation that a line declares: `family.operation {`.
fn op(line: &str) -> Option<(&str, &str)> {
    let (op, rest) = line.split_once(" {")?;
    let is_part = |char: char| char.is_ascii_alphanumeric() || "._".contains(char);
    (!op.is_empty() && op.chars().all(is_part)).then_some((op, rest))
}

/// Declarations above a parameter block.
#[derive(Debug, Default)]
pub(crate) struct BlockComment {
    pub kernels: Vec<Kernel>,
    /// Floating-point operations of a launch, where they bound its time.
    pub flops: Option<String>,
    /// Bytes that a launch moves, where it touches only a part of an operand.
    pub bytes: Option<String>,
    /// Everything else.
    pub doc: Vec<String>,
}

impl Struct {
    /// Reads the comment above a struct.
    ///
    /// # Errors
    /// Lines of kernels that do not parse.
    pub fn block(&self) -> Result<BlockComment> {
        let mut block = BlockComment::default();
        let operand = self.doc.iter().find(|line| line.starts_with("operand: "));
        for line in self.doc.iter().filter(|line| Some(*line) != operand) {
            if let Some(flops) = line.strip_prefix("flops: ") {
                block.flops = Some(flops.to_owned());
            } else if let Some(bytes) = line.strip_prefix("bytes: ") {
                block.bytes = Some(bytes.to_owned());
            } else if let Some(kernel) =
                kernel(line).with_context(|| format!("{}: {}: `{line}`", self.place, self.name))?
            {
                block.kernels.push(kernel);
            } else {
                block.doc.push(line.clone());
            }
        }
        let declared = block.kernels.first();
        let is_one = declared.is_none() || operand.is_none();
        ensure!(is_one, "{}: {}: a parameter block is no operand", self.place, self.name);
        Ok(block)
    }

    /// Returns the dtype of a struct that is an operand.
    pub fn as_operand(&self) -> Option<&str> {
        self.doc.iter().find_map(|line| line.strip_prefix("operand: "))
    }

    /// The names that expressions of a kernel of this block may use.
    pub fn names<'a>(&'a self, kernel: &'a Kernel) -> Names<'a> {
        let scalars = self.fields.iter().filter(|field| !field.is_operand() && ["u32", "u64"].contains(&&*field.kind));
        Names { scalars: scalars.map(|field| &*field.name).collect(), key: &kernel.fields }
    }

    /// Operands of the block, each field that is an address.
    ///
    /// # Errors
    /// Comments without shape, dtype or access.
    pub fn operands(&self) -> Result<Vec<(&Field, Operand)>> {
        let addresses = self.fields.iter().filter(|field| field.is_operand());
        addresses
            .map(|field| {
                let place = || format!("{}: {}.{}: `{}`", field.place, self.name, field.name, field.doc);
                Ok((field, Operand::parse(&field.doc).with_context(place)?))
            })
            .collect()
    }
}

/// Reads `family.operation { field: Type, .. }: text`; none where a line is something else.
fn kernel(line: &str) -> Result<Option<Kernel>> {
    let Some((op, rest)) = op(line) else { return Ok(None) };
    let (fields, doc) = rest.split_once('}').context("a kernel is `op { field: Type }: text`")?;
    let pairs = fields.split(',').map(str::trim).filter(|field| !field.is_empty());
    let fields: Result<Vec<(String, String)>> = pairs
        .map(|field| {
            let (name, kind) = field.split_once(':').context("a field is `name: Type`")?;
            let (name, kind) = (name.trim(), kind.trim());
            ensure!(is_name(name), "`{field}`: a field is `name: Type`");
            ensure!(
                is_type(kind),
                "`{field}`: a field is of {}, or of a type of the program, `Like`",
                TYPES.join(", ")
            );
            Ok((name.to_owned(), kind.to_owned()))
        })
        .collect();
    let fields = fields?;
    let is_sorted = fields.windows(2).all(|pair| pair[0].0 < pair[1].0);
    ensure!(is_sorted, "the fields of a key stand in alphabetical order, each once");
    let doc = doc.strip_prefix(": ").context("behind the fields of a kernel stands `: ` and its text")?;
    Ok(Some(Kernel { op: op.to_owned(), fields, doc: doc.to_owned() }))
}

/// Types of a key's fields that are not the program's own.
pub(crate) const TYPES: [&str; 6] = ["bool", "u32", "Option<u32>", "Block", "Dtype", "Format"];

/// True for a word as C and Rust have it.
fn is_name(text: &str) -> bool {
    let is_word = text.chars().all(|char| char.is_ascii_alphanumeric() || char == '_');
    is_word && text.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_')
}

/// True for the type of a field of a key.
fn is_type(text: &str) -> bool {
    TYPES.contains(&text) || is_name(text) && text.starts_with(|char: char| char.is_ascii_uppercase())
}

/// An operand as its comment says it: `[tokens, h] x, read if residual, uniform(0.5, 1.5): text`.
#[derive(Debug, PartialEq)]
pub(crate) struct Operand {
    pub place: OperandExtent,
    pub uses: Vec<Use>,
    /// Content of a checked launch, where it is not that of the dtype.
    pub content: Option<String>,
}

/// Elements of an operand, and their format.
#[derive(Debug, PartialEq)]
pub(crate) enum OperandExtent {
    /// Extents, and a dtype or a field of the key that is one.
    Array { shape: Vec<String>, format: String },
    /// A struct that the host shares with a step.
    Step(String),
}

/// One access, under a condition.
#[derive(Debug, PartialEq)]
pub(crate) struct Use {
    /// A variant of `Access`.
    pub access: &'static str,
    pub condition: Option<String>,
}

impl Operand {
    /// Returns its extents.
    pub fn shape(&self) -> impl Iterator<Item = &str> {
        let shape = match &self.place {
            OperandExtent::Array { shape, .. } => &shape[..],
            OperandExtent::Step(_) => &[],
        };
        shape.iter().map(String::as_str)
    }

    /// True if there are launches without it.
    pub fn is_optional(&self) -> bool {
        self.uses.len() == 1 && self.uses[0].condition.is_some()
    }

    fn parse(comment: &str) -> Result<Self> {
        let said = top_level(comment, ": ").next().unwrap_or_default();
        let mut parts = top_level(said, ", ");
        let place = place(parts.next().unwrap_or_default())?;
        let (mut uses, mut content) = (Vec::new(), None);
        for part in parts {
            let (word, rest) = part.split_once(' ').unwrap_or((part, ""));
            let access = match word {
                "read" => "Read",
                "write" => "Write",
                "part" => "WritePart",
                "update" => "ReadWrite",
                "scratch" => "Scratch",
                _ => {
                    content = Some(self::content(part)?);
                    continue;
                }
            };
            let condition = match rest {
                "" => None,
                _ => Some(rest.strip_prefix("if ").with_context(|| format!("`{part}`: expected `if`"))?.to_owned()),
            };
            uses.push(Use { access, condition });
        }
        ensure!(!uses.is_empty(), "an operand is `[shape] dtype, access`: read, write, part, update or scratch");
        // Two accesses are the two ways of one condition, so that each launch has one of them.
        let conditions: Vec<Option<&str>> = uses.iter().map(|usage: &Use| usage.condition.as_deref()).collect();
        let is_either = |[a, b]: [&str; 2]| a.strip_prefix('!') == Some(b) || b.strip_prefix('!') == Some(a);
        let is_one = match conditions[..] {
            [_] => true,
            [Some(a), Some(b)] => is_either([a, b]),
            _ => false,
        };
        ensure!(is_one, "two accesses are `read if x, write if !x`");
        Ok(Self { place, uses, content })
    }
}

/// Contents of checked launches, each with the number of its arguments.
const CONTENTS: [(&str, usize); 19] = [
    ("zeros", 0),
    ("few", 0),
    ("normal", 1),
    ("uniform", 2),
    ("ids", 1),
    ("targets", 1),
    ("sequences", 2),
    ("slots", 1),
    ("runs", 2),
    ("steps", 3),
    ("sorted_ids", 1),
    ("permutation", 0),
    ("expert_tiles", 3),
    ("positions_of", 1),
    ("rows", 1),
    ("logits", 1),
    ("columns", 1),
    ("distinct", 2),
    ("log_probs", 1),
];

/// Contents whose arguments are floats; those of others are sizes, fields or operands.
const OF_FLOATS: [&str; 2] = ["normal", "uniform"];

/// Reads a content: one of the list, with as many arguments, floats as Rust has them.
fn content(part: &str) -> Result<String> {
    let (name, rest) = part.split_once('(').unwrap_or((part, ")"));
    let Some((_, arguments)) = CONTENTS.iter().find(|(known, _)| *known == name) else {
        let known: Vec<&str> = CONTENTS.iter().map(|(name, _)| *name).collect();
        bail!("`{part}` is no access (read, write, part, update, scratch), and no content ({})", known.join(", "));
    };
    let rest = rest.strip_suffix(')').with_context(|| format!("`{part}`: a bracket is open"))?;
    let given: Vec<&str> = top_level(rest, ", ").filter(|argument| !argument.is_empty()).collect();
    ensure!(given.len() == *arguments, "`{part}`: `{name}` has {arguments} arguments");
    let float = |text: &&str| match OF_FLOATS.contains(&name) && text.parse::<i64>().is_ok() {
        true => format!("{text}.0"),
        false => (*text).to_owned(),
    };
    check_numbers(name, &given).with_context(|| format!("`{part}`"))?;
    let given: Vec<String> = given.iter().map(float).collect();
    Ok(if given.is_empty() { name.to_owned() } else { format!("{name}({})", given.join(", ")) })
}

/// Refuses numbers of which a check could draw nothing: a bound of 0, a range that ends where it begins or before.
pub(crate) fn check_numbers(name: &str, arguments: &[&str]) -> Result<()> {
    let is_literal = |text: &&&str| text.starts_with(|char: char| char.is_ascii_digit() || "+-.".contains(char));
    let numbers: Result<Vec<f64>, _> = arguments.iter().filter(is_literal).map(|text| text.parse()).collect();
    let numbers = numbers?;
    ensure!(numbers.iter().all(|number| number.is_finite()), "a number is not finite");
    match (name, &numbers[..]) {
        ("uniform", [low, high]) => ensure!(low < high, "{low} is not less than {high}"),
        ("uniform", _) => {}
        (_, bounds) => ensure!(bounds.iter().all(|bound| *bound > 0.0), "{name} is of more than 0"),
    }
    Ok(())
}

/// Most elements of a shape, by the numbers in it: no memory has more.
const MOST_ELEMENTS: f64 = (1u64 << 48) as f64;

fn place(text: &str) -> Result<OperandExtent> {
    let Some(rest) = text.strip_prefix('[') else {
        ensure!(is_name(text), "an operand begins with `[shape] dtype`, or with the name of a struct");
        return Ok(OperandExtent::Step(text.to_owned()));
    };
    let (shape, format) = rest.split_once("] ").context("behind the shape stands its dtype")?;
    let factors =
        shape.split([',', '*']).map(str::trim).filter(|factor| factor.starts_with(|char: char| char.is_ascii_digit()));
    let elements: f64 = factors.filter_map(|factor| factor.parse::<f64>().ok()).product();
    ensure!(
        (1.0..=MOST_ELEMENTS).contains(&elements),
        "[{shape}] is a shape of {elements:e} elements: expected 1 to 2^48"
    );
    let shape = top_level(shape, ", ").map(str::to_owned).collect();
    Ok(OperandExtent::Array { shape, format: format.to_owned() })
}

/// Splits where no bracket is open.
pub(crate) fn top_level<'a>(text: &'a str, separator: &str) -> impl Iterator<Item = &'a str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0i32);
    for (index, char) in text.char_indices() {
        match char {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            _ if depth == 0 && index >= start && text[index..].starts_with(separator) => {
                parts.push(&text[start..index]);
                start = index + separator.len();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_called_what_a_function_is() {
        let Kernel { op, fields, .. } = kernel("addKernel_2 {}: Adds.").unwrap().unwrap();
        assert_eq!((&*op, &*camel(&op), fields.len()), ("addKernel_2", "AddKernel2", 0));
        assert!(kernel("Adds up {}: no kernel").unwrap().is_none());
    }
}
