//! Tells the package what it is built for: the `cc` crate asks.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=SIMT_TARGET={}", std::env::var("TARGET").unwrap_or_default());
}
