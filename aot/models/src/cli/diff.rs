//! `precast-aot diff`

use precast_kernels::KERNELS;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use precast_fatbins::{Bundle, Change, Code, Lock, Manifest, lock};
use precast_system::say;

use super::failure::Failure;
use super::io::{code_json, examined, print_json, read_bundle};

#[derive(Args)]
pub struct Arguments {
    /// The bundle before
    pub before: PathBuf,
    /// The bundle after
    pub after: PathBuf,
    /// Compare machine code apart from names: instructions, registers, memory, parameters. Exit code 1 if a kernel of
    /// one bundle has no kernel with the same code in the other. Of bundles of two architectures, one each,
    /// instructions, constants and shared memory are compared
    #[arg(long)]
    pub code: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Prints the differences. Different bundles are no error here, as they are under `--code`, which proves them equal.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (before, after) = (manifest(&arguments.before)?, manifest(&arguments.after)?);
    let changes = Lock::of(&before).compare(&Lock::of(&after));
    let (before, after) = (codes(&before), codes(&after));
    if arguments.json {
        let rows = changes.iter().map(|change| {
            let (module, kind) = split(change);
            serde_json::json!({
                "module": module,
                "change": kind,
                "moved": if let Change::Changed { moved, .. } = change { moved.clone() } else { Vec::new() },
                "before": before.get(module).map(|code| code_json(code)),
                "after": after.get(module).map(|code| code_json(code)),
            })
        });
        print_json(&rows.collect::<Vec<_>>());
        return Ok(());
    }
    for change in &changes {
        let (module, _) = split(change);
        say!("{change}");
        let pair = [before.get(module), after.get(module)];
        let side = |of: fn(&Code) -> u64| {
            pair.map(|code| code.map_or("-".to_owned(), |code| of(code).to_string())).join(" -> ")
        };
        say!(
            "        bytes {}  registers {}  static shared {}  stack (spills) {}",
            side(|code| code.bytes),
            side(|code| code.registers.into()),
            side(|code| code.static_shared_bytes.into()),
            side(|code| code.stack_bytes.into())
        );
    }
    say!("{} modules differ, of {} before and {} after", changes.len(), before.len(), after.len());
    Ok(())
}

fn manifest(path: &Path) -> Result<Manifest, Failure> {
    let bytes = read_bundle(path)?;
    Ok(examined(path, Bundle::read(&bytes, &KERNELS))?.manifest().clone())
}

fn codes(manifest: &Manifest) -> BTreeMap<String, &Code> {
    let of = |module| -> (String, Option<&Code>) { name_of(module) };
    manifest.modules.iter().map(of).filter_map(|(name, code)| Some((name, code?))).collect()
}

fn name_of(module: &precast_fatbins::ModuleEntry) -> (String, Option<&Code>) {
    (format!("{} {}", module.arch, lock::name(module)), module.code.as_ref())
}

fn split(change: &Change) -> (&str, &'static str) {
    match change {
        Change::Missing(module) => (module, "missing"),
        Change::Added(module) => (module, "added"),
        Change::Changed { module, .. } => (module, "changed"),
    }
}
