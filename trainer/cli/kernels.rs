//! `precast kernels`

use clap::Args;
use precast_system::say;

use super::print_json;
use crate::device::bundle::BundleSource;
use crate::options::Kernels;
use crate::programs::failure::Failure;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    kernels: Kernels,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> Result<(), Failure> {
    if let Some(source) = arguments.kernels.source()? {
        return list(&source, arguments.json);
    }
    say!("no kernels are embedded: this trainer runs on the simulated GPU alone.");
    say!("Build it for a GPU with: cargo build --release --features sm_89 (or sm_90, sm_121, or several)");
    Ok(())
}

fn list(source: &BundleSource, json: bool) -> Result<(), Failure> {
    let bundle = source.open()?;
    bundle.verify().map_err(|error| source.refuse(error))?;
    let with_code = bundle.manifest().modules.iter().filter_map(|m| Some((m, m.code.as_ref()?)));
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
            "manifest": bundle.digest().to_string(),
            "compiler": bundle.manifest().compiler,
            "models": bundle.manifest().models,
            "kernels": rows,
        }));
        return Ok(());
    }
    say!("manifest {}", bundle.digest());
    say!("{}, for {}", bundle.manifest().compiler, bundle.manifest().models.join(", "));
    for (module, code) in with_code {
        say!("{:<7} {}  {}[{}]", module.arch, code.digest, module.key, module.variant);
    }
    Ok(())
}
