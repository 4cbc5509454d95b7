//! The provenance of a release: an in-toto statement with SLSA v1. It names commit, tools and files by digest, but
//! neither machine nor time: the same build gives the same statement.

use std::collections::BTreeMap;

use precast_aot::publish::documents::{self, named};
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
    let subject = |name: &str, bytes: &[u8]| named(name, &Digest::of(bytes).to_string());
    let mut subjects: Vec<Value> = files.iter().map(|(name, bytes)| subject(name, bytes)).collect();
    for Programs { host, files } in programs {
        subjects.extend(files.iter().map(|file| subject(&program_name(host.machine, file.name), &file.bytes)));
    }
    let of_tool = |tool: &Tool| {
        let Tool { name, version, uri, files } = tool;
        let files: Vec<Value> = files.iter().map(|(file, digest)| named(file, &digest.to_string())).collect();
        json!({ "name": name, "uri": uri, "annotations": { "version": version, "files": files } })
    };
    let mut dependencies = vec![json!({ "name": "precast", "digest": { "gitCommit": commit } })];
    dependencies.extend(tools.iter().map(of_tool));
    let definition = json!({
        "buildType": "https://precast.dev/release/v1",
        "externalParameters": { "commit": commit, "tag": tag, "features": ["all"] },
        "internalParameters": { "bundles": kernels },
        "resolvedDependencies": dependencies,
    });
    let version = json!({ "xtask": env!("CARGO_PKG_VERSION") });
    let builder = json!({ "id": "https://precast.dev/xtask-release", "version": version });
    documents::statement(&subjects, &definition, &builder)
}
