//! Finds the paths that Rust code names inside of its own package.

/// Returns every path below `crate::` or `super::` in the code of a module, from the root of the package. Groups are
/// split: `crate::a::{b, c::D}` names `a::b` and `a::c::D`.
///
/// `module` is the code's own module. Strings are read as code.
pub fn paths(module: &[String], code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some((at, prefix)) = first(rest) {
        let whole =
            rest[..at].chars().next_back().is_none_or(|before| !is_word(before) && before != ':' && before != '$');
        rest = &rest[at..];
        if whole && let Some((base, path)) = base(module, rest) {
            rest = collect(&base, path, &mut found);
        } else {
            rest = &rest[prefix..];
        }
    }
    found
}

/// Returns the start of the next possible path, and the length of its first segment.
fn first(code: &str) -> Option<(usize, usize)> {
    ["crate::", "super::"].iter().filter_map(|prefix| Some((code.find(prefix)?, prefix.len()))).min()
}

/// Resolves a path's first segments to a module; returns it with the rest.
fn base<'a>(module: &[String], path: &'a str) -> Option<(Vec<String>, &'a str)> {
    if let Some(path) = path.strip_prefix("crate::") {
        return Some((Vec::new(), path));
    }
    let (mut base, mut path) = (module.to_vec(), path);
    while let Some(above) = path.strip_prefix("super::") {
        base.pop()?;
        path = above;
    }
    Some((base, path))
}

/// Adds the paths that begin here, and returns the rest of the code.
fn collect<'a>(base: &[String], code: &'a str, found: &mut Vec<Vec<String>>) -> &'a str {
    let code = code.trim_start();
    if let Some(mut code) = code.strip_prefix('{') {
        loop {
            code = collect(base, code, found).trim_start();
            match code.strip_prefix(',') {
                Some(after) if !after.trim_start().starts_with('}') => code = after,
                other => return other.unwrap_or(code).trim_start().strip_prefix('}').unwrap_or(code),
            }
        }
    }
    let end = code.find(|c: char| !is_word(c)).unwrap_or(code.len());
    let (name, after) = code.split_at(end);
    let mut path = base.to_vec();
    if !name.is_empty() && name != "self" {
        path.push(name.to_owned());
    }
    match after.strip_prefix("::") {
        Some(after) if after.starts_with(|c: char| is_word(c) || c == '{') => collect(&path, after, found),
        _ => {
            found.push(path);
            after.strip_prefix(" as ").map_or(after, |renamed| renamed.trim_start_matches(is_word))
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(module: &str, code: &str) -> Vec<String> {
        let module: Vec<String> = module.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        paths(&module, code).into_iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn paths_are_found_in_imports_groups_and_expressions() {
        let code = "use crate::a::{self, b::C, d::{E as F, G}, };\nfn f() -> crate::h::I { crate::j::k(super::super::l::<u8>()) }";
        assert_eq!(named("x::y", code), ["a", "a::b::C", "a::d::E", "a::d::G", "h::I", "j::k", "l"]);
        assert_eq!(named("x::y", "use super::{z, super_ as s};\npub(super) fn f() {}"), ["x::z", "x::super_"]);
    }

    #[test]
    fn names_that_only_look_like_paths_are_none() {
        assert_eq!(named("x", "other::crate::a; my_crate::b; $crate::c; pub(crate) use d::e;"), [""; 0]);
    }
}
