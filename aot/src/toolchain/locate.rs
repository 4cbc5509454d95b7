//! Finds NVRTC: an explicit path, `PRECAST_NVRTC`, `CUDA_HOME`, the pinned wheel, the program's own Python environment.
//! A system compiler is used only if it is named.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::beside::{self, BesideError};
use super::pins;
use crate::nvrtc::{Nvrtc, NvrtcError};

/// No usable NVRTC.
#[derive(Debug, thiserror::Error)]
pub enum LocateError {
    /// There is none in any place.
    #[error(
        "no NVRTC found; looked for\n{}\nInstall the pinned one, from this directory, with: precast-aot toolchain \
        install",
        looked.iter().map(|place| format!("  {place}")).collect::<Vec<_>>().join("\n")
    )]
    NotFound {
        /// Places searched.
        looked: Vec<String>,
    },
    /// The environment's NVRTC is not the pinned one.
    #[error(transparent)]
    Beside(#[from] BesideError),
    /// NVRTC was found and does not work.
    #[error(transparent)]
    Nvrtc(#[from] NvrtcError),
}

/// File names of NVRTC, newest first.
const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// Loads the first NVRTC found: `explicit` (a file or a directory; else `$PRECAST_NVRTC`), `$CUDA_HOME`, the pinned
/// wheel below `home`, the same package in the Python environment that holds this program.
///
/// # Errors
/// [`LocateError`] with every place searched.
pub fn nvrtc(explicit: Option<&Path>, home: &Path) -> Result<Nvrtc, LocateError> {
    let path = match find(explicit, home, |name| std::env::var_os(name)) {
        Ok(path) => path,
        // Nothing stands in for a compiler that is named.
        Err(looked) if looked.len() == 1 => return Err(LocateError::NotFound { looked }),
        Err(looked) => in_environment(looked)?,
    };
    Ok(Nvrtc::load(&path)?)
}

/// Finds the package in the environment that holds this program, after these places.
fn in_environment(mut looked: Vec<String>) -> Result<PathBuf, LocateError> {
    let packages = std::env::current_exe().map_or_else(|_| Vec::new(), |program| beside::packages(&program));
    if let Some(library) = beside::find(&packages)? {
        return Ok(library);
    }
    let package = pins::NVRTC.package;
    looked.extend(packages.iter().map(|packages| {
        format!("{package} in {} (pip install 'precast[compiler]' puts it there)", packages.display())
    }));
    Err(LocateError::NotFound { looked })
}

/// True if the environment names the compiler of a build, which then is not the pinned one.
pub fn is_named(home: &Path) -> bool {
    find(None, home, |name| std::env::var_os(name)).is_ok_and(|path| path != pinned(home))
}

/// Path of the pinned NVRTC once installed.
pub fn pinned(home: &Path) -> PathBuf {
    pins::NVRTC.installed(home, pins::NVRTC.files[0])
}

/// Returns the library; if there is none, the places that were searched.
pub(super) fn find(
    explicit: Option<&Path>,
    home: &Path,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<PathBuf, Vec<String>> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let explicit = explicit.map(|path| (path.to_owned(), "given explicitly"));
    let named = explicit.or_else(|| Some((variable("PRECAST_NVRTC")?, "named by $PRECAST_NVRTC")));
    if let Some((path, by)) = named {
        // An explicitly named compiler is used or is an error.
        let found = if path.is_dir() { in_directory(&path) } else { Some(path.clone()).filter(|path| path.is_file()) };
        return found.ok_or_else(|| vec![format!("{} ({by})", path.display())]);
    }
    let mut looked = vec!["$PRECAST_NVRTC (not set)".to_owned()];
    match variable("CUDA_HOME") {
        None => looked.push("$CUDA_HOME (not set)".to_owned()),
        Some(toolkit) => match in_toolkit(&toolkit) {
            Some(found) => return Ok(found),
            None => looked.push(format!("{} in $CUDA_HOME = {}", NAMES[0], toolkit.display())),
        },
    }
    let pinned = pinned(home);
    if pinned.is_file() {
        return Ok(pinned);
    }
    looked.push(format!("{} (the pinned wheel)", pinned.display()));
    Err(looked)
}

/// Finds NVRTC in a toolkit's library directories.
fn in_toolkit(home: &Path) -> Option<PathBuf> {
    ["lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"]
        .iter()
        .find_map(|directory| in_directory(&home.join(directory)))
}

fn in_directory(directory: &Path) -> Option<PathBuf> {
    NAMES.iter().map(|name| directory.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn file(path: PathBuf) -> PathBuf {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        path
    }

    #[test]
    fn what_is_named_comes_first_and_the_pinned_one_last() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        let named = file(dir.path().join("named/libnvrtc.so.12"));
        let toolkit = file(dir.path().join("toolkit/lib64/libnvrtc.so.13"));
        let own = |name: &str| match name {
            "PRECAST_NVRTC" => Some(dir.path().join("named").into_os_string()),
            "CUDA_HOME" => Some(dir.path().join("toolkit").into_os_string()),
            _ => None,
        };
        let only = |wanted: &'static str| move |name: &str| own(name).filter(|_| name == wanted);
        assert_eq!(find(None, &home, own), Ok(named.clone()));
        assert_eq!(find(Some(&toolkit), &home, own), Ok(toolkit.clone()));
        assert_eq!(find(None, &home, only("CUDA_HOME")), Ok(toolkit.clone()));
        let empty = |name: &str| own(name).map(|_| OsString::new());
        assert!(find(None, &home, empty).is_err());
        let pinned = file(pinned(&home));
        assert_eq!(find(None, &home, only("neither")), Ok(pinned));
        assert_eq!(find(None, &home, own), Ok(named));
        // A toolkit without a compiler is skipped; an explicitly named compiler that is missing is an error.
        fs::remove_file(&toolkit).unwrap();
        assert!(find(None, &home, only("CUDA_HOME")).unwrap().starts_with(&home));
        assert!(find(Some(&toolkit), &home, own).is_err());
    }

    #[test]
    fn nothing_is_searched_that_nobody_named() {
        let home = Path::new("/no/home");
        let looked = find(None, home, |_| None).unwrap_err();
        let expected = "/no/home/toolchain/nvidia-cuda-nvrtc-13.0.88/libnvrtc.so.13 (the pinned wheel)";
        assert_eq!(looked, ["$PRECAST_NVRTC (not set)", "$CUDA_HOME (not set)", expected]);
        // `cargo run` works inside of a checkout alone, whose home is another.
        let message = LocateError::NotFound { looked }.to_string();
        assert!(message.ends_with("with: precast-aot toolchain install"), "{message}");
    }
}
