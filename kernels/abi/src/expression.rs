//! Expressions of the comments, as Rust.
//!
//! A name is a scalar of the parameter block (`p.tokens`), else a field of the key (`self.h`); in counts a local
//! variable, u64. `ceil(a / b)` rounds up, `name()` is a method of the key that is given the block, `bf16` and its like
//! are dtypes.

use anyhow::{Result, bail, ensure};
use precast_core::Dtype;
use precast_core::source::words;

/// The names of a kernel.
#[derive(Debug)]
pub(crate) struct Names<'a> {
    /// Numbers of the parameter block.
    pub scalars: Vec<&'a str>,
    /// Fields of the key as (name, Rust type).
    pub key: &'a [(String, String)],
}

/// Refuses what is no expression of Rust.
fn parsed(text: &str, rust: String) -> Result<String> {
    ensure!(syn::parse_str::<syn::Expr>(&rust).is_ok(), "`{text}` is no expression");
    Ok(rust)
}

/// The expression in parentheses, if it is more than a name or a call.
pub(crate) fn grouped(expression: &str) -> String {
    if expression.contains([' ', '!']) { format!("({expression})") } else { expression.to_owned() }
}

/// The dtype of this name.
pub(crate) fn dtype(name: &str) -> Option<String> {
    let all = [Dtype::Bf16, Dtype::F32, Dtype::I8, Dtype::U32];
    all.into_iter().find(|dtype| dtype.name() == name).map(|dtype| format!("Dtype::{dtype:?}"))
}

impl Names<'_> {
    /// Translates a count, u64, of the variables that [`Self::variables`] declares.
    ///
    /// # Errors
    /// Unknown names, and what is no expression.
    pub fn count(&self, text: &str) -> Result<String> {
        parsed(text, self.translate(text, true)?)
    }

    /// Returns the numbers that counts name, each with its value.
    pub fn variables<'t>(&self, counts: impl Iterator<Item = &'t str>) -> Vec<String> {
        let mut declared: Vec<String> = Vec::new();
        for name in counts.flat_map(tokens) {
            let of = match self.scalars.contains(&name) {
                true => "p",
                false if self.is_number(name) => "self",
                false => continue,
            };
            let count = format!("{name} = {of}.{name}");
            declared.extend((!declared.contains(&count)).then_some(count));
        }
        declared
    }

    /// True for a number of the key.
    fn is_number(&self, name: &str) -> bool {
        self.key.iter().any(|(field, kind)| field == name && kind == "u32")
    }

    /// Translates anything else: a condition, or the arguments of a content.
    ///
    /// # Errors
    /// Those of [`Self::count`].
    pub fn value(&self, text: &str) -> Result<String> {
        parsed(text, self.translate(text, false)?)
    }

    /// Translates what stands behind a shape: a dtype, or a field of the key that is or has one.
    ///
    /// # Errors
    /// Those of [`Self::count`], and a number.
    pub fn dtype(&self, text: &str) -> Result<String> {
        let is_field = |kind: &str| self.key.iter().any(|(field, of)| field == text && of == kind);
        let is_number = self.scalars.contains(&text) || is_field("u32") || is_field("bool");
        ensure!(!is_number, "`{text}` is no dtype: bf16, f32, i8, u32, or a field of the key that is one");
        self.value(text)
    }

    fn translate(&self, text: &str, widen: bool) -> Result<String> {
        let tokens = tokens(text);
        let mut rust = String::new();
        let mut index = 0;
        while let Some(token) = tokens.get(index) {
            index += 1;
            let is_name = token.starts_with(|char: char| char.is_ascii_alphabetic());
            if !is_name || rust.ends_with('.') {
                rust.push_str(token);
            } else if *token == "ceil" {
                let (inner, next) = parenthesized(&tokens, index, text)?;
                let Some((over, by)) = inner.split_once('/') else { bail!("`{text}`: expected `ceil(a / b)`") };
                let [over, by] = [self.translate(over.trim(), widen)?, self.translate(by.trim(), widen)?];
                rust.push_str(&format!("{}.div_ceil({by})", grouped(&over)));
                index = next;
            } else if tokens.get(index) == Some(&"(") {
                let (inner, next) = parenthesized(&tokens, index, text)?;
                if !inner.is_empty() {
                    bail!("`{text}`: `{token}` is a method of the key, which is given the parameter block alone");
                }
                rust.push_str(&format!("self.{token}(p)"));
                index = next;
            } else {
                // In a count a method may follow what is no number itself: `w.rows()`.
                let kind = self.key.iter().find(|(field, _)| field == token).map(|(_, kind)| kind.as_str());
                let is_number = tokens.get(index) == Some(&".") || !matches!(kind, Some("bool" | "Dtype" | "Format"));
                ensure!(!widen || is_number, "`{text}`: `{token}` is a {}, no number", kind.unwrap_or_default());
                rust.push_str(&self.name(token, widen, text)?);
            }
        }
        Ok(rust)
    }

    fn name(&self, name: &str, widen: bool, text: &str) -> Result<String> {
        let is_scalar = self.scalars.contains(&name);
        if widen && (is_scalar || self.is_number(name)) {
            return Ok(name.to_owned());
        }
        if is_scalar {
            return Ok(format!("p.{name}"));
        }
        if self.key.iter().any(|(field, _)| field == name) {
            return Ok(format!("self.{name}"));
        }
        if let Some(dtype) = dtype(name) {
            return Ok(dtype);
        }
        bail!("`{text}`: `{name}` is neither a scalar of the block nor a field of the key")
    }
}

/// The text between the parenthesis at an index and that which closes it, and the index behind.
fn parenthesized(tokens: &[&str], open: usize, text: &str) -> Result<(String, usize)> {
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        depth += i32::from(*token == "(") - i32::from(*token == ")");
        if depth == 0 {
            return Ok((tokens[open + 1..index].concat(), index + 1));
        }
    }
    bail!("`{text}`: a parenthesis that is not closed")
}

/// Names, numbers and blanks whole, every sign alone.
pub(crate) fn tokens(text: &str) -> Vec<&str> {
    words::pieces(text).map(|(_, own)| own).collect()
}
