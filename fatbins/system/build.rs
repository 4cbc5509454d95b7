//! Tells `built` which compiler makes the programs, and for which machine.

// Cargo reads what a build script prints.
#![allow(clippy::print_stdout)]

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"));
    let rustc = Command::new(variable("RUSTC")).arg("--version").output().expect("rustc starts");
    println!("cargo::rustc-env=PRECAST_RUSTC={}", String::from_utf8_lossy(&rustc.stdout).trim());
    println!("cargo::rustc-env=PRECAST_TARGET={}", variable("TARGET"));
}
