//! `precast-aot inspect`

use precast_kernels::KERNELS;
use std::path::{Path, PathBuf};

use clap::Args;
use precast_aot::budget::Usage;
use precast_aot::publish::title;
use precast_fatbins::{Bundle, BundleFile, Digest, Manifest, lock};
use precast_system::{input, say};
use serde_json::{Value, json};

use super::failure::Failure;
use super::io::{examined, print_json};
use super::targets::Trusted;

#[derive(Args)]
pub struct Arguments {
    /// The bundle
    file: PathBuf,
    #[command(flatten)]
    trusted: Trusted,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let path = &arguments.file;
    let failure = |error| Failure::Bundle { path: path.clone(), error };
    let file = BundleFile::read(path).map_err(|error| Failure::NoBundle { path: path.clone(), error })?;
    let keys = arguments.trusted.keys()?;
    let bundle = examined(path, file.open(&keys, &KERNELS))?;
    let signature = match (&file.signature, file.signer(&keys).map_err(|error| failure(error.into()))?) {
        (_, Some(key)) => format!("by {key}"),
        (Some(_), None) => "there, not checked: no --trusted-key".to_owned(),
        (None, None) => "none".to_owned(),
    };
    let digest = Digest::of(&file.bytes);
    let provenance = provenance(path, digest);
    if arguments.json {
        let mut value = json(&bundle);
        value["sha256"] = digest.to_string().into();
        value["bytes"] = file.bytes.len().into();
        value["signature"] = signature.into();
        value["provenance"] = provenance.unwrap_or_default();
        print_json(&value);
        return Ok(());
    }
    let manifest = bundle.manifest();
    let archs: Vec<String> = bundle.archs().iter().map(ToString::to_string).collect();
    say!("file       {digest}, {} bytes", file.bytes.len());
    say!("manifest   {}", bundle.digest());
    say!("signature  {signature}");
    match provenance {
        Some(statement) => {
            let builder = &statement["predicate"]["runDetails"]["builder"];
            let sources =
                statement.pointer("/predicate/buildDefinition/resolvedDependencies").and_then(Value::as_array);
            let count = sources.map_or(0, Vec::len);
            say!("provenance {} from {count} sources, {}", builder["id"].as_str().unwrap_or("?"), builder["version"]);
        }
        None => say!("provenance none of this file beside it ({})", title::PROVENANCE),
    }
    say!("compiler   {}", manifest.compiler);
    say!("options    {}", manifest.options.join(" "));
    let origin = manifest.origin.as_ref();
    say!("program    {}", origin.map_or("not named: format 1", |origin| &origin.program));
    say!("core       {}", origin.map_or("not named: format 1", |origin| &origin.core));
    say!("models     {}", manifest.built_for.join(", "));
    say!("archs      {}", archs.join(", "));
    say!("{}", table(manifest));
    Ok(())
}

/// Reads the provenance statement beside a bundle; none if it is about another bundle.
fn provenance(path: &Path, digest: Digest) -> Option<Value> {
    let text = input::read(&path.with_file_name(title::PROVENANCE), input::SETTINGS_BYTES).ok()?;
    let statement: Value = serde_json::from_slice(&text).ok()?;
    (statement.pointer("/subject/0/digest/sha256")? == &digest.to_string()).then_some(statement)
}

fn table(manifest: &Manifest) -> String {
    let mut out = format!(
        "\n{:<7} {:>12} {:>8} {:>5} {:>7} {:>7} {:>7} {:>6}  {}\n",
        "arch", "digest", "bytes", "regs", "shared", "spills", "threads", "occup", "key[variant]"
    );
    for module in &manifest.modules {
        let name = lock::name(module);
        let Some(code) = &module.code else { continue };
        // Only keys of this version have known dynamic shared memory.
        let usage = Usage::of(module, &KERNELS);
        let shared = usage.map_or("?".to_owned(), |usage| usage.shared_bytes.to_string());
        let occupancy = usage.map_or("?".to_owned(), |usage| format!("{:.0}%", 100.0 * usage.occupancy));
        out.push_str(&format!(
            "{:<7} {:>12} {:>8} {:>5} {shared:>7} {:>7} {:>7} {occupancy:>6}  {name}\n",
            module.arch,
            code.digest.short(),
            code.bytes,
            code.registers,
            code.stack_bytes,
            code.max_threads,
        ));
    }
    let simulated = manifest.modules.iter().filter(|module| module.code.is_none()).count();
    out.push_str(&format!("\n{simulated} keys for the simulated GPU, which needs no code\n"));
    out
}

fn json(bundle: &Bundle<'_>) -> Value {
    let manifest = bundle.manifest();
    let modules = manifest.modules.iter().map(|module| {
        let usage = Usage::of(module, &KERNELS);
        let code = module.code.as_ref().map(|code| {
            json!({
                "entry": code.entry,
                "sha256": code.digest.to_string(),
                "bytes": code.bytes,
                "registers": code.registers,
                "static_shared_bytes": code.static_shared_bytes,
                "shared_bytes": usage.map(|usage| usage.shared_bytes),
                "stack_bytes": code.stack_bytes,
                "max_threads": code.max_threads,
                "occupancy": usage.map(|usage| usage.occupancy),
            })
        });
        json!({
            "key": module.key,
            "variant": module.variant,
            "arch": module.arch,
            "params_bytes": module.params_bytes,
            "source": module.source.to_string(),
            "code": code,
        })
    });
    json!({
        "manifest": bundle.digest().to_string(),
        "compiler": manifest.compiler,
        "options": manifest.options,
        "program": manifest.origin.as_ref().map(|origin| &origin.program),
        "core": manifest.origin.as_ref().map(|origin| &origin.core),
        "models": manifest.built_for,
        "modules": modules.collect::<Vec<_>>(),
    })
}
