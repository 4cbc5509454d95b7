//! `cargo xtask fuzz`: builds the targets of `tests/fuzz` with counters of branches, and searches for inputs that break
//! a parser.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::run::{cargo, output, root, step};
use crate::setup;

const TARGETS: &str = "tests/fuzz/src/bin";

/// Corpora, seeds, findings and what is built.
const KEPT: &str = "target/fuzz";

/// Options by which the compiler gives libFuzzer a counter of each edge, a table of them, and the operands of
/// comparisons. A stable compiler has LLVM's pass without a sanitizer.
const COUNTERS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";

/// Limits of an input: bytes, seconds, and MiB of the whole process. The allocator of targets bounds what one takes.
const LIMITS: [&str; 3] = ["-max_len=1000000", "-timeout=10", "-rss_limit_mb=4096"];

/// Targets whose inputs may end their process, as they end the process that a run has for them.
const IN_PROCESSES: [&str; 1] = ["chat"];

/// Bounds the search of each target.
pub enum Most {
    Seconds(u64),
    Executions(u64),
}

/// Runs these targets, or all.
pub fn fuzz(names: &[String], most: &Most) -> Result<()> {
    setup::debian(&["g++"])?;
    let all = targets()?;
    if let Some(unknown) = names.iter().find(|name| !all.contains(name)) {
        bail!("no target is called {unknown}: {}", all.join(", "));
    }
    let kept = root().canonicalize()?.join(KEPT);
    let host = output(Command::new("rustc").args(["--print", "host-tuple"]))?;
    // With a target, what runs while it is built has no counters.
    let mut build = cargo(&["build", "--release", "--locked", "--bins", "--target", host.trim()]);
    build.current_dir("tests/fuzz").env("RUSTFLAGS", COUNTERS).env("CARGO_TARGET_DIR", &kept);
    step("build the targets", &mut build)?;
    let programs = kept.join(host.trim()).join("release");
    let chosen = if names.is_empty() { &all } else { names };
    chosen.iter().try_for_each(|name| search(name, &programs.join(name), &kept.join("of").join(name), most))
}

/// Returns the names of the targets.
fn targets() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(TARGETS)? {
        names.extend(entry?.path().file_stem().and_then(|name| name.to_str()).map(str::to_owned));
    }
    names.sort_unstable();
    Ok(names)
}

/// Runs a target on its corpus, which it adds to. A finding is left there, too.
fn search(name: &str, program: &Path, folder: &Path, most: &Most) -> Result<()> {
    let [corpus, seeds] = ["corpus", "seeds"].map(|part| folder.join(part));
    for part in [&corpus, &seeds] {
        fs::create_dir_all(part)?;
    }
    // In memory, where there is a place for it.
    let shared = Path::new("/dev/shm");
    let scratch = if shared.is_dir() { tempfile::tempdir_in(shared)? } else { tempfile::tempdir()? };
    let log = folder.join("log");
    let mut fuzzer = Command::new(program);
    fuzzer.args([&corpus, &seeds]).args(LIMITS).arg("-print_final_stats=1");
    fuzzer.arg(format!("-artifact_prefix={}/", folder.display()));
    fuzzer.arg(match most {
        Most::Seconds(seconds) => format!("-max_total_time={seconds}"),
        Most::Executions(executions) => format!("-runs={executions}"),
    });
    if IN_PROCESSES.contains(&name) {
        // Memory that runs out is the end of such a process; time that runs out is a fault here, too.
        fuzzer.args(["-fork=1", "-ignore_timeouts=0"]);
    }
    // Threads that wait for each other cost more than they do for files as small as these.
    fuzzer.env("PRECAST_FUZZ_SEEDS", &seeds).env("TMPDIR", scratch.path()).env("RAYON_NUM_THREADS", "1");
    let written = fs::File::create(&log)?;
    fuzzer.stdout(written.try_clone()?).stderr(written);
    let status = fuzzer.status().with_context(|| format!("cannot start {}", program.display()))?;
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let counts =
        |line: &&str| line.strip_prefix('#').is_some_and(|rest| rest.starts_with(|one: char| one.is_ascii_digit()));
    let count = text.lines().rfind(counts);
    println!("== fuzz {name}: {}", count.unwrap_or("no input was executed"));
    ensure!(count.is_some() || !status.success(), "{name} executed nothing: {} says why", log.display());
    ensure!(
        status.success(),
        "{name} ended with {status}: its input is in {}, and {} says why",
        folder.display(),
        log.display()
    );
    Ok(())
}
