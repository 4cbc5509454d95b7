//! Builds the bill of materials: CycloneDX 1.6, without a time stamp, with a serial number from the bundle's digest.
//!
//! JSON by hand: `cyclonedx-bom` writes 1.5 at most, and brings an XML writer.

use precast_fatbins::{Bundle, Digest, lock};
use serde_json::{Value, json};

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
                "hashes": [hash(code.digest)],
                "properties": [
                    { "name": "precast:entry", "value": code.entry },
                    { "name": "precast:source", "value": module.source.to_string() },
                ],
            })
        })
        .collect();
    let (compiler, version) = manifest.compiler.split_once(' ').unwrap_or((&manifest.compiler, ""));
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": format!("urn:uuid:{}", uuid(digest)),
        "version": 1,
        "metadata": {
            "tools": { "components": [
                { "type": "application", "name": "precast-aot", "version": env!("CARGO_PKG_VERSION") },
                { "type": "application", "name": compiler, "version": version },
            ] },
            "component": {
                "type": "file",
                "bom-ref": title::BUNDLE,
                "name": title::BUNDLE,
                "version": env!("CARGO_PKG_VERSION"),
                "hashes": [hash(digest)],
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            },
        },
        "components": components,
    })
}

fn hash(digest: Digest) -> Value {
    json!({ "alg": "SHA-256", "content": digest.to_string() })
}

/// Derives a UUID of version 8 (RFC 9562: application-defined bits) from a digest.
fn uuid(digest: Digest) -> String {
    let mut bytes = Digest::of_parts("precast.sbom", [&digest.0[..]]).0;
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = Digest(bytes).to_string();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..32]].join("-")
}
