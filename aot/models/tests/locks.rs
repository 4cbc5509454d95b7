//! The committed locks cover every kernel, built from the current sources.

use std::collections::BTreeMap;
use std::path::Path;

use precast_aot::Arch;
use precast_fatbins::Lock;
use precast_kernels::OPTIONS;
use precast_models::{Model, Selection};

/// Finds in seconds the mismatch that a build finds after compiling: a kernel that is not the locked one.
#[test]
fn every_kernel_is_locked_with_its_source_and_options() {
    let locks = Path::new(env!("CARGO_MANIFEST_DIR")).join("locks");
    let (options, mut wrong) = (OPTIONS.join(" "), Vec::new());
    for model in Model::built_in() {
        let path = precast_aot::lock::path(&locks, &model.name);
        let text = std::fs::read_to_string(&path).unwrap();
        text.parse::<Lock>().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // `arch key[variant] cubin source compiler; options`
        let mut locked = BTreeMap::new();
        for line in text.lines().skip(1) {
            let [arch, name, _, source, rest] = line.splitn(5, ' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            locked.insert(format!("{arch} {name}"), (source, rest.split_once("; ").unwrap().1));
        }
        for task in Selection::of_models(vec![model.clone()], Arch::GPUS.to_vec()).request().tasks() {
            let (name, source) = (format!("{} {}", task.arch, task.pair), task.source_digest().to_string());
            if locked.remove(&name) != Some((&*source, &*options)) {
                wrong.push(format!("{}: {name}", model.name));
            }
        }
        wrong.extend(locked.keys().map(|name| format!("{}: {name}, which no run launches", model.name)));
    }
    assert!(wrong.is_empty(), "precast-aot lock writes the locks of\n{}", wrong.join("\n"));
}
