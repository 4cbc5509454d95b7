//! `cargo xtask simt NAME`: the CUDA sources of some kernels, as they lie on disk, executed and checked on the host.

#![allow(clippy::print_stdout)]

mod checkout;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::process::ExitCode;

use precast_core::{Arch, Key, KeyVariant};
use precast_kernels::KERNELS;
use precast_simt::Simt;
use precast_simt::suite::{ARCHS, Check, SEEDS, check_each};

use checkout::Checkout;

type Error = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let texts: Vec<String> = std::env::args().skip(1).collect();
    match simt(&texts) {
        Ok(said) => {
            println!("== {said}");
            ExitCode::SUCCESS
        }
        // Without a backtrace, which would be of this program and not of what it checks.
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Checks what is named, on every architecture, with three seeds.
fn simt(texts: &[String]) -> Result<String, Error> {
    let mut builds = Vec::new();
    for text in texts {
        builds.extend(named(text)?);
    }
    let simt = Simt::new(Path::new("target/simt"), Path::new("target/tmp/kernels"))?;
    let checkout = Checkout::at(Path::new("."));
    let source = |built| checkout.source(&built).map_err(Error::from);
    let done = |_: &Check, said: Result<&str, &str>| {
        println!("{}", said.unwrap_or_else(|fault| fault));
        Ok(())
    };
    check_each(&simt, &Check::of(builds), &SEEDS, &source, &done)
}

/// Builds of examples whose name has `text`, or of the key whose name it is. None is an error: what checks nothing
/// finds nothing.
fn named(text: &str) -> Result<Vec<(KeyVariant, Arch)>, Error> {
    let keys: Vec<Key> = KERNELS.parse(text).map_or_else(|_| KERNELS.examples(), |key| vec![key]);
    let built = |key: &Key| ARCHS.map(|arch| key.built(arch).map(|pair| (pair, arch)).collect::<Vec<_>>());
    let mut builds: Vec<(KeyVariant, Arch)> = keys.iter().flat_map(built).flatten().collect();
    builds.retain(|(pair, arch)| format!("{arch} {pair}").contains(text));
    match builds.is_empty() {
        false => Ok(builds),
        true => {
            Err(format!("no example has `{text}` in its name: `cargo xtask simt` runs all, and models' kernels").into())
        }
    }
}
