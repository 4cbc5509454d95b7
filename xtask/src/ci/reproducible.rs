//! Checks that two builds that share only sources, compilers and linker give the same bytes, also of plain kernels and
//! PTX, and that one changed character in a kernel's source changes that family's kernels and no other.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, ensure};
use precast_aot::{home, lock};
use precast_models::SHARED_LOCK;

use super::checkout::copy_checkout;
use crate::release::environment::cargo_home;
use crate::run::{output, root, step};
use crate::{build, examples};

/// A bundle of every row, in a checkout.
const BUNDLE: &str = "target/reproducible/precast.bundle";

/// Builds this checkout and a copy of it, and compares; then changes a source of the copy. Does `meanwhile` while the
/// copy compiles kernels.
pub fn check(meanwhile: impl FnOnce() -> Result<()>) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (own, copy) = (root().canonicalize()?, dir.path().join("another place/b"));
    copy_checkout(&copy)?;
    toolchain(&copy)?;
    let cargo_home = another_cargo_home(dir.path())?;
    build::build()?;
    let mut again = elsewhere(&copy, &cargo_home)?;
    step("build in another directory, with another CARGO_HOME and a noisy environment", build::whole(&mut again))?;
    same("target/reproducible/release/precast", &own, &copy)?;

    // Each has a cache that begins empty, so it compiles every kernel itself.
    let fresh = dir.path().join("fresh");
    toolchain(&fresh)?;
    let [mut first, mut second] = [(&own, &fresh, "2"), (&copy, &copy, "1")].map(|(checkout, home, threads)| {
        let mut bundle = Command::new(checkout.join("target/reproducible/release/precast-aot"));
        bundle.current_dir(checkout).args(["build", "--locked", "--jobs", threads, "--out", BUNDLE]);
        bundle.env("PRECAST_HOME", home.join("target/precast"));
        bundle
    });
    noise(&mut second);
    step("this checkout's bundle, with 2 threads", &mut first)?;
    let (compiled, others) = thread::scope(|scope| {
        let compiling = scope.spawn(|| step("the copy's bundle, with 1 thread", &mut second));
        let others = meanwhile();
        (compiling.join().expect("a step does not panic"), others)
    });
    compiled.and_then(|()| same(BUNDLE, &own, &copy)).and(others)?;
    one_changed_character(&copy, elsewhere(&copy, &cargo_home)?)?;
    plain_kernels(dir.path())
}

/// Returns a `cargo build` of a copy in a noisy environment.
fn elsewhere(copy: &Path, cargo_home: &Path) -> Result<Command> {
    let mut command = build::reproducible(copy, "build")?;
    build::flags(&mut command, copy, cargo_home);
    noise(command.env("CARGO_HOME", cargo_home));
    Ok(command)
}

/// Builds kernels of CUDA and PTX that know nothing of this project, here and in a copy with a cache of its own, and
/// compares their bundles.
fn plain_kernels(dir: &Path) -> Result<()> {
    let [here, there] = ["here", "there"].map(|name| dir.join(name));
    toolchain(&there)?;
    let build = |folder: &Path, target: &str, to: &Path| {
        examples::command(folder, target, &["build"]).map(|mut build| {
            build.env("PRECAST_BUNDLE", to.join("plain.bundle"));
            build
        })
    };
    step("plain kernels", &mut build(Path::new("docs/examples/plain"), "target", &here)?)?;
    let mut again = build(&examples::copied("plain", &[])?, examples::OF_COPIES, &there)?;
    noise(again.env("PRECAST_HOME", there.join("target/precast")));
    step("plain kernels in another directory and a noisy environment", &mut again)?;
    same("plain.bundle", &here, &there)
}

/// Compares a file in two directories.
pub fn same(file: &str, a: &Path, b: &Path) -> Result<()> {
    let read =
        |checkout: &Path| fs::read(checkout.join(file)).with_context(|| checkout.join(file).display().to_string());
    let (a, b) = (read(a)?, read(b)?);
    let differs = a.iter().zip(&b).position(|(a, b)| a != b);
    ensure!(a == b, "{file}: two builds differ, first at byte {differs:?} of {} and {}", a.len(), b.len());
    println!("== {file}: the same {} bytes twice, {}", a.len(), precast_fatbins::Digest::of(&a));
    Ok(())
}

/// Installs the pinned tools for a checkout, without a cache: those that are installed here now, whatever it had
/// before.
pub fn toolchain(checkout: &Path) -> Result<()> {
    let home = checkout.join("target/precast");
    fs::create_dir_all(&home)?;
    let installed = home::directory().join("toolchain").canonicalize()?;
    link(&installed, &home.join("toolchain"))
}

/// Puts a link in place of what is there: another link, or a directory of tools that were pinned before.
fn link(to: &Path, path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => fs::remove_dir_all(path)?,
        Ok(_) => fs::remove_file(path)?,
        Err(_) => {}
    }
    symlink(to, path).with_context(|| path.display().to_string())
}

/// Makes a CARGO_HOME of another name with the same registry.
pub fn another_cargo_home(dir: &Path) -> Result<PathBuf> {
    let home = dir.join("cargo home");
    fs::create_dir_all(&home)?;
    let own = cargo_home()?;
    for name in ["registry", "config.toml"] {
        if own.join(name).exists() {
            symlink(own.join(name), home.join(name))?;
        }
    }
    Ok(home)
}

/// Sets variables that must not show in any output.
pub fn noise(command: &mut Command) {
    for (name, value) in [
        ("NVCC_PREPEND_FLAGS", "-G"),
        ("NVCC_APPEND_FLAGS", "-lineinfo"),
        ("CPATH", "/usr/include"),
        ("LC_ALL", "tr_TR.UTF-8"),
        ("TZ", "Asia/Kathmandu"),
        ("SOURCE_DATE_EPOCH", "1"),
        ("USER", "somebody"),
        ("HOSTNAME", "elsewhere"),
        ("RAYON_NUM_THREADS", "1"),
    ] {
        command.env(name, value);
    }
}

/// Adds one character to a kernel's source and checks that exactly that family's kernels are reported.
fn one_changed_character(checkout: &Path, mut build: Command) -> Result<()> {
    const SOURCE: &str = "kernels/src/swiglu/fwd.cu";
    // Rows in int8 are written by another source.
    let is_its = |line: &str| line.contains(" swiglu.fwd{") && !line.contains("out=");
    let path = checkout.join(SOURCE);
    let text = fs::read_to_string(&path)?;
    fs::write(&path, format!("{text};\n"))?;
    step("build with one more character in a source", build.args(["--package", "precast-models"]))?;
    let program = checkout.join("target/reproducible/release/precast-aot");
    let check = Command::new(&program).current_dir(checkout).args(["lock", "--check"]).output()?;
    ensure!(check.status.code() == Some(3), "lock --check ends with {} where a source changed", check.status);
    let message = String::from_utf8_lossy(&check.stderr);
    let changed: Vec<&str> = message.lines().filter(|line| line.starts_with("  ")).collect();
    let lock = fs::read_to_string(lock::path(&checkout.join("aot/models/locks"), SHARED_LOCK))?;
    let expected = lock.lines().filter(|line| is_its(line)).count();
    ensure!(expected > 0, "no swiglu.fwd is locked");
    ensure!(
        changed.len() == expected && changed.iter().all(|line| line.contains("CHANGED") && is_its(line)),
        "expected {expected} changed swiglu.fwd kernels and no others:\n{message}"
    );
    println!("== one character in {SOURCE}: {expected} kernels CHANGED, no others");
    let built = output(Command::new(&program).current_dir(checkout).args(["build", "--out", BUNDLE]))?;
    println!("{built}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_checkout_gets_the_tools_installed_now() {
        let dir = tempfile::tempdir().unwrap();
        let [old, new, path] = ["old", "new", "kept"].map(|name| dir.path().join(name));
        let tools = |path: &Path, version: &str| {
            fs::create_dir_all(path).unwrap();
            fs::write(path.join("version"), version).unwrap();
        };
        let version = || fs::read_to_string(path.join("version")).unwrap();
        tools(&new, "new");
        tools(&path, "copied");
        link(&new, &path).unwrap();
        assert_eq!(version(), "new", "in place of a copy");
        symlink(&old, dir.path().join("to-nothing")).unwrap();
        fs::rename(dir.path().join("to-nothing"), &path).unwrap();
        link(&new, &path).unwrap();
        assert_eq!(version(), "new", "in place of a link to nothing");
        tools(&old, "old");
        link(&old, &path).unwrap();
        link(&new, &path).unwrap();
        assert_eq!([version(), fs::read_to_string(old.join("version")).unwrap()], ["new", "old"]);
    }
}
