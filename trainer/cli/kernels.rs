//! `precast kernels`

use std::path::{Path, PathBuf};

use clap::Args;
use precast_fatbins::Bundle;
use precast_kernels::Arch;
use precast_system::{files, say};

use super::doctor::features;
use super::output::print_json;
use crate::device::bundle::{BundleSource, framed};
use crate::options::Kernels;
use crate::run::failure::Failure;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    kernels: Kernels,
    /// Only those of this architecture
    #[arg(long, value_name = "ARCH")]
    arch: Option<Arch>,
    /// Write the embedded bundle to a file, as `precast-aot build` does. A trainer with the kernels of all
    /// architectures has a bundle of each: name one by --arch
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "bundle"])]
    write: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { kernels, arch, write, json } = arguments;
    let rows = match kernels.bundle {
        None => framed(),
        Some(_) => Vec::new(),
    };
    let asked: Vec<Option<Arch>> = match arch {
        Some(_) => vec![arch],
        None if rows.is_empty() => vec![None],
        None => rows.iter().copied().map(Some).collect(),
    };
    let sources = asked.into_iter().filter_map(|arch| kernels.source(arch).transpose());
    let sources = sources.collect::<Result<Vec<BundleSource>, _>>()?;
    if sources.is_empty() {
        say!("no kernels are embedded: this trainer runs on the simulated GPU alone.");
        say!("Build it for a GPU with: cargo build --release --features {}", features());
        return Ok(());
    }
    let bundles = sources.iter().map(verified).collect::<Result<Vec<Bundle<'_>>, Failure>>()?;
    if let Some(arch) = arch.filter(|arch| bundles.iter().all(|bundle| !bundle.archs().contains(arch))) {
        let held = kernels.archs()?.into_iter().map(Arch::argument).collect::<Vec<_>>().join(", ");
        return Err(Failure::usage(format!("--arch {}: the kernels here are for {held}", arch.argument())));
    }
    match (write, &*bundles) {
        (Some(_), [bundle]) if rows.is_empty() && arch.is_some() => {
            let held = bundle.archs().into_iter().filter(|arch| *arch != Arch::Sim).map(Arch::name);
            let held = held.collect::<Vec<_>>().join(", ");
            Err(Failure::usage(format!("--write: this trainer has one bundle, for {held}: leave --arch out")))
        }
        (Some(out), [bundle]) => save(bundle, &out),
        (Some(_), _) => {
            let each: Vec<&str> = rows.into_iter().map(Arch::argument).collect();
            let each = each.join(", ");
            Err(Failure::usage(format!(
                "--write: this trainer has a bundle of each architecture: add --arch, of {each}"
            )))
        }
        (None, _) => {
            list(&bundles, arch, json);
            Ok(())
        }
    }
}

/// Opens a bundle, all of its digests checked.
fn verified(source: &BundleSource) -> Result<Bundle<'_>, Failure> {
    let bundle = source.open()?;
    bundle.verify().map_err(|error| source.refuse(error))?;
    Ok(bundle)
}

/// Writes a bundle to a file that is not there yet.
fn save(bundle: &Bundle<'_>, out: &Path) -> Result<(), Failure> {
    if out.exists() {
        return Err(Failure::usage(format!("--write {} is there already: name another file", out.display())));
    }
    let file = bundle.encode();
    files::write_whole(out, &file).map_err(Failure::io("write", out))?;
    say!("{}: {} bytes, manifest {}", out.display(), file.len(), bundle.digest());
    Ok(())
}

fn list(bundles: &[Bundle<'_>], arch: Option<Arch>, json: bool) {
    let modules = bundles.iter().flat_map(|bundle| &bundle.manifest().modules);
    let asked = modules.filter(|module| arch.is_none_or(|arch| module.arch == arch.name()));
    let with_code = asked.filter_map(|module| Some((module, module.code.as_ref()?)));
    let manifests: Vec<String> = bundles.iter().map(|bundle| bundle.digest().to_string()).collect();
    let first = bundles[0].manifest();
    if json {
        let rows: Vec<serde_json::Value> = with_code
            .map(|(module, code)| {
                serde_json::json!({
                    "arch": module.arch, "key": module.key, "variant": module.variant,
                    "sha256": code.digest.to_string(), "bytes": code.bytes,
                })
            })
            .collect();
        print_json(&serde_json::json!({
            "manifest": manifests.join(" "),
            "compiler": first.compiler,
            "models": first.built_for,
            "kernels": rows,
        }));
        return;
    }
    manifests.iter().for_each(|manifest| say!("manifest {manifest}"));
    say!("{}, for {}", first.compiler, first.built_for.join(", "));
    for (module, code) in with_code {
        say!("{:<7} {}  {}[{}]", module.arch, code.digest, module.key, module.variant);
    }
}
