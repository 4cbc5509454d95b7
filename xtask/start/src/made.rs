//! Files that a program is made of: have they changed since?

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Files that a build is made of and that cargo does not write down.
const MANIFESTS: [&str; 7] = [
    ".cargo/config.toml",
    "Cargo.lock",
    "Cargo.toml",
    "kernels/Cargo.toml",
    "kernels/simt/Cargo.toml",
    "rust-toolchain.toml",
    "xtask/simt/Cargo.toml",
];

/// Folders of CUDA sources: the checker reads these itself. Headers that declare kernels are in Rust, too.
const CUDA: [&str; 3] = ["kernels/core/cuda/", "kernels/cuda/", "kernels/src/"];

/// Stands beside a program: its time is when the build of that began. An edit in the meantime may have come too late.
fn stamp(program: &Path) -> PathBuf {
    program.with_extension("began")
}

/// Writes down when the build of a program began.
///
/// # Errors
/// Those of the file system.
pub fn write(program: &Path, began: SystemTime) -> io::Result<()> {
    fs::File::create(stamp(program))?.set_modified(began)
}

/// True if no file that a program was built of has changed since its build began, CUDA sources apart. Cargo lists them
/// beside it.
pub fn is_of_what_is_there(program: &Path, root: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
    let Some(began) = modified(&stamp(program)).filter(|_| program.is_file()) else { return false };
    let Ok(list) = fs::read_to_string(program.with_extension("d")) else { return false };
    let manifests = MANIFESTS.map(|name| root.join(name)).into_iter().filter(|path| path.exists());
    let is_older = |path: &PathBuf| modified(path).is_some_and(|time: SystemTime| time < began);
    let mut files = files(&list).into_iter().filter(|path| !is_cuda(path, root)).chain(manifests);
    files.all(|path| is_older(&path))
}

/// The files behind the colon of `program: file file`, in which a space of a name is `\ `.
fn files(list: &str) -> Vec<PathBuf> {
    let Some((_, files)) = list.lines().next().and_then(|line| line.split_once(": ")) else { return Vec::new() };
    let marked = files.replace("\\ ", "\0");
    marked.split_whitespace().map(|name| name.replace('\0', " ").into()).collect()
}

fn is_cuda(path: &Path, root: &Path) -> bool {
    let name = path.strip_prefix(root).map(|below| below.to_string_lossy()).unwrap_or_default();
    CUDA.iter().any(|folder| name.starts_with(folder)) && [".cu", ".cuh"].iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_program_is_built_again_after_edits_but_of_cuda_sources() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30);
        let put = |name: &str, time: SystemTime| {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            path
        };
        let program = put("target/debug/xtask-simt", old);
        write(&program, old + Duration::from_secs(1)).unwrap();
        let names = [
            "kernels/src/cast/mod.rs",
            "kernels/src/cast/cast.cu",
            "kernels/src/cast/cast.h",
            "kernels/simt/machine/a b.h",
        ];
        let list: Vec<String> =
            names.iter().map(|name| put(name, old).display().to_string().replace(' ', "\\ ")).collect();
        let is_made = || is_of_what_is_there(&program, &root);
        assert!(!is_made(), "nobody says what it is made of");
        fs::write(program.with_extension("d"), format!("{}: {}\n", program.display(), list.join(" "))).unwrap();
        assert!(is_made());
        for (name, is_made_after) in names.into_iter().zip([false, true, false, false]).chain([("Cargo.lock", false)]) {
            put(name, SystemTime::now());
            assert_eq!(is_made(), is_made_after, "after an edit of {name}");
            put(name, old);
        }
        fs::remove_file(root.join(names[0])).unwrap();
        assert!(!is_made(), "a file is gone");
    }
}
