//! The commands a person or CI types: `cargo xtask demo`, `cargo xtask test`, ...

#![allow(clippy::print_stdout)]

mod abi;
mod build;
mod ci;
mod demo;
mod deny;
mod gpu;
mod run;
mod setup;
mod simt;
mod test;
mod truth;

use anyhow::{Result, bail};

const HELP: &str = "\
cargo xtask demo        everything a newcomer needs, then a real distillation with a report
cargo xtask test        everything a newcomer needs, then every check: format, lints, documentation, dependencies, tests,
                        and the CUDA sources of every kernel on the CPU
cargo xtask build       the trainer as releases are built: its bytes do not depend on where
cargo xtask ci [DIR]    test, then prove the artifact: locked, reproducible, published, built offline;
                        DIR (target/ci) receives what to upload
cargo xtask prove [DIR] the second half of ci
cargo xtask fresh       the part of that which builds a fresh clone, with and without a network
cargo xtask abi         regenerate kernels/src/abi.rs from the headers of kernels/abi
cargo xtask simt [TEXT] run the CUDA sources of every kernel whose name has TEXT on the CPU, under a checker
cargo xtask simt --report [TEXT]
                        what they move: sectors a request, share of the bytes that was needed, bank conflicts
cargo xtask truth       likelihoods of real models against exact ones (fetches 1.2 GB)
cargo xtask gpu DIR     pack programs, tests and data for a machine with a GPU and no Rust";

fn main() -> Result<()> {
    std::env::set_current_dir(run::root())?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["demo"] => demo::demo(),
        ["test"] => test::test(),
        ["build"] => build::build().map(drop),
        ["ci"] => ci::ci("target/ci".as_ref()),
        ["ci", directory] => ci::ci(directory.as_ref()),
        ["prove"] => ci::prove("target/ci".as_ref()),
        ["prove", directory] => ci::prove(directory.as_ref()),
        ["fresh"] => ci::fresh(),
        ["abi"] => abi::abi(),
        ["simt"] => simt::simt(""),
        ["simt", "--report"] => simt::report(""),
        ["simt", "--report", text] => simt::report(text),
        ["simt", text] => simt::simt(text),
        ["truth"] => truth::truth(),
        ["gpu", directory] => gpu::pack(directory.as_ref()),
        [] | ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            Ok(())
        }
        _ => bail!("unknown command {arguments:?}\n{HELP}"),
    }
}
