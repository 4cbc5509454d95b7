//! What ARCHITECTURE.md says of rooms holds of the packages: which may depend on which.

use std::collections::BTreeSet;

use crate::support::prelude::*;

/// A package's directory and what it may depend on of this project, as ARCHITECTURE.md lists the rooms: only on those
/// above it.
const ROOMS: [(&str, &str, &[&str]); 17] = [
    ("kernels/core", "precast-core", &[]),
    ("kernels", "precast-kernels", &["precast-core"]),
    ("kernels/plan", "precast-plan", &["precast-core", "precast-kernels"]),
    ("kernels/simt", "precast-simt", &["precast-core"]),
    ("fatbins/system", "precast-system", &["precast-core"]),
    // What the kernels are made of: it compiles where they do not.
    ("kernels/abi", "precast-abi", &["precast-core", "precast-system"]),
    ("fatbins", "precast-fatbins", &["precast-core", "precast-system"]),
    ("aot", "precast-aot", &["precast-core", "precast-system", "precast-fatbins"]),
    (
        "aot/models",
        "precast-models",
        &[
            "precast-core",
            "precast-kernels",
            "precast-plan",
            "precast-system",
            "precast-fatbins",
            "precast-aot",
            "precast-abi",
        ],
    ),
    // It cannot compile.
    ("runtime", "precast-runtime", &["precast-core", "precast-system", "precast-fatbins"]),
    (
        "trainer/inputs",
        "precast-inputs",
        &["precast-core", "precast-kernels", "precast-plan", "precast-system", "precast-fatbins"],
    ),
    (
        ".",
        "precast",
        &[
            "precast-core",
            "precast-kernels",
            "precast-plan",
            "precast-system",
            "precast-fatbins",
            "precast-runtime",
            "precast-inputs",
        ],
    ),
    // What kernels of a stand-in do; nothing ships.
    ("tests/libcuda", "precast-libcuda", &["precast-core", "precast-fatbins"]),
    (
        "tests/libcuda/kernels",
        "precast-libcuda-kernels",
        &["precast-core", "precast-kernels", "precast-fatbins", "precast-libcuda"],
    ),
    (
        "xtask",
        "xtask",
        &[
            "precast-core",
            "precast-kernels",
            "precast-plan",
            "precast-simt",
            "precast-system",
            "precast-fatbins",
            "precast-aot",
            "precast-models",
        ],
    ),
    ("xtask/simt", "xtask-simt", &["precast-core", "precast-kernels", "precast-simt"]),
    // Nothing is built for it.
    ("xtask/start", "xtask-start", &[]),
];

fn manifest(directory: &str) -> toml::Table {
    let text = fs::read_to_string(root().join(directory).join("Cargo.toml")).expect("a package has a manifest");
    text.parse().expect("a manifest is TOML")
}

/// What of this project a package depends on, tests apart.
fn dependencies(manifest: &toml::Table) -> BTreeSet<String> {
    let table = manifest.get("dependencies").and_then(toml::Value::as_table);
    let names = table.into_iter().flat_map(toml::Table::keys);
    names.filter(|name| name.starts_with("precast") || *name == "xtask").cloned().collect()
}

#[test]
fn a_room_depends_only_on_rooms_above_it() {
    for (directory, package, allowed) in ROOMS {
        let manifest = manifest(directory);
        assert_eq!(manifest["package"]["name"].as_str(), Some(package));
        let found = dependencies(&manifest);
        let wrong: Vec<&String> = found.iter().filter(|name| !allowed.contains(&name.as_str())).collect();
        assert!(wrong.is_empty(), "{package} depends on {wrong:?}");
    }
}

#[test]
fn every_package_has_its_room() {
    let members = manifest(".")["workspace"]["members"].as_array().expect("a workspace has members").clone();
    let members: BTreeSet<&str> = members.iter().filter_map(toml::Value::as_str).chain(["."]).collect();
    assert_eq!(members, ROOMS.map(|(directory, ..)| directory).into_iter().collect());
}
