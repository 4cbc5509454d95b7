//! `precast-aot inspect`

use std::path::PathBuf;

use clap::Args;
use precast_fatbins::{Bundle, Manifest, say};

use super::{Failure, print_json, read};

#[derive(Args)]
pub struct Arguments {
    /// The bundle
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let path = &arguments.file;
    let bytes = read(path)?;
    let bundle = Bundle::read(&bytes).map_err(|error| Failure::Bundle { path: path.clone(), error })?;
    if arguments.json {
        print_json(&json(&bundle));
    } else {
        let archs: Vec<String> = bundle.archs().iter().map(ToString::to_string).collect();
        say!("manifest   {}", bundle.digest());
        say!("compiler   {}", bundle.manifest().compiler);
        say!("options    {}", bundle.manifest().options.join(" "));
        say!("models     {}", bundle.manifest().models.join(", "));
        say!("archs      {}", archs.join(", "));
        say!("{}", table(bundle.manifest()));
    }
    Ok(())
}

fn table(manifest: &Manifest) -> String {
    let mut out = format!(
        "\n{:<7} {:>12} {:>8} {:>5} {:>7} {:>6} {:>6} {:>7}  {}\n",
        "arch", "digest", "bytes", "regs", "shared", "stack", "params", "threads", "key[variant]"
    );
    for module in &manifest.modules {
        let name = format!("{}[{}]", module.key, module.variant);
        match &module.code {
            Some(code) => out.push_str(&format!(
                "{:<7} {:>12} {:>8} {:>5} {:>7} {:>6} {:>6} {:>7}  {name}\n",
                module.arch,
                code.digest.short(),
                code.bytes,
                code.registers,
                code.static_shared_bytes,
                code.stack_bytes,
                module.params_bytes,
                code.max_threads,
            )),
            None => out.push_str(&format!(
                "{:<7} {:>12} {:>8} {:>5} {:>7} {:>6} {:>6} {:>7}  {name}\n",
                module.arch, "-", "-", "-", "-", "-", module.params_bytes, "-"
            )),
        }
    }
    out
}

fn json(bundle: &Bundle<'_>) -> serde_json::Value {
    let manifest = bundle.manifest();
    let modules = manifest.modules.iter().map(|module| {
        let code = module.code.as_ref().map(|code| {
            serde_json::json!({
                "entry": code.entry,
                "sha256": code.digest.to_string(),
                "bytes": code.bytes,
                "registers": code.registers,
                "static_shared_bytes": code.static_shared_bytes,
                "stack_bytes": code.stack_bytes,
                "max_threads": code.max_threads,
            })
        });
        serde_json::json!({
            "key": module.key,
            "variant": module.variant,
            "arch": module.arch,
            "params_bytes": module.params_bytes,
            "source": module.source.to_string(),
            "code": code,
        })
    });
    serde_json::json!({
        "manifest": bundle.digest().to_string(),
        "compiler": manifest.compiler,
        "options": manifest.options,
        "models": manifest.models,
        "modules": modules.collect::<Vec<_>>(),
    })
}
