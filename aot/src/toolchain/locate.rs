//! Finding NVRTC: an explicit path, `CUDA_HOME`, the pinned wheel, the system.

use std::path::{Path, PathBuf};

use super::pins;
use crate::nvrtc::{Nvrtc, NvrtcError};

/// No NVRTC can be used.
#[derive(Debug, thiserror::Error)]
pub enum LocateError {
    /// None was found.
    #[error(
        "no NVRTC found; looked for\n{}\nInstall the pinned one with: cargo run --release -p precast-aot -- toolchain install",
        looked.iter().map(|place| format!("  {place}")).collect::<Vec<_>>().join("\n")
    )]
    NotFound {
        /// Where it was looked for.
        looked: Vec<String>,
    },
    /// One was found and does not work.
    #[error(transparent)]
    Nvrtc(#[from] NvrtcError),
}

/// File names of NVRTC, newest first.
const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// Loads the first NVRTC found: `explicit` (a file or a directory; else `$PRECAST_NVRTC`), `$CUDA_HOME`, the
/// pinned wheel below `home`, the system's CUDA and library path. The pinned wheel comes before the system:
/// whoever installed it wants its bytes.
///
/// # Errors
/// [`LocateError`] that lists every place.
pub fn nvrtc(explicit: Option<&Path>, home: &Path) -> Result<Nvrtc, LocateError> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let mut looked = Vec::new();
    if let Some(path) = explicit.map(Path::to_owned).or_else(|| variable("PRECAST_NVRTC")) {
        // What was asked for by name is used or is an error.
        let found = if path.is_dir() { in_directory(&path) } else { Some(path.clone()).filter(|path| path.exists()) };
        return match found {
            Some(found) => Ok(Nvrtc::load(&found)?),
            None => Err(LocateError::NotFound { looked: vec![format!("{} (given explicitly)", path.display())] }),
        };
    }
    let pinned = pins::NVRTC.installed(home, pins::NVRTC.files[0]);
    let places = [
        ("CUDA_HOME", variable("CUDA_HOME").as_deref().and_then(in_toolkit)),
        ("the pinned wheel", Some(pinned.clone()).filter(|path| path.exists())),
        ("/usr/local/cuda", in_toolkit(Path::new("/usr/local/cuda"))),
    ];
    for (place, found) in places {
        match found {
            Some(path) => return Ok(Nvrtc::load(&path)?),
            None if place == "CUDA_HOME" => looked.push(match variable(place) {
                Some(home) => format!("{} in $CUDA_HOME = {}", NAMES[0], home.display()),
                None => "$CUDA_HOME (not set)".to_owned(),
            }),
            None if place == "the pinned wheel" => looked.push(format!("{} (the pinned wheel)", pinned.display())),
            None => looked.push(format!("{} in {place}", NAMES[0])),
        }
    }
    for name in NAMES {
        if let Ok(nvrtc) = Nvrtc::load(Path::new(name)) {
            return Ok(nvrtc);
        }
    }
    looked.push(format!("{} on the system's library path", NAMES.join(", ")));
    Err(LocateError::NotFound { looked })
}

/// NVRTC in a toolkit's library directories.
fn in_toolkit(home: &Path) -> Option<PathBuf> {
    ["lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"]
        .iter()
        .find_map(|directory| in_directory(&home.join(directory)))
}

fn in_directory(directory: &Path) -> Option<PathBuf> {
    NAMES.iter().map(|name| directory.join(name)).find(|path| path.exists())
}
