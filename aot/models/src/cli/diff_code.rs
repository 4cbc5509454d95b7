//! `precast-aot diff --code`: compares the machine code of two bundles under any names.

use precast_kernels::KERNELS;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use precast_fatbins::{Bundle, Code, CubinCode, lock};
use precast_system::say;

use super::diff::Arguments;
use super::failure::Failure;
use super::io::{code_json, examined, print_json, read_bundle};

/// A kernel with machine code: its row, and its code without names.
struct Kernel {
    arch: String,
    row: Code,
    code: CubinCode,
}

/// Kernels by architecture and `key[variant]`.
type Kernels = BTreeMap<String, Kernel>;

/// Result of comparing two bundles' machine code.
struct Comparison<'k> {
    /// Number of kernels with one name and the same code.
    same: usize,
    /// Kernels found under another name: the names before and after.
    renamed: BTreeSet<(&'k str, &'k str)>,
    /// Kernels with one name and different code, with the sections that differ.
    changed: Vec<(&'k str, Vec<&'k str>)>,
    /// Kernels with no counterpart after.
    missing: Vec<&'k str>,
    /// Kernels with no counterpart before.
    added: Vec<&'k str>,
}

/// Prints the differences.
///
/// # Errors
/// [`Failure::OtherCode`] if a kernel of one bundle has no kernel with the same code in the other.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (mut before, mut after) = (kernels(&arguments.before)?, kernels(&arguments.after)?);
    if let (Some(one), Some(other)) = (only_arch(&before), only_arch(&after))
        && one != other
    {
        (before, after) = (of_any_arch(before), of_any_arch(after));
    }
    let found = compare(&before, &after);
    let Comparison { same, renamed, changed, missing, added } = &found;
    if arguments.json {
        let changed = changed.iter().map(|(name, sections)| {
            serde_json::json!({
                "module": name,
                "sections": sections,
                "before": code_json(&before[*name].row),
                "after": code_json(&after[*name].row),
            })
        });
        print_json(&serde_json::json!({
            "same": same,
            "renamed": renamed.iter().map(|(before, after)| serde_json::json!({ "before": before, "after": after }))
                .collect::<Vec<_>>(),
            "changed": changed.collect::<Vec<_>>(),
            "missing": missing,
            "added": added,
        }));
    } else {
        renamed.iter().for_each(|(before, after)| say!("RENAMED {before} -> {after}"));
        changed.iter().for_each(|(name, sections)| say!("CHANGED {name} ({})", sections.join(", ")));
        missing.iter().for_each(|name| say!("MISSING {name}"));
        added.iter().for_each(|name| say!("ADDED   {name}"));
        let (before, after) = (before.len(), after.len());
        say!("{same} kernels have the same name and machine code, of {before} before and {after} after");
    }
    match changed.len() + missing.len() + added.len() {
        0 => Ok(()),
        different => Err(Failure::OtherCode(different)),
    }
}

fn kernels(path: &Path) -> Result<Kernels, Failure> {
    let bytes = read_bundle(path)?;
    let failure = |error| Failure::Bundle { path: path.to_owned(), error };
    let bundle = examined(path, Bundle::read(&bytes, &KERNELS))?;
    let mut kernels = Kernels::new();
    for (module, image) in bundle.cubins() {
        let cubin = |source| failure(precast_fatbins::BundleError::Cubin { module: module.to_string(), source });
        let code = CubinCode::read(image).map_err(cubin)?;
        let Some(row) = module.code.clone() else { continue };
        let name = format!("{} {}", module.arch, lock::name(module));
        kernels.insert(name, Kernel { arch: module.arch.clone(), row, code });
    }
    Ok(kernels)
}

/// Returns the architecture of all kernels, if it is one.
fn only_arch(kernels: &Kernels) -> Option<String> {
    let archs: BTreeSet<&str> = kernels.values().map(|kernel| &*kernel.arch).collect();
    archs.first().filter(|_| archs.len() == 1).map(ToString::to_string)
}

/// Leaves out the architecture, in names and code.
fn of_any_arch(kernels: Kernels) -> Kernels {
    let without = |(name, kernel): (String, Kernel)| {
        let name = name.strip_prefix(&format!("{} ", kernel.arch)).map(str::to_owned).unwrap_or(name);
        (name, Kernel { arch: String::new(), code: kernel.code.of_any_arch(), ..kernel })
    };
    kernels.into_iter().map(without).collect()
}

/// Compares kernels of one name with each other, and every other kernel with all of its architecture.
fn compare<'k>(before: &'k Kernels, after: &'k Kernels) -> Comparison<'k> {
    let (found, missing) = unpaired(before, after);
    let (found_back, added) = unpaired(after, before);
    let renamed = found.into_iter().chain(found_back.into_iter().map(|(after, before)| (before, after))).collect();
    let pairs = before.iter().filter_map(|(name, kernel)| Some((name.as_str(), kernel, after.get(name)?)));
    let (same, changed): (Vec<_>, Vec<_>) = pairs.partition(|(_, before, after)| before.code == after.code);
    let changed = changed.into_iter().map(|(name, before, after)| (name, before.code.differing(&after.code))).collect();
    Comparison { same: same.len(), renamed, changed, missing, added }
}

/// Splits kernels whose names the other side lacks: those with code under another name, with that name, and the rest.
fn unpaired<'k>(own: &'k Kernels, others: &'k Kernels) -> (Vec<(&'k str, &'k str)>, Vec<&'k str>) {
    let named: BTreeMap<(&str, &CubinCode), &str> =
        others.iter().map(|(name, kernel)| ((kernel.arch.as_str(), &kernel.code), name.as_str())).collect();
    let (mut found, mut alone) = (Vec::new(), Vec::new());
    for (name, kernel) in own.iter().filter(|(name, _)| !others.contains_key(*name)) {
        match named.get(&(kernel.arch.as_str(), &kernel.code)) {
            Some(other) => found.push((name.as_str(), *other)),
            None => alone.push(name.as_str()),
        }
    }
    (found, alone)
}
