//! The libclang that reads the headers. `xtask/start`, for which nothing is built, has this file too.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Variable in which clang-sys finds the folder of libclang.
pub const VARIABLE: &str = "LIBCLANG_PATH";

/// Folder of the one that `cargo xtask abi` installs: package and version of its pin, which `xtask/src/abi.rs`
/// compares.
pub const PINNED: &str = "libclang-18.1.1";

/// Finds the folder of the libclang to use: the pinned one, below `home`, which is `PRECAST_HOME`, or else below the
/// target folder that a program lies in; or else `named`, the value of [`VARIABLE`]. Never any other: of another
/// version `abi.rs` might differ.
pub fn folder(program: &Path, home: Option<OsString>, named: Option<OsString>) -> Option<PathBuf> {
    let home = home.map(PathBuf::from).or_else(|| Some(program.parent()?.parent()?.join("precast")));
    let pinned = home.map(|home| home.join("toolchain").join(PINNED));
    pinned.filter(|folder| folder.join("libclang.so").exists()).or_else(|| named.map(PathBuf::from))
}

/// True if `folder` has a libclang of any version, or is its file: clang-sys panics where there is none.
pub fn is_in(folder: &Path) -> bool {
    let is_one = |name: &str| name.starts_with("libclang") && name.contains(".so");
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    folder.is_file() || names.filter_map(|entry| entry.file_name().into_string().ok()).any(|name| is_one(&name))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_pinned_libclang_comes_before_that_of_the_variable() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("target/debug/program");
        let home = dir.path().join("target/precast");
        let other = home.join("toolchain/libclang-17.0.6");
        fs::create_dir_all(&other).unwrap();
        fs::write(other.join("libclang.so"), "").unwrap();
        let named = || Some(OsString::from("/usr/lib/llvm"));
        assert_eq!(folder(&program, None, None), None, "another version");
        assert_eq!(folder(&program, None, named()), Some("/usr/lib/llvm".into()));
        let pinned = home.join("toolchain").join(PINNED);
        fs::create_dir_all(&pinned).unwrap();
        assert_eq!(folder(&program, None, None), None, "a folder without it");
        assert_eq!([&pinned, &other].map(|folder| is_in(folder)), [false, true]);
        fs::write(pinned.join("libclang.so"), "").unwrap();
        assert_eq!(folder(&program, None, named()), Some(pinned.clone()));
        assert_eq!(folder(Path::new("/"), Some(home.into()), None), Some(pinned));
    }
}
