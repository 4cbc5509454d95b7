//! Reads from PTX the architecture that it is for, and its entries with their parameters.

use crate::arch::Arch;

/// An entry of a PTX file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PtxEntry {
    /// Its name.
    pub name: String,
    /// Its parameters, in order.
    pub parameters: Vec<PtxParameter>,
}

/// A parameter of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PtxParameter {
    /// Name in the file.
    pub name: String,
    /// Type of an element: `u64`, `b8`.
    pub kind: String,
    /// Elements of an array.
    pub count: Option<u32>,
    /// Alignment, bytes.
    pub align: u32,
    /// Size, bytes.
    pub bytes: u32,
}

/// Returns the target of a PTX file: `sm_80`, `sm_90a`.
pub fn target(text: &str) -> Option<&str> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(".target"))?;
    line.split([',', ' ', '\t']).find(|word| !word.is_empty())
}

/// True if PTX for a target can be assembled for an architecture: an equal one, or a later one, of the same family if
/// the target is one's (`sm_120f`), of none if it is of one architecture (`sm_90a`). Source: PTX ISA, ".target".
pub fn is_taken(target: &str, arch: Arch) -> bool {
    let number = |name: &str| name.strip_prefix("sm_").and_then(|name| name.parse::<u32>().ok());
    let Some(own) = number(arch.target().trim_end_matches('a')) else { return false };
    let family = |least: u32| least..least / 10 * 10 + 10;
    let of_family = target.strip_suffix('f').and_then(number).is_some_and(|least| family(least).contains(&own));
    target == arch.target() || of_family || number(target).is_some_and(|least| own >= least)
}

/// Renames entries, each a word of the text.
pub fn renamed(text: &str, names: &[(String, String)]) -> String {
    let is_sign = |char: char| !char.is_ascii_alphanumeric() && !"_$%".contains(char);
    let renamed = |piece: &str| {
        let (word, sign) = piece.split_at(piece.trim_end_matches(is_sign).len());
        names.iter().find(|(name, _)| name == word).map_or(word, |(_, new)| new).to_owned() + sign
    };
    text.split_inclusive(is_sign).map(renamed).collect()
}

/// Returns the entries of a file.
///
/// # Errors
/// The line, from 1, of an entry that is not read.
pub fn entries(text: &str) -> Result<Vec<PtxEntry>, usize> {
    let mut entries = Vec::new();
    let is_word = |at: usize| text[at..].starts_with(|char: char| char.is_whitespace());
    for (at, directive) in text.match_indices(".entry").filter(|(at, found)| is_word(at + found.len())) {
        let begins_line = text[..at].rsplit('\n').next().unwrap_or_default();
        if begins_line.trim_start().starts_with("//") {
            continue;
        }
        let line = text[..at].matches('\n').count() + 1;
        entries.push(entry(&text[at + directive.len()..]).ok_or(line)?);
    }
    Ok(entries)
}

fn entry(text: &str) -> Option<PtxEntry> {
    let head = text.split_once('{')?.0;
    let (name, list) = match head.split_once('(') {
        Some((name, rest)) => (name, rest.split_once(')')?.0),
        None => (head, ""),
    };
    let name = name.split_whitespace().next()?.to_owned();
    let parameters = list.split(',').filter(|parameter| !parameter.trim().is_empty()).map(parameter);
    Some(PtxEntry { name, parameters: parameters.collect::<Option<_>>()? })
}

/// Reads `.param .align 16 .b8 name[16]`, `.param .u64 .ptr .global .align 4 name`.
fn parameter(text: &str) -> Option<PtxParameter> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (name, count) = match words.last()?.split_once('[') {
        Some((name, count)) => (name, Some(count.trim_end_matches(']').parse().ok()?)),
        None => (*words.last()?, None),
    };
    // Behind `.ptr` stands the alignment of what it points to.
    let own = words.split(|word| *word == ".ptr").next()?;
    let kind = own.iter().filter_map(|word| word.strip_prefix('.')).find(|word| !["param", "align"].contains(word))?;
    let size = match kind {
        "b8" | "u8" | "s8" => 1,
        "b16" | "u16" | "s16" => 2,
        "b32" | "u32" | "s32" | "f32" => 4,
        "b64" | "u64" | "s64" | "f64" => 8,
        // Rust has no type of the others.
        _ => return None,
    };
    let align = own.iter().position(|word| *word == ".align").and_then(|at| own.get(at + 1)?.parse().ok());
    let align = align.unwrap_or(size);
    let bytes = size * count.unwrap_or(1);
    Some(PtxParameter { name: name.to_owned(), kind: (*kind).to_owned(), count, align, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
// .entry said of it
.version 9.0
.target sm_80, texmode_independent
.visible .entry saxpy(
\t.param .u64 .ptr .global .align 4 saxpy_param_0,
\t.param .f32 saxpy_param_1,
\t.param .align 16 .b8 saxpy_param_2[16]
)
.maxntid 256, 1, 1
{
\tld.param.u64 %rd1, [saxpy_param_0];
}
.visible .entry none()
{
}
";

    #[test]
    fn entries_say_what_they_take() {
        let entries = entries(TEXT).unwrap();
        let shown = |entry: &PtxEntry| {
            let each = entry.parameters.iter().map(|it| (it.kind.clone(), it.count, it.align, it.bytes));
            (entry.name.clone(), each.collect::<Vec<_>>())
        };
        let saxpy = vec![("u64".into(), None, 8, 8), ("f32".into(), None, 4, 4), ("b8".into(), Some(16), 16, 16)];
        assert_eq!(entries.iter().map(shown).collect::<Vec<_>>(), [("saxpy".into(), saxpy), ("none".into(), vec![])]);
        for kind in ["what", "f16", "pred", "b128"] {
            assert_eq!(super::entries(&format!("\n.entry\tf(.param .{kind} x) {{")), Err(2), "{kind}");
        }
    }

    #[test]
    fn a_target_is_taken_by_itself_and_by_later_ones() {
        assert_eq!(target(TEXT), Some("sm_80"));
        for (target, arch, taken) in [
            ("sm_80", Arch::Sm121, true),
            ("sm_90", Arch::Sm89, false),
            ("sm_90", Arch::Sm90a, true),
            ("sm_90a", Arch::Sm90a, true),
            ("sm_90a", Arch::Sm90Portable, false),
            ("sm_90a", Arch::Sm100, false),
            ("sm_100f", Arch::Sm100, true),
            ("sm_120f", Arch::Sm121, true),
            ("sm_100f", Arch::Sm120, false),
            ("sm_121f", Arch::Sm120, false),
        ] {
            assert_eq!(is_taken(target, arch), taken, "{target} for {arch}");
        }
    }

    #[test]
    fn an_entry_is_renamed_where_it_is_a_word() {
        let names = [("saxpy".to_owned(), "saxpy__1".to_owned())];
        assert_eq!(
            renamed(".entry saxpy(.param .u64 saxpy_param_0)", &names),
            ".entry saxpy__1(.param .u64 saxpy_param_0)"
        );
    }
}
