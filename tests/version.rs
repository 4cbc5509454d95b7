//! `--version` names a program, and with `--verbose` what it is made of.

use precast_fatbins::Digest;

use crate::support::prelude::*;

/// A line without what another compiler, machine or source changes.
fn masked(line: &str) -> String {
    let digest = |word: &str| word.len() == 64 && word.chars().all(|c| c.is_ascii_hexdigit());
    let start = line.split_inclusive(": ").next().unwrap_or_default();
    match start {
        "host: " | "rustc: " | "commit: " => format!("{start}..."),
        _ if start.starts_with("bundle of ") => "bundle of ...: SHA-256".to_owned(),
        _ if start.starts_with("lock of ") => "lock of ...: SHA-256".to_owned(),
        _ => line.split(' ').map(|word| if digest(word) { "SHA-256" } else { word }).collect::<Vec<_>>().join(" "),
    }
}

#[test]
fn a_version_in_full_says_what_a_program_is_made_of() {
    precast().with("--verbose kernels").fails(2, "--version");
    let version = env!("CARGO_PKG_VERSION");
    for (mut program, name) in [(precast(), "precast"), (precast_aot(), "precast-aot")] {
        assert_eq!(program.with("--version").succeeds(), format!("{name} {version}\n"));
        assert_eq!(program.with("--verbose").succeeds().lines().next(), Some(&*format!("{name} {version}")));
    }
    let said = precast().with("--version --verbose").succeeds();
    if skipped(said.contains("bundle: none"), "the trainer holds no kernels") {
        return;
    }
    let listed = precast().with("kernels").succeeds();
    let manifest = listed.lines().find_map(|line| line.strip_prefix("manifest ")).expect("a bundle");
    assert!(said.contains(&format!(": {manifest}\n")), "{said}");
    let lock = fs::read(root().join("aot/models/locks/built-in.lock")).unwrap();
    assert!(said.contains(&format!("lock of built-in: {}\n", Digest::of(&lock))), "{said}");
    let compiler = precast_aot().with("--version --verbose").succeeds();
    let mut lines: Vec<String> = said.lines().chain(compiler.lines()).map(masked).collect();
    lines.dedup();
    insta::assert_snapshot!(lines.join("\n"));
}
