//! Builds the bill of materials, with a serial number from the bundle's digest.

use precast_fatbins::{Bundle, Digest, lock};
use serde_json::{Value, json};

use super::documents::{bill, hash};
use super::names::title;

/// Lists the bundle's components: one per cubin.
pub fn sbom(bundle: &Bundle<'_>, digest: Digest) -> Value {
    let manifest = bundle.manifest();
    let with_code = manifest.modules.iter().filter_map(|module| Some((module, module.code.as_ref()?)));
    let components: Vec<Value> = with_code
        .map(|(module, code)| {
            let name = format!("{} {}", module.arch, lock::name(module));
            json!({
                "type": "file",
                "bom-ref": name,
                "name": name,
                "description": "cubin",
                "hashes": [hash(&code.digest.to_string())],
                "properties": [
                    { "name": "precast:entry", "value": code.entry },
                    { "name": "precast:source", "value": module.source.to_string() },
                ],
            })
        })
        .collect();
    let (compiler, version) = manifest.compiler.split_once(' ').unwrap_or((&manifest.compiler, ""));
    let serial = Digest::of_parts("precast.sbom", [&digest.0[..]]);
    let metadata = json!({
        "tools": { "components": [
            { "type": "application", "name": "precast-aot", "version": env!("CARGO_PKG_VERSION") },
            { "type": "application", "name": compiler, "version": version },
        ] },
        "component": {
            "type": "file",
            "bom-ref": title::BUNDLE,
            "name": title::BUNDLE,
            "version": env!("CARGO_PKG_VERSION"),
            "hashes": [hash(&digest.to_string())],
            "licenses": [{ "expression": "MIT OR Apache-2.0" }],
        },
    });
    bill(serial, &metadata, &components)
}
