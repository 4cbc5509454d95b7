//! Compiles and embeds the kernels of the architectures asked for as features; with none, embeds nothing and
//! needs no CUDA toolchain.

use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    if let Err(error) = embed::write(&out) {
        eprintln!("error: the kernels cannot be embedded\n{error}");
        std::process::exit(1);
    }
}

#[cfg(not(feature = "_kernels"))]
mod embed {
    pub fn write(out: &std::path::Path) -> Result<(), std::io::Error> {
        std::fs::write(out.join("embedded.rs"), "static EMBEDDED: Embedded = Embedded::Nothing;\n")
    }
}

#[cfg(feature = "_kernels")]
mod embed {
    use std::error::Error;
    use std::path::{Path, PathBuf};

    use precast_aot::cache::Cache;
    use precast_aot::lock::{self, Comparison, NotLocked};
    use precast_aot::{Arch, Built, Framed, Request, home, prebuilt, toolchain};
    use precast_fatbins::{Digest, TrustedKey};
    use precast_models::{Model, Selection};

    /// Compiles through the cache, or takes a published bundle; compares with the locks; writes the two sections and
    /// the statics that hold them.
    pub fn write(out: &Path) -> Result<(), Box<dyn Error>> {
        let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
        let selection = Selection::of_models(models()?, archs());
        let request = selection.request();
        let built = match variable("PRECAST_FATBINS") {
            Some(directory) => published(&root.join(directory), &request)?,
            None => compiled(out, &request)?,
        };
        check(&built, &selection, &root.join("fatbins")).map_err(|error| {
            let compiler = &built.manifest.compiler;
            format!("{error}\nThese are by {compiler}. PRECAST_UNLOCKED=1 embeds them all the same, with a warning")
        })?;
        let text = match std::env::var_os("CARGO_FEATURE_ALL") {
            Some(_) => frames(out, &built, &request.archs)?,
            None => sections(out, &built)?,
        };
        std::fs::write(out.join("embedded.rs"), text)?;
        Ok(())
    }

    /// Writes the two sections of a bundle. Returns their statics.
    fn sections(out: &Path, built: &Built) -> Result<String, std::io::Error> {
        let (fatbin, manifest) = built.parts();
        std::fs::write(out.join("bundle.fatbin"), &fatbin)?;
        std::fs::write(out.join("bundle.manifest"), &manifest)?;
        Ok(statics(fatbin.len(), manifest.len(), &built.digest().to_string()))
    }

    /// Writes a frame an architecture, compressed in parallel through the cache. Returns the static over them.
    fn frames(out: &Path, built: &Built, archs: &[Arch]) -> Result<String, Box<dyn Error>> {
        let cache = Cache::at(home(out).join("cache"));
        let rows = precast_aot::frames(built, archs, &cache);
        let mut items = String::new();
        for (arch, frame) in archs.iter().zip(rows) {
            let Framed { bytes, bundle_bytes, bundle } = frame;
            std::fs::write(out.join(format!("{arch}.frame")), &bytes)?;
            let (sha256, bundle) = (Digest::of(&bytes).0, bundle.0);
            items += &format!(
                "    Frame {{ arch: Arch::{arch:?}, bytes: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{arch}.frame\")), \
                 sha256: precast_fatbins::Digest({sha256:?}), bundle_bytes: {bundle_bytes}, bundle: precast_fatbins::Digest({bundle:?}) }},\n"
            );
        }
        Ok(format!("static EMBEDDED: Embedded = Embedded::Frames(&[\n{items}]);\n"))
    }

    fn home(out: &Path) -> PathBuf {
        let triple = std::env::var("TARGET").expect("cargo sets TARGET");
        variable("PRECAST_HOME").map_or_else(|| home::of_build(out, &triple), PathBuf::from)
    }

    /// Reads an environment variable that this build depends on.
    fn variable(name: &str) -> Option<String> {
        println!("cargo::rerun-if-env-changed={name}");
        std::env::var(name).ok().filter(|value| !value.is_empty())
    }

    fn compiled(out: &Path, request: &Request) -> Result<Built, Box<dyn Error>> {
        for name in ["PRECAST_NVRTC", "CUDA_HOME"].into_iter().chain(toolchain::OFFLINE) {
            println!("cargo::rerun-if-env-changed={name}");
        }
        let home = home(out);
        let nvrtc = toolchain::provide(&home, |what| println!("cargo::warning={what}"))?;
        println!("cargo::rerun-if-changed={}", nvrtc.path().display());
        if toolchain::is_named(&home) {
            let (compiler, path) = (nvrtc.compiler(), nvrtc.path().display());
            println!("cargo::warning=kernels are compiled by {compiler} at {path}, which the environment names");
        }
        Ok(precast_aot::build(request, &nvrtc, &Cache::at(home.join("cache")), &|_, _| {})?)
    }

    fn published(directory: &Path, request: &Request) -> Result<Built, Box<dyn Error>> {
        println!("cargo::rerun-if-changed={}", directory.display());
        let keys = variable("PRECAST_TRUSTED_KEY").unwrap_or_default();
        let keys: Result<Vec<TrustedKey>, _> = keys.split_whitespace().map(TrustedKey::find).collect();
        Ok(prebuilt::select(directory, &keys?, request)?)
    }

    /// Checks kernels against the locks. An unlocked kernel is an error, and so is a built-in model without a lock;
    /// both are warnings under PRECAST_UNLOCKED. A user's model needs no lock.
    fn check(built: &Built, selection: &Selection, locks: &Path) -> Result<(), Box<dyn Error>> {
        for model in &selection.models {
            println!("cargo::rerun-if-changed={}", lock::path(locks, &model.name).display());
        }
        let Comparison { changes, unlocked } =
            lock::compare(&built.manifest, &selection.locked(), &selection.archs, locks)?;
        let any_allowed = variable("PRECAST_UNLOCKED").is_some_and(|value| value != "0");
        for model in unlocked {
            let lacks = format!("model {model} has no lock: precast-aot lock --model {model} writes it");
            if !any_allowed && Model::built_in().iter().any(|built_in| built_in.name == model) {
                return Err(lacks.into());
            }
            println!("cargo::warning={lacks}");
        }
        if !changes.is_empty() && !any_allowed {
            return Err(NotLocked { directory: locks.to_owned(), changes }.into());
        }
        changes.iter().for_each(|change| println!("cargo::warning=not as locked: {change}"));
        Ok(())
    }

    fn archs() -> Vec<Arch> {
        let enabled = |arch: &Arch| {
            let feature = arch.feature().unwrap_or_default().to_uppercase();
            std::env::var_os(format!("CARGO_FEATURE_{feature}")).is_some()
        };
        Arch::GPUS.into_iter().filter(enabled).collect()
    }

    /// Returns the built-in models, or those named in PRECAST_BUILT_IN, and those in PRECAST_MODELS; both separated by
    /// colons.
    fn models() -> Result<Vec<Model>, Box<dyn Error>> {
        let mut models = Model::built_in();
        if let Some(named) = variable("PRECAST_BUILT_IN") {
            let named: Vec<&str> = named.split(':').collect();
            if let Some(unknown) = named.iter().find(|name| models.iter().all(|model| model.name != **name)) {
                let names: Vec<&str> = models.iter().map(|model| &*model.name).collect();
                let names = names.join(", ");
                return Err(format!("PRECAST_BUILT_IN names `{unknown}`, and built in are {names}").into());
            }
            models.retain(|model| named.contains(&&*model.name));
        }
        let named = variable("PRECAST_MODELS").unwrap_or_default();
        for name in named.split(':').filter(|name| !name.is_empty()) {
            let path = Path::new(name);
            if path.exists() {
                println!("cargo::rerun-if-changed={name}");
            }
            models.push(Model::find(name)?);
        }
        Ok(models)
    }

    /// Formats the statics in the sections that cuobjdump and the project's own tools look for, aligned as in a bundle.
    fn statics(fatbin_bytes: usize, manifest_bytes: usize, digest: &str) -> String {
        format!(
            r#"
#[repr(C, align(16))]
struct Section<const N: usize>([u8; N]);
#[used]
#[unsafe(link_section = ".nv_fatbin")]
static FATBIN: Section<{fatbin_bytes}> = Section(*include_bytes!(concat!(env!("OUT_DIR"), "/bundle.fatbin")));
#[used]
#[unsafe(link_section = ".precast")]
static MANIFEST: Section<{manifest_bytes}> = Section(*include_bytes!(concat!(env!("OUT_DIR"), "/bundle.manifest")));
static EMBEDDED: Embedded =
    Embedded::Sections {{ manifest: &MANIFEST.0, fatbin: &FATBIN.0, digest: "{digest}" }};
"#
        )
    }
}
