//! The library, its versions and its environment.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use precast_system::cause;

use super::ffi::Functions;

/// File name of versions 13.
const LIBRARY: &str = "libcublasLt.so.13";

/// Directory of the library, or the library itself; excludes all other places.
const VARIABLE: &str = "PRECAST_CUBLAS";

/// Variables with directories of CUDA toolkits.
const TOOLKITS: [&str; 2] = ["CUDA_HOME", "CUDA_PATH"];

/// Default directory of a toolkit.
const TOOLKIT: &str = "/usr/local/cuda";

/// Known versions, for messages.
pub const KNOWN_VERSIONS: &str = "versions from 13.0 on and below 14";

/// Versions that [`ffi`] describes, as `cublasLtGetVersion` counts them: 13.0.0 or newer, below 14.
const LEAST_VERSION: usize = 130_000;
const NEXT_VERSION: usize = 140_000;

/// A version of cuBLASLt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(usize);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0 / 10_000, self.0 / 100 % 100, self.0 % 100)
    }
}

/// A missing or unusable cuBLASLt. All variants share `remedy`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CublasError {
    /// No place has it.
    #[error("cuBLASLt: there is no {LIBRARY}. Looked for:{}\n{}", lines(tried), REMEDY)]
    NotFound {
        /// Places searched, with any other version found there.
        tried: Vec<String>,
    },
    /// The library does not open or lacks a function.
    #[error("cuBLASLt: {} cannot be used: {reason}\n{}", path.display(), REMEDY)]
    Unusable {
        /// The library.
        path: PathBuf,
        /// Error of the loader.
        reason: String,
    },
    /// The library is of a version that is not known.
    #[error(
        "cuBLASLt: {} is cuBLASLt {version}, which is too {}: known are {KNOWN_VERSIONS}\n{}",
        path.display(), if version.0 < LEAST_VERSION { "old" } else { "new" }, REMEDY
    )]
    Version {
        /// The library.
        path: PathBuf,
        /// Its version.
        version: Version,
    },
    /// An environment variable changes its results.
    #[error("{name}={value} is set: cuBLASLt would {effect}; unset it, or do without cuBLASLt")]
    Environment {
        /// Name of the variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// Its effect, behind "would".
        effect: &'static str,
    },
}

const REMEDY: &str = "CUDA 13's toolkit has it, and so has `pip install \"nvidia-cublas==13.*\"`, in nvidia/cu13/lib \
    of its \
                      site-packages: PRECAST_CUBLAS=DIR names that directory. Or do without it";

fn lines(tried: &[String]) -> String {
    tried.iter().map(|line| format!("\n  {line}")).collect()
}

/// Variables under which cuBLASLt computes other bits for the same GEMM.
const ENVIRONMENT: [(&str, &str); 4] = [
    ("NVIDIA_TF32_OVERRIDE", "round the inputs of GEMMs another way"),
    ("CUBLAS_EMULATE_SINGLE_PRECISION", "emulate fp32 GEMMs"),
    ("CUBLAS_EMULATION_STRATEGY", "emulate fp32 GEMMs"),
    ("CUBLASLT_HEURISTICS_LUT_FILE", "choose algorithms by a file"),
];

/// The opened library, which stays open until the process ends.
#[derive(Clone, Copy)]
pub struct Cublas {
    pub(crate) functions: &'static Functions,
    version: Version,
}

impl Cublas {
    /// Finds the library, opens it and checks its version. Needs no GPU.
    ///
    /// # Errors
    /// [`CublasError`] if it is missing, of another version, or a variable would change its results.
    pub fn open() -> Result<Self, CublasError> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        check_environment(variable)?;
        let mut tried = Vec::new();
        for place in places(variable) {
            // A bare name is resolved on the library path.
            if place.is_absolute() && !place.is_file() {
                tried.push(format!("{}: not there{}", place.display(), instead(&place)));
                continue;
            }
            // SAFETY: opening runs the library's initializers; this one registers its kernels.
            match unsafe { libloading::Library::new(&place) } {
                Ok(library) => return Self::checked(library, &place),
                Err(error) if place.is_absolute() => {
                    return Err(CublasError::Unusable { path: place, reason: cause(&error) });
                }
                Err(error) => {
                    tried.push(format!("on the library path: {}{}", cause(&error), on_library_path(variable)));
                }
            }
        }
        Err(CublasError::NotFound { tried })
    }

    fn checked(library: libloading::Library, path: &Path) -> Result<Self, CublasError> {
        // Its registered kernels may run until the process ends.
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        let unusable =
            |error: libloading::Error| CublasError::Unusable { path: path.to_owned(), reason: cause(&error) };
        // SAFETY: this function has had this type in every version.
        let version = unsafe { library.get::<unsafe extern "C" fn() -> usize>("cublasLtGetVersion") };
        // SAFETY: it takes nothing and has no preconditions.
        let version = Version(unsafe { version.map_err(unusable)?() });
        if !(LEAST_VERSION..NEXT_VERSION).contains(&version.0) {
            return Err(CublasError::Version { path: path.to_owned(), version });
        }
        // SAFETY: it is a version 13, and it stays open.
        let functions = unsafe { Functions::of(library) }.map_err(unusable)?;
        Ok(Self { functions: Box::leak(Box::new(functions)), version })
    }

    /// Returns the version of the library.
    pub fn version(&self) -> Version {
        self.version
    }
}

fn check_environment(variable: impl Fn(&str) -> Option<OsString>) -> Result<(), CublasError> {
    let set = |(name, effect): (&'static str, _)| Some((name, variable(name)?.to_string_lossy().into_owned(), effect));
    match ENVIRONMENT.into_iter().find_map(set) {
        Some((name, value, effect)) => Err(CublasError::Environment { name, value, effect }),
        None => Ok(()),
    }
}

/// Returns the library's possible paths, in search order.
fn places(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    if let Some(named) = variable(VARIABLE).map(PathBuf::from) {
        let named = std::path::absolute(&named).unwrap_or(named);
        return vec![if named.is_file() { named } else { named.join(LIBRARY) }];
    }
    let toolkits = TOOLKITS.into_iter().filter_map(&variable).chain([TOOLKIT.into()]);
    let in_toolkits = toolkits.map(|toolkit| Path::new(&toolkit).join("lib64").join(LIBRARY));
    let mut places: Vec<PathBuf> = std::iter::once(PathBuf::from(LIBRARY)).chain(in_toolkits).collect();
    places.dedup();
    places
}

/// Names another version of the library in the place of this one.
fn instead(place: &Path) -> String {
    let names = place.parent().and_then(|directory| std::fs::read_dir(directory).ok()).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let major = |name: &str| name.strip_prefix("libcublasLt.so.")?.parse::<u32>().ok();
    let mut others: Vec<u32> = names.filter_map(|name| major(&name)).collect();
    others.sort_unstable();
    let age = |major: u32| if major < 13 { "old" } else { "new" };
    let other = |major: &u32| format!(", but libcublasLt.so.{major}, which is too {}", age(*major));
    others.last().map(other).unwrap_or_default()
}

/// Like [`instead`], for the directories on the library path.
fn on_library_path(variable: impl Fn(&str) -> Option<OsString>) -> String {
    let path = variable("LD_LIBRARY_PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let others = directories.iter().map(|directory| instead(&directory.join(LIBRARY)));
    others.into_iter().find(|other| !other.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set<'a>(variables: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<OsString> + Copy + 'a {
        move |name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
    }

    #[test]
    fn versions_read_as_nvidia_counts_them() {
        assert_eq!(
            [130_002, 120_901, 140_100].map(|version| Version(version).to_string()),
            ["13.0.2", "12.9.1", "14.1.0"]
        );
    }

    #[test]
    fn cublas_is_looked_for_where_it_is_named_and_in_toolkits() {
        let found =
            |variables: &[_]| places(set(variables)).iter().map(|p| p.display().to_string()).collect::<Vec<_>>();
        let default = ["libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13"];
        assert_eq!(found(&[]), default);
        let home =
            ["libcublasLt.so.13", "/opt/cuda/lib64/libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13"];
        assert_eq!(found(&[("CUDA_HOME", "/opt/cuda"), ("CUDA_PATH", "/opt/cuda")]), home);
        assert_eq!(
            found(&[("CUDA_HOME", "/opt/cuda"), ("PRECAST_CUBLAS", "/nowhere")]),
            ["/nowhere/libcublasLt.so.13"]
        );
        // A file stands for an explicitly named library.
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert_eq!(found(&[("PRECAST_CUBLAS", file)]), [file]);
    }

    #[test]
    fn another_version_in_its_place_is_named() {
        let dir = std::env::temp_dir().join(format!("precast-cublas-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let said = |name: &str| {
            std::fs::write(dir.join(name), "").unwrap();
            let said = instead(&dir.join(LIBRARY));
            std::fs::remove_file(dir.join(name)).unwrap();
            said
        };
        assert_eq!(said("libcublasLt.so.12"), ", but libcublasLt.so.12, which is too old");
        assert_eq!(said("libcublasLt.so.14"), ", but libcublasLt.so.14, which is too new");
        assert_eq!(said("libcublas.so.12"), "");
        std::fs::remove_dir(&dir).unwrap();
    }

    #[test]
    fn variables_under_which_gemms_have_other_bits_are_refused() {
        for (name, _) in ENVIRONMENT {
            let refused = check_environment(set(&[(name, "1")])).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("{name}=1 is set: cuBLASLt would ")), "{refused}");
        }
        assert_eq!(check_environment(set(&[("CUBLASLT_LOG_LEVEL", "5")])), Ok(()));
    }
}
