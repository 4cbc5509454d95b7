//! `cargo xtask lines`: lines of shipped Rust, without tests, comments and blanks; `--tests`: those of tests.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::modules::{members, shipped, sources};
use crate::run::listed;

/// Prints the lines of each package, and of each of its folders.
pub fn lines() -> Result<()> {
    let mut all = 0;
    for member in members()? {
        let mut folders: BTreeMap<String, usize> = BTreeMap::new();
        for root in &member.roots {
            for path in sources(root)? {
                *folders.entry(folder(root, &path)).or_default() += code_lines(&fs::read_to_string(&path)?);
            }
        }
        let total: usize = folders.values().sum();
        all += total;
        println!("{total:7} {}", member.name);
        for (folder, lines) in folders.iter().filter(|(folder, _)| !folder.is_empty()) {
            println!("{lines:7}   {folder}/");
        }
    }
    println!("{all:7} all");
    Ok(())
}

/// Prints the lines of tests: of all, of each package's folder, and of each file.
pub fn tests() -> Result<()> {
    let mut files = Vec::new();
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    let listed = listed(&["*.rs"])?;
    for path in &listed {
        let lines = test_lines(path, &fs::read_to_string(path)?);
        if lines > 0 {
            files.push((lines, path.as_str()));
            *folders.entry(path.split('/').next().unwrap_or_default()).or_default() += lines;
        }
    }
    files.sort_by_key(|(lines, path)| (Reverse(*lines), *path));
    println!("{:7} all", folders.values().sum::<usize>());
    let folders = folders.into_iter().map(|(folder, lines)| (lines, folder));
    for (lines, path) in folders.chain(files) {
        println!("{lines:7} {path}");
    }
    Ok(())
}

/// Returns the first folder of a path below a root; none for files outside of folders.
fn folder(root: &Path, path: &Path) -> String {
    let inside = path.strip_prefix(root).unwrap_or(path);
    let folder = inside.parent().and_then(|parent| parent.iter().next());
    folder.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn code_lines(text: &str) -> usize {
    shipped(text).lines().filter(|line| !line.trim().is_empty()).count()
}

/// Counts a file's lines of tests: all of a file that holds nothing else, and what does not ship of others.
fn test_lines(path: &str, text: &str) -> usize {
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    let all = text.lines().filter(is_code).count();
    let is_test = Path::new(path).iter().any(|name| name == "tests" || name == "tests.rs");
    if is_test { all } else { all - code_lines(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ships_is_counted_and_nothing_else() {
        let text = "//! A module.\n\nuse a::b;\n\n/// Adds.\nfn f() {\n    // why\n    g();\n}\n\n#[cfg(test)]\nmod \
            tests {\n    fn h() {}\n}\n";
        assert_eq!(code_lines(text), 4);
        assert_eq!(code_lines("mod a;\n\n#[cfg(test)]\nmod tests;\n\nfn f() {}\n"), 2);
        assert_eq!((test_lines("a/b.rs", text), test_lines("tests/b.rs", text)), (4, 8));
        assert_eq!(folder(Path::new("/p"), Path::new("/p/a/b/c.rs")), "a");
        assert_eq!(folder(Path::new("/p"), Path::new("/p/lib.rs")), "");
    }
}
