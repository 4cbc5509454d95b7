//! Embeds a program's kernels from its build script.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use precast_core::{Arch, Kernels};
use precast_fatbins::{Digest, Frame, TrustedKey};
use precast_system::{files, generated};

use crate::build::{Built, Request};
use crate::cache::Cache;
use crate::frames::frames;
use crate::lock::{self, Comparison, NotLocked, Part, Strictness};
use crate::{home, plain, prebuilt, toolchain};

/// Embeds the examples of a program's kernels, for no GPU yet.
///
/// ```ignore
/// #[path = "src/saxpy/mod.rs"]
/// mod saxpy;
///
/// fn main() -> Result<(), precast_aot::EmbedError> {
///     precast_aot::embed(&saxpy::KERNELS).archs(["sm_89", "sm_121"]).emit()
/// }
/// ```
pub fn embed<K: AsRef<Kernels>>(kernels: &'static K) -> Embed {
    Embed::of(Request::of_examples(kernels.as_ref(), Vec::new()))
}

/// Kernels that a build script embeds.
#[derive(Clone, Debug)]
pub struct Embed {
    request: Request,
    /// Names of no GPU.
    unknown: Vec<String>,
    locks: Option<Locks>,
    framed: bool,
    /// Folders of headers, in the package.
    folders: Vec<PathBuf>,
}

/// Lock files of a build.
#[derive(Clone, Debug)]
struct Locks {
    directory: PathBuf,
    parts: Vec<Part>,
    /// True for one of the whole program, which the build itself writes; those of parts are written by others.
    is_own: bool,
}

/// Kernels that cannot be embedded. A build script returns it from `main`: cargo then prints its text.
#[derive(thiserror::Error)]
#[error("the kernels cannot be embedded\n{0}")]
pub struct EmbedError(#[source] Box<dyn Error + Send + Sync>);

precast_core::debug_is_display!(EmbedError);

/// Puts an error of a build script's own steps behind the same words.
impl From<Box<dyn Error + Send + Sync>> for EmbedError {
    fn from(error: Box<dyn Error + Send + Sync>) -> Self {
        Self(error)
    }
}

fn boxed(error: impl Into<Box<dyn Error + Send + Sync>>) -> EmbedError {
    EmbedError(error.into())
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
    /// Embeds the kernels of a request.
    pub fn of(request: Request) -> Self {
        Self { request, unknown: Vec::new(), locks: None, framed: false, folders: Vec::new() }
    }

    /// Adds GPUs to compile for, by name: `sm_89`, `sm_90`. The simulated GPU is always added.
    #[must_use]
    pub fn archs(mut self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        for name in names {
            match name.as_ref().parse() {
                Ok(arch) if arch != Arch::Sim => self.request.archs.push(arch),
                _ => self.unknown.push(name.as_ref().to_owned()),
            }
        }
        self
    }

    /// Names a folder of the package in which files that are taken as they are find headers, besides their own. Each
    /// header that one may read is part of its digest; one that lies elsewhere is refused.
    #[must_use]
    pub fn include_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folders.push(folder.into());
        self
    }

    /// Refuses kernels that differ from those of `PROGRAM.lock` in a directory of the package. `PRECAST_LOCK=1` writes
    /// the build's architectures into the file.
    #[must_use]
    pub fn locked(self, directory: impl Into<PathBuf>) -> Self {
        let Request { kernels, keys, .. } = &self.request;
        let (name, command) = (kernels.program.to_owned(), "PRECAST_LOCK=1 cargo build".to_owned());
        let part = Part { name, keys: keys.clone(), strictness: Strictness::Required, command };
        Self { locks: Some(Locks { directory: directory.into(), parts: vec![part], is_own: true }), ..self }
    }

    /// Refuses kernels that differ from the lock files of these parts, in a directory of the package.
    #[must_use]
    pub fn locked_in(self, directory: impl Into<PathBuf>, parts: Vec<Part>) -> Self {
        Self { locks: Some(Locks { directory: directory.into(), parts, is_own: false }), ..self }
    }

    /// Compresses the bundle of each architecture in a frame of its own if `framed`, for programs that have many:
    /// [`precast_fatbins::Embedded::open`] then takes the architecture of the GPU at hand.
    #[must_use]
    pub fn framed(self, framed: bool) -> Self {
        Self { framed, ..self }
    }

    /// Compiles through the cache, or takes a bundle that was built elsewhere; compares with the locks; writes what
    /// [`precast_fatbins::embedded!`] includes into `OUT_DIR`, and the bundle to the file that `PRECAST_BUNDLE` names,
    /// if it does.
    ///
    /// The compiler is the pinned one, installed on first use below the target folder, or the one that the environment
    /// names (`PRECAST_NVRTC`, `CUDA_HOME`). `PRECAST_FATBINS` names the directory of a `precast.bundle` to take
    /// instead.
    ///
    /// # Errors
    /// [`EmbedError`] with every kernel that does not compile, spills, exceeds a multiprocessor or is not as locked; a
    /// [`PlainError`](crate::PlainError) where declarations are not of their files.
    ///
    /// # Panics
    /// Outside of a build script.
    pub fn emit(self) -> Result<(), EmbedError> {
        instruct("rerun-if-changed=build.rs");
        if !self.unknown.is_empty() {
            let known = Arch::GPUS.map(Arch::argument).join(", ");
            return Err(boxed(format!("no architecture {}: there are {known}", self.unknown.join(", "))));
        }
        let folder = |name: &str| PathBuf::from(std::env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name}")));
        let (out, package) = (folder("OUT_DIR"), folder("CARGO_MANIFEST_DIR"));
        let sources = package.join("src");
        if sources.is_dir() {
            generated::check_all(&package, &sources).map_err(boxed)?;
        }
        let changes = |path: &Path| instruct(format_args!("rerun-if-changed={}", path.display()));
        plain::check(self.request.kernels, &package, &self.folders, &changes).map_err(boxed)?;
        let built = match variable("PRECAST_FATBINS") {
            Some(directory) => self.published(&package.join(directory))?,
            None => self.compiled(&home(&out))?,
        };
        self.check(&built, &package)?;
        if let Some(file) = variable("PRECAST_BUNDLE") {
            files::write_whole(&package.join(file), &built.encode()).map_err(boxed)?;
        }
        let text = match self.framed {
            true => framed(&out, &built, &self.request.archs),
            false => sections(&out, &built),
        };
        files::write_whole(&out.join("precast.rs"), text.map_err(boxed)?.as_bytes()).map_err(boxed)
    }

    fn compiled(&self, home: &Path) -> Result<Built, EmbedError> {
        if self.request.archs.is_empty() {
            return Ok(crate::build::simulated(&self.request));
        }
        for name in ["PRECAST_NVRTC", "CUDA_HOME"].into_iter().chain(toolchain::OFFLINE) {
            instruct(format_args!("rerun-if-env-changed={name}"));
        }
        let announce = |what: &str| instruct(format_args!("warning={what}"));
        let mut nvrtc = toolchain::provide(home, announce).map_err(boxed)?;
        if self.request.kernels.plain_kernels().iter().any(|kernel| kernel.unit.is_ptx()) {
            nvrtc = nvrtc.with_assembler(toolchain::assembler(home, announce).map_err(boxed)?);
        }
        instruct(format_args!("rerun-if-changed={}", nvrtc.path().display()));
        if toolchain::is_named(home) {
            let (compiler, path) = (nvrtc.compiler(), nvrtc.path().display());
            instruct(format_args!("warning=kernels are compiled by {compiler} at {path}, which the environment names"));
        }
        crate::build(&self.request, &nvrtc, &Cache::at(home.join("cache")), &|_, _| {}).map_err(boxed)
    }

    fn published(&self, directory: &Path) -> Result<Built, EmbedError> {
        instruct(format_args!("rerun-if-changed={}", directory.display()));
        let keys = variable("PRECAST_TRUSTED_KEY").unwrap_or_default();
        let keys: Result<Vec<TrustedKey>, _> = keys.split_whitespace().map(TrustedKey::find).collect();
        prebuilt::select(directory, &keys.map_err(boxed)?, &self.request).map_err(boxed)
    }

    /// Checks kernels against the locks. A kernel that is not as locked is an error, and so is a required file that is
    /// missing; both are warnings under PRECAST_UNLOCKED.
    fn check(&self, built: &Built, package: &Path) -> Result<(), EmbedError> {
        let archs = &self.request.archs;
        let Some(Locks { directory, parts, is_own }) = &self.locks else { return Ok(()) };
        let directory = package.join(directory);
        for part in parts {
            instruct(format_args!("rerun-if-changed={}", lock::path(&directory, &part.name).display()));
        }
        let writes = variable("PRECAST_LOCK").is_some_and(|value| value != "0");
        if let (true, true, [part]) = (writes, *is_own, &**parts) {
            return lock::write(&built.manifest, part, archs, &directory).map_err(boxed);
        }
        let Comparison { changes, unlocked } =
            lock::compare(&built.manifest, parts, archs, &directory).map_err(boxed)?;
        let any_allowed = variable("PRECAST_UNLOCKED").is_some_and(|value| value != "0");
        let compiler = &built.manifest.compiler;
        let refused = |error: &dyn fmt::Display| {
            boxed(format!(
                "{error}\nThese are by {compiler}. PRECAST_UNLOCKED=1 embeds them all the same, with a warning"
            ))
        };
        for Part { name, strictness, command, .. } in unlocked {
            let lacks = format!("no lock {}: {command} writes it", lock::path(&directory, name).display());
            if !any_allowed && *strictness != Strictness::Optional {
                return Err(refused(&lacks));
            }
            instruct(format_args!("warning={lacks}"));
        }
        if !changes.is_empty() && !any_allowed {
            let command = parts.first().map_or_else(String::new, |part| part.command.clone());
            return Err(refused(&NotLocked { directory, changes, command }));
        }
        changes.iter().for_each(|change| instruct(format_args!("warning=not as locked: {change}")));
        if changes.is_empty() {
            instruct(format_args!("rustc-env=PRECAST_LOCKS={}", digests(&directory, parts).map_err(boxed)?));
        }
        Ok(())
    }
}

/// Names the lock files of parts: `NAME DIGEST, NAME DIGEST`.
fn digests(directory: &Path, parts: &[Part]) -> io::Result<String> {
    let files = parts.iter().map(|part| (&part.name, lock::path(directory, &part.name)));
    let digest = |(name, path): (&String, PathBuf)| Ok(format!("{name} {}", Digest::of(&std::fs::read(path)?)));
    files.filter(|(_, path)| path.is_file()).map(digest).collect::<io::Result<Vec<_>>>().map(|each| each.join(", "))
}

fn home(out: &Path) -> PathBuf {
    let triple = std::env::var("TARGET").expect("cargo sets TARGET");
    variable("PRECAST_HOME").map_or_else(|| home::of_build(out, &triple), PathBuf::from)
}

/// Writes the two sections of a bundle. Returns the expression over them: statics in the sections that cuobjdump and
/// `precast-aot inspect` look for, aligned as in a bundle.
fn sections(out: &Path, built: &Built) -> io::Result<String> {
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
fn framed(out: &Path, built: &Built, archs: &[Arch]) -> io::Result<String> {
    let mut items = String::new();
    for frame in frames(built, archs, &Cache::at(home(out).join("cache"))) {
        let Frame { arch, bytes, base, sha256: Digest(sha256), bundle_bytes, bundle: Digest(bundle) } = frame;
        std::fs::write(out.join(format!("{arch}.frame")), bytes)?;
        let base = base.map_or("None".to_owned(), |base| format!("Some(precast_fatbins::Arch::{base:?})"));
        items += &format!(
            "    precast_fatbins::Frame {{ arch: precast_fatbins::Arch::{arch:?}, base: {base}, bytes: \
            include_bytes!(concat!(env!(\"OUT_DIR\"), \
             \"/{arch}.frame\")), sha256: precast_fatbins::Digest({sha256:?}), bundle_bytes: {bundle_bytes}, \
             bundle: precast_fatbins::Digest({bundle:?}) }},\n"
        );
    }
    Ok(format!("precast_fatbins::Embedded::Frames(&[\n{items}])\n"))
}
