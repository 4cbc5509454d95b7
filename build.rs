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

#[cfg(not(any(feature = "sm_89", feature = "sm_90", feature = "sm_121")))]
mod embed {
    pub fn write(out: &std::path::Path) -> Result<(), std::io::Error> {
        std::fs::write(out.join("embedded.rs"), "static EMBEDDED: Option<Embedded> = None;\n")
    }
}

#[cfg(any(feature = "sm_89", feature = "sm_90", feature = "sm_121"))]
mod embed {
    use std::error::Error;
    use std::path::{Path, PathBuf};

    use precast_aot::cache::Cache;
    use precast_aot::{Model, Request, toolchain};

    /// Compiles through the cache and writes the two sections and the statics that hold them.
    pub fn write(out: &Path) -> Result<(), Box<dyn Error>> {
        for name in ["PRECAST_MODELS", "PRECAST_NVRTC", "PRECAST_HOME", "CUDA_HOME"] {
            println!("cargo::rerun-if-env-changed={name}");
        }
        let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
        let home = std::env::var_os("PRECAST_HOME").map_or_else(|| root.join("target/precast"), PathBuf::from);
        let request = Request { models: models()?, archs: archs() };
        let nvrtc = toolchain::nvrtc(None, &home)?;
        println!("cargo::rerun-if-changed={}", nvrtc.path().display());
        let built = precast_aot::build(&request, &nvrtc, &Cache::at(home.join("cache")), &|_, _| {})?;
        let (fatbin, manifest) = built.parts();
        std::fs::write(out.join("bundle.fatbin"), &fatbin)?;
        std::fs::write(out.join("bundle.manifest"), &manifest)?;
        std::fs::write(out.join("embedded.rs"), statics(fatbin.len(), manifest.len(), &built.digest().to_string()))?;
        Ok(())
    }

    fn archs() -> Vec<precast_aot::Arch> {
        let enabled = |arch: &precast_aot::Arch| {
            let feature = arch.feature().unwrap_or_default().to_uppercase();
            std::env::var_os(format!("CARGO_FEATURE_{feature}")).is_some()
        };
        precast_aot::Arch::GPUS.into_iter().filter(enabled).collect()
    }

    /// The built-in models, and those that PRECAST_MODELS names, separated by colons.
    fn models() -> Result<Vec<Model>, Box<dyn Error>> {
        let mut models = Model::built_in();
        let named = std::env::var("PRECAST_MODELS").unwrap_or_default();
        for name in named.split(':').filter(|name| !name.is_empty()) {
            let path = Path::new(name);
            if path.exists() {
                println!("cargo::rerun-if-changed={name}");
            }
            models.push(Model::find(name)?);
        }
        Ok(models)
    }

    /// Statics in the sections that cuobjdump and the project's own tools look for, aligned as in a bundle.
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
static EMBEDDED: Option<Embedded> =
    Some(Embedded {{ manifest: &MANIFEST.0, fatbin: &FATBIN.0, digest: "{digest}" }});
"#
        )
    }
}
