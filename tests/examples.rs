//! The programs of `docs/examples` are what their page says, and as short; `cargo xtask examples` builds and runs them.

use std::collections::BTreeMap;

use crate::support::prelude::*;

/// The pages that quote programs, and how often at least.
const PAGES: [(&str, usize); 2] = [("docs/guides/your-own-kernels.md", 9), ("docs/guides/kernels-you-have.md", 6)];

fn examples() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("docs/examples")).unwrap().map(|entry| entry.unwrap().path());
    let examples: Vec<PathBuf> = entries.filter(|folder| folder.join("Cargo.toml").is_file()).collect();
    assert!(examples.len() >= 2, "{examples:?}");
    examples
}

/// Returns the versions that a lock file names, of packages from a registry.
fn versions(lock: &Path) -> BTreeMap<(String, String), String> {
    let lock: toml::Table = fs::read_to_string(lock).unwrap().parse().unwrap();
    let packages = lock["package"].as_array().unwrap().iter().filter(|package| package.get("checksum").is_some());
    let text = |package: &toml::Value, field: &str| package[field].as_str().unwrap().to_owned();
    packages.map(|package| ((text(package, "name"), text(package, "version")), text(package, "checksum"))).collect()
}

#[test]
fn examples_are_locked_to_the_packages_of_the_workspace() {
    let all = versions(&root().join("Cargo.lock"));
    for example in examples() {
        let own = versions(&example.join("Cargo.lock"));
        let other: Vec<_> = own.iter().filter(|(package, sum)| all.get(*package) != Some(*sum)).collect();
        assert!(own.len() > 50 && other.is_empty(), "{}: {other:?}", example.display());
    }
}

#[test]
fn pages_quote_the_programs_as_they_are() {
    for (page, least) in PAGES {
        let quoted = quotations(page);
        assert!(quoted >= least, "{page}: {quoted} quotations");
    }
}

/// Compares what a page quotes with the files, and counts it.
fn quotations(name: &str) -> usize {
    let page = fs::read_to_string(root().join(name)).unwrap();
    let blocks = page.split("```").skip(1).step_by(2).filter_map(|block| block.split_once("\n// "));
    let mut quoted = 0;
    for (_, block) in blocks {
        let (file, text) = block.split_once('\n').unwrap();
        // Of saxpy it quotes whole files; other programs are named.
        let read = |folder: &str| fs::read_to_string(root().join(folder).join(file)).ok();
        let (whole, part) = (read("docs/examples/saxpy"), read("docs/examples"));
        let is_quoted = whole.as_ref().map(|own| own.trim_end() == text.trim_end());
        let is_quoted = is_quoted.or(part.map(|own| own.contains(text.trim_end())));
        assert_ne!(is_quoted, Some(false), "{name} does not quote {file}:\n{text}");
        if is_quoted.is_none() {
            continue;
        }
        quoted += 1;
    }
    quoted
}

/// Lines that say something: neither blank nor a comment.
fn lines(files: &[&str]) -> usize {
    let text: String =
        files.iter().map(|file| fs::read_to_string(root().join("docs/examples/saxpy").join(file)).unwrap()).collect();
    text.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with("//")).count()
}

#[test]
fn saxpy_is_short() {
    assert!(lines(&["build.rs"]) <= 10);
    assert!(lines(&["src/saxpy/saxpy.h", "src/saxpy/saxpy.cu", "src/saxpy/mod.rs"]) <= 60);
    assert!(lines(&["src/main.rs"]) <= 50);
}
