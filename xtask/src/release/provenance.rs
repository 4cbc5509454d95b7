//! The provenance of a release: an in-toto statement with SLSA v1. It names commit, tools and files by digest, but
//! neither machine nor time: the same build gives the same statement.

use std::collections::BTreeMap;

use precast_fatbins::Digest;
use serde_json::{Value, json};

use super::build::Programs;
use super::names::program_name;
use super::tools::Tool;

/// Returns the statement about files and the programs in them. A release that nobody signed is of no tag.
pub fn statement(
    files: &BTreeMap<String, Vec<u8>>,
    programs: &[Programs],
    kernels: &BTreeMap<String, Digest>,
    commit: &str,
    tag: Option<&str>,
    tools: &[Tool],
) -> Value {
    let subject = |name: String, digest: Digest| json!({ "name": name, "digest": { "sha256": digest.to_string() } });
    let mut subjects: Vec<Value> = files.iter().map(|(name, bytes)| subject(name.clone(), Digest::of(bytes))).collect();
    for Programs { host, files } in programs {
        subjects
            .extend(files.iter().map(|file| subject(program_name(host.machine, file.name), Digest::of(&file.bytes))));
    }
    let of_tool = |tool: &Tool| {
        let Tool { name, version, uri, files } = tool;
        let files: Vec<Value> = files.iter().map(|(file, digest)| subject(file.clone(), *digest)).collect();
        json!({ "name": name, "uri": uri, "annotations": { "version": version, "files": files } })
    };
    let mut dependencies = vec![json!({
        "name": "precast",
        "digest": { "gitCommit": commit },
    })];
    dependencies.extend(tools.iter().map(of_tool));
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://precast.dev/release/v1",
                "externalParameters": { "commit": commit, "tag": tag, "features": ["all"] },
                "internalParameters": { "bundles": kernels },
                "resolvedDependencies": dependencies,
            },
            "runDetails": {
                "builder": {
                    "id": "https://precast.dev/xtask-release",
                    "version": { "xtask": env!("CARGO_PKG_VERSION") },
                },
            },
        },
    })
}
