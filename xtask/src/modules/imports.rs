//! Finds the paths that Rust code names inside of its own package.

use std::collections::{BTreeMap, BTreeSet};

/// A path, and the name by which code speaks of its item.
pub type Named = (Vec<String>, String);

/// Returns every path below `crate::`, `super::`, `self::` or a child in the code of a module, from the root of the
/// package. Groups are split: `crate::a::{b, c::D}` names `a::b` and `a::c::D`.
///
/// `module` is the code's own module. Strings are read as code.
pub fn paths(module: &[String], children: &BTreeSet<String>, code: &str) -> Vec<Named> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(colons) = code[at..].find("::").map(|colons| at + colons) {
        let start = at + code[at..colons].trim_end_matches(is_word).len();
        // Not a part of a longer path, of a macro or of `pub(in crate::a)`.
        let whole = !code[..start].ends_with([':', '$']) && !code[..start].ends_with("(in ");
        at = match base(module, children, &code[start..]).filter(|_| whole) {
            Some((base, path)) => code.len() - collect(&base, path, &mut found).len(),
            None => colons + 2,
        };
    }
    found
}

/// Returns what each imported name stands for: a path of the package, or nothing of it.
pub fn imports(module: &[String], children: &BTreeSet<String>, code: &str) -> BTreeMap<String, Option<Vec<String>>> {
    let mut imported = BTreeMap::new();
    for tree in code.split("use ").skip(1).filter_map(|rest| rest.split(';').next()) {
        let own = base(module, children, tree);
        let (base, path) = own.clone().unwrap_or((Vec::new(), tree));
        let mut found = Vec::new();
        collect(&base, path, &mut found);
        imported.extend(found.into_iter().map(|(path, name)| (name, own.as_ref().map(|_| path))));
    }
    imported
}

/// Splits code into its exports and declarations of modules, and the rest.
pub fn split_exports(code: &str) -> (String, String) {
    let (mut exports, mut rest) = (String::new(), String::new());
    for statement in code.split_inclusive(';') {
        let export = ["pub use ", "pub(crate) use ", "mod "].iter().find_map(|export| statement.rfind(export));
        let (before, export) = statement.split_at(export.unwrap_or(statement.len()));
        rest.push_str(before);
        exports.push_str(export);
    }
    (exports, rest)
}

/// Resolves a path's first segments to a module; returns it with the rest.
fn base<'a>(module: &[String], children: &BTreeSet<String>, path: &'a str) -> Option<(Vec<String>, &'a str)> {
    let (first, rest) = path.split_once("::")?;
    match first {
        "crate" => return Some((Vec::new(), rest)),
        "self" => return Some((module.to_vec(), rest)),
        child if children.contains(child) => return Some((module.to_vec(), path)),
        "super" => {}
        _ => return None,
    }
    let (mut base, mut path) = (module.to_vec(), path);
    while let Some(above) = path.strip_prefix("super::") {
        base.pop()?;
        path = above;
    }
    Some((base, path))
}

/// Adds the paths that begin here, and returns the rest of the code.
fn collect<'a>(base: &[String], code: &'a str, found: &mut Vec<Named>) -> &'a str {
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
            let renamed = after.strip_prefix(" as ").map(|renamed| {
                let after = renamed.trim_start_matches(is_word);
                (renamed[..renamed.len() - after.len()].to_owned(), after)
            });
            let (name, after) = renamed.unwrap_or((path.last().cloned().unwrap_or_default(), after));
            found.push((path, name));
            after
        }
    }
}

/// True for characters of names.
pub fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(module: &str, code: &str) -> Vec<String> {
        let module: Vec<String> = module.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let found = paths(&module, &["child".to_owned()].into(), code);
        found.into_iter().map(|(path, _)| path.join("::")).collect()
    }

    #[test]
    fn paths_are_found_in_imports_groups_and_expressions() {
        let code = "use crate::a::{self, b::C, d::{E as F, G}, };\nfn f() -> crate::h::I { \
            crate::j::k(super::super::l::<u8>()) }";
        assert_eq!(named("x::y", code), ["a", "a::b::C", "a::d::E", "a::d::G", "h::I", "j::k", "l"]);
        assert_eq!(named("x::y", "use super::{z, super_ as s};\npub(super) fn f() {}"), ["x::z", "x::super_"]);
    }

    #[test]
    fn a_module_names_its_children_by_themselves() {
        let code = "use self::a::B; use child::C; fn f() { child::d(); x.child; grandchild::e() }";
        assert_eq!(named("x", code), ["x::a::B", "x::child::C", "x::child::d"]);
    }

    #[test]
    fn an_imported_name_stands_for_a_path_or_for_nothing_of_the_package() {
        let code = "use crate::a::{self, B as C};\npub use child::D;\nuse std::fmt::{Display, Write as _};";
        let found = imports(&["x".to_owned()], &["child".to_owned()].into(), code);
        let found: Vec<String> = found
            .iter()
            .map(|(name, path)| format!("{name}={}", path.as_ref().map_or(String::new(), |path| path.join("::"))))
            .collect();
        assert_eq!(found, ["C=a::B", "D=x::child::D", "Display=", "_=", "a=a"]);
    }

    #[test]
    fn names_that_only_look_like_paths_are_none() {
        assert_eq!(
            named("x", "other::crate::a; my_crate::b; $crate::c; pub(crate) use d::e; pub(in crate::f) fn g() {}"),
            [""; 0]
        );
    }
}
