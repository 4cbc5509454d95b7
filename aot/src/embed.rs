//! Embeds a program's kernels from its build script.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

use precast_core::{Arch, Registry};
use precast_fatbins::{Digest, TrustedKey};
use precast_system::files;

use crate::build::{Built, Request};
use crate::cache::Cache;
use crate::frames::{Framed, frames};
use crate::lock::{self, Comparison, NotLocked, Part, Strictness};
use crate::{home, prebuilt, toolchain};

/// Returns a builder that embeds the examples of a program's kernels, for no GPU yet.
///
/// ```ignore
/// #[path = "src/kernels/mod.rs"]
/// mod kernels;
///
/// fn main() -> Result<(), precast_aot::EmbedError> {
///     precast_aot::embed(&kernels::KERNELS).archs(["sm_89", "sm_121"]).emit()
/// }
/// ```
pub fn embed(kernels: &'static Registry) -> Embed {
    Embed { request: Request::of_examples(kernels, Vec::new()), unknown: Vec::new(), locks: None, framed: false }
}

/// What a build script embeds.
#[derive(Clone, Debug)]
pub struct Embed {
    request: Request,
    /// Names of no architecture.
    unknown: Vec<String>,
    locks: Option<Locks>,
    framed: bool,
}

/// Lock files of a build.
#[derive(Clone, Debug)]
struct Locks {
    directory: PathBuf,
    parts: Vec<Part>,
    /// Command that writes them.
    command: String,
}

/// Kernels that cannot be embedded. A build script returns it from `main`: cargo then prints its text.
pub struct EmbedError(Box<dyn Error + Send + Sync>);

impl fmt::Debug for EmbedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kernels cannot be embedded\n{}", self.0)
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for EmbedError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

/// Returns the architectures that the package being built has as enabled features: `sm_89`, `sm_90`.
pub fn features() -> Vec<&'static str> {
    let enabled = |name: &&str| std::env::var_os(format!("CARGO_FEATURE_{}", name.to_uppercase())).is_some();
    Arch::GPUS.into_iter().filter_map(Arch::feature).filter(enabled).collect()
}

/// Instructs cargo, which reads what a build script prints.
#[allow(clippy::print_stdout)]
pub fn instruct(instruction: impl fmt::Display) {
    println!("cargo::{instruction}");
}

/// Reads an environment variable that the build depends on.
pub fn variable(name: &str) -> Option<String> {
    instruct(format_args!("rerun-if-env-changed={name}"));
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Embed {
    /// Adds GPUs to compile for, by name: `sm_89`, `sm_90`. The simulated GPU is always added.
    #[must_use]
    pub fn archs(mut self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        for name in names {
            match name.as_ref().parse() {
                Ok(arch) => self.request.archs.push(arch),
                Err(_) => self.unknown.push(name.as_ref().to_owned()),
            }
        }
        self
    }

    /// Embeds these kernels instead, for their architectures.
    #[must_use]
    pub fn request(self, request: Request) -> Self {
        Self { request, ..self }
    }

    /// Refuses kernels that differ from those of `PROGRAM.lock` in a directory below the package. `PRECAST_LOCK=1` writes
    /// the file.
    #[must_use]
    pub fn locked(self, directory: impl Into<PathBuf>) -> Self {
        let Request { kernels, keys, .. } = self.request.clone();
        let part = Part { name: kernels.program.to_owned(), keys, strictness: Strictness::Required };
        self.locks(directory, vec![part], "PRECAST_LOCK=1 cargo build")
    }

    /// Refuses kernels that differ from the lock files of these parts, which `command` writes.
    #[must_use]
    pub fn locks(self, directory: impl Into<PathBuf>, parts: Vec<Part>, command: &str) -> Self {
        let locks = Locks { directory: directory.into(), parts, command: command.to_owned() };
        Self { locks: Some(locks), ..self }
    }

    /// Compresses the bundle of each architecture in a frame of its own if `framed`, for programs that have many.
    #[must_use]
    pub fn framed(self, framed: bool) -> Self {
        Self { framed, ..self }
    }

    /// Compiles through the cache, or takes a published bundle; compares with the locks; writes what
    /// [`precast_fatbins::embedded!`] includes into `OUT_DIR`.
    ///
    /// The compiler is the pinned one, installed on first use below the target folder, or the one that the environment
    /// names (`PRECAST_NVRTC`, `CUDA_HOME`). `PRECAST_FATBINS` names a directory with a bundle to take instead.
    ///
    /// # Errors
    /// [`EmbedError`] with every kernel that does not compile, spills, exceeds a multiprocessor or is not as locked.
    ///
    /// # Panics
    /// Outside of a build script.
    pub fn emit(self) -> Result<(), EmbedError> {
        instruct("rerun-if-changed=build.rs");
        if !self.unknown.is_empty() {
            let known = Arch::GPUS.map(Arch::argument).join(", ");
            return Err(format!("no architecture {}: there are {known}", self.unknown.join(", ")).into());
        }
        let folder = |name: &str| PathBuf::from(std::env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name}")));
        let (out, package) = (folder("OUT_DIR"), folder("CARGO_MANIFEST_DIR"));
        let built = match variable("PRECAST_FATBINS") {
            Some(directory) => self.published(&package.join(directory))?,
            None => self.compiled(&home(&out))?,
        };
        self.check(&built, &package)?;
        let text = match self.framed {
            true => framed(&out, &built, &self.request.archs)?,
            false => sections(&out, &built)?,
        };
        Ok(files::write_whole(&out.join("precast.rs"), text.as_bytes())?)
    }

    fn compiled(&self, home: &Path) -> Result<Built, EmbedError> {
        if self.request.archs.is_empty() {
            return Ok(crate::build::simulated(&self.request));
        }
        for name in ["PRECAST_NVRTC", "CUDA_HOME"].into_iter().chain(toolchain::OFFLINE) {
            instruct(format_args!("rerun-if-env-changed={name}"));
        }
        let nvrtc = toolchain::provide(home, |what| instruct(format_args!("warning={what}")))?;
        instruct(format_args!("rerun-if-changed={}", nvrtc.path().display()));
        if toolchain::is_named(home) {
            let (compiler, path) = (nvrtc.compiler(), nvrtc.path().display());
            instruct(format_args!("warning=kernels are compiled by {compiler} at {path}, which the environment names"));
        }
        Ok(crate::build(&self.request, &nvrtc, &Cache::at(home.join("cache")), &|_, _| {})?)
    }

    fn published(&self, directory: &Path) -> Result<Built, EmbedError> {
        instruct(format_args!("rerun-if-changed={}", directory.display()));
        let keys = variable("PRECAST_TRUSTED_KEY").unwrap_or_default();
        let keys: Result<Vec<TrustedKey>, _> = keys.split_whitespace().map(TrustedKey::find).collect();
        Ok(prebuilt::select(directory, &keys?, &self.request)?)
    }

    /// Checks kernels against the locks. A kernel that is not as locked is an error, and so is a required file that is
    /// missing; both are warnings under PRECAST_UNLOCKED.
    fn check(&self, built: &Built, package: &Path) -> Result<(), EmbedError> {
        let Some(Locks { directory, parts, command }) = &self.locks else { return Ok(()) };
        let directory = package.join(directory);
        for part in parts {
            instruct(format_args!("rerun-if-changed={}", lock::path(&directory, &part.name).display()));
        }
        if variable("PRECAST_LOCK").is_some_and(|value| value != "0") {
            return Ok(lock::write(&built.manifest, parts, &self.request.archs, &directory)?);
        }
        let Comparison { changes, unlocked } = lock::compare(&built.manifest, parts, &self.request.archs, &directory)?;
        let any_allowed = variable("PRECAST_UNLOCKED").is_some_and(|value| value != "0");
        let compiler = &built.manifest.compiler;
        let refused = |error: &dyn fmt::Display| {
            format!("{error}\nThese are by {compiler}. PRECAST_UNLOCKED=1 embeds them all the same, with a warning")
        };
        for (name, strictness) in unlocked {
            let lacks = format!("no lock {}: {command} writes it", lock::path(&directory, &name).display());
            if !any_allowed && strictness == Strictness::Required {
                return Err(refused(&lacks).into());
            }
            instruct(format_args!("warning={lacks}"));
        }
        if !changes.is_empty() && !any_allowed {
            return Err(refused(&NotLocked { directory, changes, command: command.clone() }).into());
        }
        changes.iter().for_each(|change| instruct(format_args!("warning=not as locked: {change}")));
        Ok(())
    }
}

fn home(out: &Path) -> PathBuf {
    let triple = std::env::var("TARGET").expect("cargo sets TARGET");
    variable("PRECAST_HOME").map_or_else(|| home::of_build(out, &triple), PathBuf::from)
}

/// Writes the two sections of a bundle. Returns the expression over them: statics in the sections that cuobjdump and
/// `precast-aot inspect` look for, aligned as in a bundle.
fn sections(out: &Path, built: &Built) -> Result<String, EmbedError> {
    let (fatbin, manifest) = built.parts();
    std::fs::write(out.join("bundle.fatbin"), &fatbin)?;
    std::fs::write(out.join("bundle.manifest"), &manifest)?;
    let (fatbin_bytes, manifest_bytes, digest) = (fatbin.len(), manifest.len(), built.digest());
    Ok(format!(
        r#"{{
    #[repr(C, align(16))]
    struct Section<const N: usize>([u8; N]);
    #[used]
    #[unsafe(link_section = ".nv_fatbin")]
    static FATBIN: Section<{fatbin_bytes}> = Section(*include_bytes!(concat!(env!("OUT_DIR"), "/bundle.fatbin")));
    #[used]
    #[unsafe(link_section = ".precast")]
    static MANIFEST: Section<{manifest_bytes}> = Section(*include_bytes!(concat!(env!("OUT_DIR"), "/bundle.manifest")));
    precast_fatbins::Embedded::Sections {{ manifest: &MANIFEST.0, fatbin: &FATBIN.0, digest: "{digest}" }}
}}
"#
    ))
}

/// Writes a frame an architecture, compressed in parallel through the cache. Returns the expression over them.
fn framed(out: &Path, built: &Built, archs: &[Arch]) -> Result<String, EmbedError> {
    let rows = frames(built, archs, &Cache::at(home(out).join("cache")));
    let mut items = String::new();
    for (arch, frame) in archs.iter().zip(rows) {
        let Framed { bytes, bundle_bytes, bundle } = frame;
        std::fs::write(out.join(format!("{arch}.frame")), &bytes)?;
        let (sha256, bundle) = (Digest::of(&bytes).0, bundle.0);
        items += &format!(
            "    precast_fatbins::Frame {{ arch: precast_fatbins::Arch::{arch:?}, bytes: include_bytes!(concat!(env!(\"OUT_DIR\"), \
             \"/{arch}.frame\")), sha256: precast_fatbins::Digest({sha256:?}), bundle_bytes: {bundle_bytes}, \
             bundle: precast_fatbins::Digest({bundle:?}) }},\n"
        );
    }
    Ok(format!("precast_fatbins::Embedded::Frames(&[\n{items}])\n"))
}
