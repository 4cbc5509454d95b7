//! Builds the bundle's provenance: an in-toto statement with SLSA v1. It names sources, compiler, options and digests,
//! but neither machine nor time: the same build gives the same statement.

use std::collections::BTreeMap;

use precast_fatbins::{Bundle, Digest, ManifestError};
use serde_json::{Value, json};

use super::content::{gpus, tasks};
use super::documents::{self, named};
use super::names::title;
use crate::toolchain::pins::{NVRTC, Wheel};

/// Returns the statement about a bundle with this digest.
pub fn statement(bundle: &Bundle<'_>, digest: Digest) -> Result<Value, ManifestError> {
    let manifest = bundle.manifest();
    let archs: Vec<String> = gpus(bundle).iter().map(ToString::to_string).collect();
    let sources: Vec<Value> =
        sources(bundle)?.into_iter().map(|(name, digest)| named(&name, &digest.to_string())).collect();
    let wheels: Vec<Value> = NVRTC
        .wheels
        .iter()
        .map(|Wheel { machine, sha256, .. }| {
            json!({
                "name": format!("{} for {machine}", NVRTC.package),
                "uri": format!("pkg:pypi/{}@{}", NVRTC.package, NVRTC.version),
                "digest": { "sha256": sha256 },
            })
        })
        .collect();
    let definition = json!({
        "buildType": "https://precast.dev/aot/v2",
        "externalParameters": { "builtFor": manifest.built_for, "archs": archs },
        "internalParameters": { "compiler": manifest.compiler, "options": manifest.options, "pinned": wheels },
        "resolvedDependencies": sources,
    });
    let version = json!({ "precast-aot": env!("CARGO_PKG_VERSION") });
    let builder = json!({ "id": "https://precast.dev/precast-aot", "version": version });
    Ok(documents::statement(&[named(title::BUNDLE, &digest.to_string())], &definition, &builder))
}

/// Returns every source and header of the bundle, by name.
fn sources(bundle: &Bundle<'_>) -> Result<BTreeMap<String, Digest>, ManifestError> {
    let mut found = BTreeMap::new();
    for task in tasks(bundle)? {
        let source = task.source();
        found.insert(source.file(), Digest::of(source.text.as_bytes()));
        for (name, text) in source.headers() {
            found.insert(format!("include {name}"), Digest::of(text.as_bytes()));
        }
    }
    Ok(found)
}
