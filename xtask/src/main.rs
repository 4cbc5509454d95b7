//! Commands for people and CI: `cargo xtask demo`, `cargo xtask test`, ...

#![allow(clippy::print_stdout)]

mod abi;
mod build;
mod ci;
mod cross;
mod demo;
mod deny;
mod docs;
mod examples;
mod golden;
mod gpu;
mod lines;
mod modules;
mod peers;
mod picture;
mod release;
mod release_key;
mod run;
mod setup;
mod simt;
mod test;
mod truth;
mod tuned;
#[cfg(test)]
mod workflow;

use std::process::ExitCode;

use anyhow::{Result, bail};

const HELP: &str = "\
cargo xtask demo           set up, then run a real distillation and write its report
cargo xtask test           set up, then run every check: format, lints, documentation, dependencies, tests,
                           and the CUDA sources of every operation and variant on the CPU; seconds of each step
                           and test go to target/ci/times.json
cargo xtask build          build the trainer as releases are built: its bytes do not depend on the directory
cargo xtask build --target aarch64-unknown-linux-gnu
                           the same for GB10's host, on any machine
cargo xtask release [--out DIR] [--key FILE]
                           build what a release holds, for both hosts and glibc 2.28, into DIR (dist): wheels, archives, kernels,
                           bill of materials, provenance, sums; signed with FILE, else named unsigned
cargo xtask release --check TAG [--out DIR]
                           check that versions, changelog, locks and pages are this tag's, and so is DIR, if it is there: all of
                           its files, and its signature by a key of PRECAST_TRUSTED_KEY, if that is set
cargo xtask release --reproduce DIR
                           build this checkout and compare with DIR's SHA256SUMS: equal, or the first file and byte that differ
cargo xtask emulate        the same, and run it under qemu beside this machine's: plans, losses, checkpoints, tests
cargo xtask aarch64        the same, and compare it with a build in another directory
cargo xtask ci [DIR]       test, then run every kernel on the CPU with three seeds, then page, then prove the artifact: locked,
                           reproducible, published, built offline; DIR (target/ci) receives what to upload
cargo xtask prove [DIR]    the second half of ci
cargo xtask released [DIR] the part of prove that makes a release in DIR/dist, and again of a clone elsewhere: equal bytes
cargo xtask fresh          the part of prove that builds a fresh clone, with and without a network
cargo xtask packages       the part of prove that packages each crate, and builds them and a trainer from the packages alone
cargo xtask page           the part of ci that adds a kernel to a copy of the checkout as CONTRIBUTING.md says, and plants mistakes
cargo xtask abi            regenerate kernels/src/abi.rs from the headers of kernels
cargo xtask examples       the part of ci that builds, runs and tests docs/examples, and plants mistakes in one
cargo xtask docs           build the pages as a site with a search, by mdbook from crates.io; fails on a broken link
cargo xtask deny           check licenses and sources of dependencies against deny.toml
cargo xtask simt TEXT      run the CUDA sources of every example whose name contains TEXT on the CPU, under a checker; after
                           an edit of a CUDA source nothing is built for it
cargo xtask simt           the same of every key of every model, too
cargo xtask simt --models TEXT
                           of those whose name contains TEXT
cargo xtask simt --report [TEXT]
                           print what they move: sectors per request, share of the bytes that was needed, bank conflicts
cargo xtask lines          print the lines of shipped Rust of each package and folder, without tests, comments and blanks
cargo xtask lines --tests  print the lines of tests, of each folder and file
cargo xtask modules        redraw docs/packages.svg and docs/trainer.svg from the imports, and name circles
cargo xtask release-key FILE
                           write the key of PRECAST_RELEASE_KEY, opened with PRECAST_KEY_PASSWORD, to a new file of mode 0600
cargo xtask release-key --remove FILE
                           remove it, if it is there
cargo xtask picture        redraw docs/report.svg from the demo's report
cargo xtask tuned FILE...  add times that `precast bench --tune FILE` measured to kernels/src/tuned.txt
cargo xtask peers [CHECK...]
                           compare adapters with PEFT, students with transformers and llama.cpp, exports with llama.cpp's
                           converter and event files with TensorBoard; installs 3 GB from PyPI in target/peers, unless
                           PRECAST_PEERS_PYTHON names a Python that has xtask/peers/requirements.txt; PRECAST_BIN names
                           a trainer in place of one that is built
cargo xtask truth          compare likelihoods of real models with exact ones (fetches 1.2 GB)
cargo xtask truth --golden DIR
                           compare every golden case of DIR, as tests/golden/make.py writes them, with PyTorch's numbers
cargo xtask gpu DIR [GOLDEN]
                           pack programs, tests and kernels for a machine with a GPU and without Rust; and golden cases of GOLDEN";

fn main() -> ExitCode {
    match command() {
        Ok(()) => ExitCode::SUCCESS,
        // Without a backtrace, which would show this program and not the checked one.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn command() -> Result<()> {
    std::env::set_current_dir(run::root())?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["demo"] => demo::demo(),
        ["test"] => test::test(),
        ["build"] => build::build().map(drop),
        ["build", "--target", target] => cross::build(target).map(drop),
        ["emulate"] => cross::emulate().map(drop),
        ["aarch64"] => cross::aarch64(),
        ["ci"] => ci::ci("target/ci".as_ref()),
        ["ci", directory] => ci::ci(directory.as_ref()),
        ["prove"] => ci::prove("target/ci".as_ref()),
        ["prove", directory] => ci::prove(directory.as_ref()),
        ["released"] => ci::released("target/ci".as_ref()),
        ["released", directory] => ci::released(directory.as_ref()),
        ["fresh"] => ci::fresh(),
        ["packages"] => ci::packages(),
        ["page"] => ci::page(),
        ["abi"] => abi::abi(),
        ["examples"] => examples::all(),
        ["simt"] => simt::simt(""),
        ["simt", "--report"] => simt::report(""),
        ["simt", "--report", text] => simt::report(text),
        ["simt", "--models", text] => simt::simt(text),
        ["release", ref arguments @ ..] => release::release(arguments),
        ["release-key", "--remove", file] => release_key::remove(file.as_ref()),
        ["release-key", file] => release_key::write(file.as_ref()),
        ["lines"] => lines::lines(),
        ["lines", "--tests"] => lines::tests(),
        ["modules"] => modules::modules(),
        ["picture"] => picture::picture(),
        ["tuned", ref files @ ..] => tuned::merge(files),
        ["deny"] => deny::check(),
        ["docs"] => docs::docs(),
        ["peers", ref names @ ..] => peers::peers(names),
        ["truth"] => truth::truth(),
        ["truth", "--golden", directory] => golden::compare(directory.as_ref()),
        ["gpu", directory] => gpu::pack(directory.as_ref(), None),
        ["gpu", directory, golden] => gpu::pack(directory.as_ref(), Some(golden.as_ref())),
        [] | ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            Ok(())
        }
        _ => bail!("unknown command {arguments:?}\n{HELP}"),
    }
}
