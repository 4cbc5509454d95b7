//! `cargo xtask lines`: lines of shipped Rust, without tests, comments and blanks.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::modules::{members, shipped, sources};

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

/// Returns the first folder of a path below a root; none for files outside of folders.
fn folder(root: &Path, path: &Path) -> String {
    let inside = path.strip_prefix(root).unwrap_or(path);
    let folder = inside.parent().and_then(|parent| parent.iter().next());
    folder.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn code_lines(text: &str) -> usize {
    shipped(text).lines().filter(|line| !line.trim().is_empty()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ships_is_counted_and_nothing_else() {
        let text = "//! A module.\n\nuse a::b;\n\n/// Adds.\nfn f() {\n    // why\n    g();\n}\n\n#[cfg(test)]\nmod tests {\n    fn h() {}\n}\n";
        assert_eq!(code_lines(text), 4);
        assert_eq!(code_lines("mod a;\n\n#[cfg(test)]\nmod tests;\n\nfn f() {}\n"), 2);
        assert_eq!(folder(Path::new("/p"), Path::new("/p/a/b/c.rs")), "a");
        assert_eq!(folder(Path::new("/p"), Path::new("/p/lib.rs")), "");
    }
}
