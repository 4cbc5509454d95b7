//! The tools of a release, and their digests: what ran, not what is pinned.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use precast_aot::home;
use precast_aot::toolchain::pins::{self, Pin};
use precast_fatbins::Digest;
use precast_system::files::{self, walk};
use rayon::prelude::*;

use super::environment::{clean, folder};
use super::hosts::HOSTS;
use super::notices::notices;
use super::zig::{self, ZIG, Zig};
use crate::run::{output, step};
use crate::setup;

pub struct Tools {
    pub zig: Zig,
    pub rust: Rust,
    /// All that ran, for the provenance.
    pub ran: Vec<Tool>,
    /// Notices of what compiler and linker add, by name.
    pub notices: Vec<(String, Vec<u8>)>,
}

/// A tool: its version, where it is had, and the digest of each of its files or of a folder of them.
pub struct Tool {
    pub name: String,
    pub version: String,
    /// Package URL.
    pub uri: String,
    pub files: BTreeMap<String, Digest>,
}

/// The toolchain that rustup gives this checkout.
pub struct Rust {
    /// Takes symbols from programs; a part of rustc's component.
    pub objcopy: PathBuf,
    /// Sources of the standard library, where that is installed, and how they are called where it is not.
    pub sources: (PathBuf, String),
    /// Folder of its notices.
    pub notices: PathBuf,
}

impl Tools {
    /// Installs the tools that are missing, and digests all.
    pub fn new(checkout: &Path) -> Result<Self> {
        setup::compiler()?;
        let zig = setup::install(&ZIG)?.join("zig");
        let (rust, rustc) = rust(checkout)?;
        let installed = |file: &str| pins::NVRTC.installed(&home::directory(), file);
        let [nvrtc, builtins] = [installed(pins::NVRTC.files[0]), installed(pins::NVRTC.files[1])];
        let ran = vec![
            rustc,
            of_pin(&ZIG, [&zig, &zig.with_file_name("lib")], &zig::FILES)?,
            of_pin(&pins::NVRTC, [&nvrtc, &builtins], &pins::LIBRARIES)?,
        ];
        let notices = notices(&rust.notices, zig.parent().unwrap_or(&zig))?;
        Ok(Self { zig: Zig::new(&zig, &folder(checkout))?, rust, ran, notices })
    }
}

/// Digests two files or folders of an installed package, and checks that they are those of this machine's pinned wheel:
/// somebody may have changed them since.
fn of_pin(pin: &Pin, paths: [&Path; 2], pinned: &[(&str, [&str; 2])]) -> Result<Tool> {
    let Pin { package, version, .. } = pin;
    let own = pinned.iter().find(|(machine, _)| *machine == std::env::consts::ARCH);
    let (_, expected) = own.with_context(|| format!("{package} has no digests for this machine"))?;
    let mut files = BTreeMap::new();
    for (path, expected) in paths.into_iter().zip(expected) {
        let found = if path.is_dir() { of_folder(path)? } else { of_file(path)? };
        ensure!(
            found.to_string() == *expected,
            "{} has SHA-256 {found}, that of {package} {version} is {expected}: remove {}, and it is installed again",
            path.display(),
            home::directory().join("toolchain").join(format!("{package}-{version}")).display()
        );
        files.insert(path.file_name().unwrap_or_default().to_string_lossy().into_owned(), found);
    }
    let uri = format!("pkg:pypi/{package}@{version}");
    Ok(Tool { name: (*package).to_owned(), version: (*version).to_owned(), uri, files })
}

/// Finds rustc and what it links programs with, and checks that it is the version of `rust-toolchain.toml`.
fn rust(checkout: &Path) -> Result<(Rust, Tool)> {
    let ask = |arguments: &[&str]| output(clean("rustc").args(arguments).current_dir(checkout));
    let described = ask(&["--version", "--verbose"])?;
    let field = |name: &str| {
        let line = described.lines().find_map(|line| line.strip_prefix(name));
        line.map(|line| line.trim().to_owned()).with_context(|| format!("rustc names no {name}:\n{described}"))
    };
    let (version, commit, host) = (field("release:")?, field("commit-hash:")?, field("host:")?);
    let pinned = fs::read_to_string(checkout.join("rust-toolchain.toml"))?;
    ensure!(
        pinned.contains(&format!("channel = \"{version}\"")),
        "rustc is {version}, and rust-toolchain.toml names another: a release is of that one"
    );
    let root = PathBuf::from(ask(&["--print", "sysroot"])?.trim());
    let rustlib = root.join("lib/rustlib");
    let objcopy = rustlib.join(&host).join("bin/rust-objcopy");
    ensure!(objcopy.is_file(), "{} is not there: install rustc {version} by rustup", objcopy.display());
    let mut files = BTreeMap::from([
        ("cargo".to_owned(), files::digest(&root.join("bin/cargo"))?),
        ("rustc".to_owned(), files::digest(&root.join("bin/rustc"))?),
        ("rust-objcopy".to_owned(), files::digest(&objcopy)?),
    ]);
    for entry in fs::read_dir(root.join("lib"))? {
        let path = entry?.path();
        if path.is_file() {
            files.insert(format!("lib/{}", path.file_name().unwrap_or_default().display()), files::digest(&path)?);
        }
    }
    for target in HOSTS {
        let std = rustlib.join(target.triple).join("lib");
        if !std.is_dir() {
            let mut add = Command::new("rustup");
            add.args(["target", "add", target.triple]).current_dir(checkout);
            step(&format!("the standard library for {}", target.machine), &mut add)?;
        }
        files.insert(format!("lib/rustlib/{}/lib", target.triple), of_std(&rustlib, target.triple)?);
    }
    let sources = (rustlib.join("src/rust"), format!("/rustc/{commit}"));
    let uri = format!("pkg:generic/rust@{version}?vcs_url=git%2Bhttps://github.com/rust-lang/rust%40{commit}");
    let notices = root.join("share/doc/rust");
    Ok((Rust { objcopy, sources, notices }, Tool { name: "rustc".to_owned(), version, uri, files }))
}

/// Digests the standard library, by rust-std's manifest: llvm-tools puts files of its own into the same folder.
fn of_std(rustlib: &Path, triple: &str) -> Result<Digest> {
    let manifest = rustlib.join(format!("manifest-rust-std-{triple}"));
    let text = fs::read_to_string(&manifest).with_context(|| manifest.display().to_string())?;
    let below = format!("file:lib/rustlib/{triple}/lib/");
    let names: Vec<String> = text.lines().filter_map(|line| line.strip_prefix(&*below)).map(str::to_owned).collect();
    ensure!(!names.is_empty(), "{} lists no file of the standard library", manifest.display());
    of_files(&rustlib.join(triple).join("lib"), names)
}

/// Digests names and contents of all files below a folder.
pub fn of_folder(folder: &Path) -> Result<Digest> {
    let names = walk(folder)?.into_iter().collect::<Result<_, PathBuf>>();
    of_files(folder, names.map_err(|path| anyhow!("{} is no file with a name that is text", path.display()))?)
}

/// Digests names and contents of files below a folder.
fn of_files(folder: &Path, mut names: Vec<String>) -> Result<Digest> {
    names.sort();
    let digests: Vec<Digest> = names.par_iter().map(|name| of_file(&folder.join(name))).collect::<Result<_>>()?;
    let lines = names.iter().zip(digests).map(|(name, digest)| format!("{digest}  {name}\n"));
    Ok(Digest::of(lines.collect::<String>().as_bytes()))
}

fn of_file(path: &Path) -> Result<Digest> {
    files::digest(path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_digested_by_names_and_contents_not_by_place() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let digest = |name: &str| of_folder(&dir.path().join(name)).unwrap();
        [("a/x", "1"), ("a/b/y", "2"), ("c/b/y", "2"), ("c/x", "1")]
            .into_iter()
            .for_each(|(name, text)| put(name, text));
        let both = digest("a");
        assert_eq!(both, digest("c"));
        put("c/x", "3");
        assert_ne!(both, digest("c"));
        put("c/x", "1");
        fs::rename(dir.path().join("c/b/y"), dir.path().join("c/b/z")).unwrap();
        assert_ne!(both, digest("c"));
        assert!(of_folder(&dir.path().join("none")).unwrap_err().to_string().contains("none"));
    }

    #[test]
    fn a_tool_that_was_changed_since_it_was_installed_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let [program, folder] = ["zig", "lib"].map(|name| dir.path().join(name));
        fs::create_dir(&folder).unwrap();
        fs::write(&program, "zig").unwrap();
        fs::write(folder.join("c.zig"), "lib").unwrap();
        let digests = [of_file(&program).unwrap(), of_folder(&folder).unwrap()].map(|digest| digest.to_string());
        let pinned = [(std::env::consts::ARCH, [&*digests[0], &*digests[1]])];
        let tool = || of_pin(&ZIG, [&program, &folder], &pinned).map_err(|error| error.to_string());
        assert_eq!(tool().unwrap().files["lib"].to_string(), digests[1]);
        for path in [&program, &folder.join("c.zig")] {
            let whole = fs::read(path).unwrap();
            fs::write(path, "changed").unwrap();
            let message = tool().err().unwrap();
            assert!(message.contains("that of ziglang 0.15.2 is") && message.contains("ziglang-0.15.2"), "{message}");
            fs::write(path, whole).unwrap();
        }
        tool().unwrap();
        assert!(of_pin(&ZIG, [&program, &folder], &[("vax", ["", ""])]).is_err());
    }

    #[test]
    fn the_standard_library_is_digested_without_other_components() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        let digest = || of_std(dir.path(), "t").map_err(|error| format!("{error:#}"));
        fs::create_dir_all(dir.path().join("t/lib")).unwrap();
        put("t/lib/libstd.rlib", "1");
        put("t/lib/libcore.rlib", "2");
        assert!(digest().unwrap_err().contains("manifest-rust-std-t"));
        put("manifest-rust-std-t", "dir:lib/rustlib/t/lib\n");
        assert!(digest().unwrap_err().contains("lists no file"));
        put("manifest-rust-std-t", "file:lib/rustlib/t/lib/libstd.rlib\nfile:lib/rustlib/t/lib/libcore.rlib\n");
        let own = digest().unwrap();
        assert_eq!(own, of_folder(&dir.path().join("t/lib")).unwrap());
        put("t/lib/libLLVM.so", "3");
        assert_eq!(own, digest().unwrap());
        put("t/lib/libcore.rlib", "3");
        assert_ne!(own, digest().unwrap());
        fs::remove_file(dir.path().join("t/lib/libcore.rlib")).unwrap();
        assert!(digest().unwrap_err().contains("libcore.rlib"));
    }
}
