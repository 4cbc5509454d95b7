//! The bill of materials of the programs: CycloneDX 1.6, without a time stamp, with a serial number made of digests.

use precast_aot::publish::documents::{bill, hash};
use precast_fatbins::Digest;
use serde_json::{Value, json};

use super::build::Programs;
use super::crates::Crate;
use super::hosts::HOSTS;
use super::names::program_name;
use super::tools::Tool;

/// Lists the crates that the programs are linked of, and what their linker adds.
pub fn materials(version: &str, programs: &[Programs], crates: &[Crate], tools: &[Tool]) -> Value {
    let held = programs.iter().flat_map(|host| host.files.iter().map(move |file| (host.host.machine, file)));
    let programs: Vec<Value> = held
        .map(|(machine, file)| {
            json!({
                "type": "application",
                "bom-ref": program_name(machine, file.name),
                "name": program_name(machine, file.name),
                "version": version,
                "hashes": [hash(&Digest::of(&file.bytes).to_string())],
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            })
        })
        .collect();
    let serial = Digest::of(Value::from(programs.clone()).to_string().as_bytes());
    let mut components = programs;
    components.extend(crates.iter().map(of_crate));
    components.extend(tools.iter().flat_map(runtime));
    let metadata = json!({
        "component": {
            "type": "application",
            "bom-ref": "precast",
            "name": "precast",
            "version": version,
            "licenses": [{ "expression": "MIT OR Apache-2.0" }],
        },
        "tools": { "components": tools.iter().map(|tool| {
            json!({ "type": "application", "name": tool.name, "version": tool.version, "purl": tool.uri })
        }).collect::<Vec<_>>() },
    });
    bill(serial, &metadata, &components)
}

fn of_crate(one: &Crate) -> Value {
    let Crate { name, version, license, checksum, machines, .. } = one;
    // Own crates are named apart from programs.
    let purl = format!("pkg:cargo/{name}@{version}");
    let mut component = json!({
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "licenses": [{ "expression": license }],
        "purl": purl,
    });
    if let Some(checksum) = checksum {
        component["hashes"] = json!([hash(checksum)]);
    }
    if machines.len() < HOSTS.len() {
        let only = machines.iter().copied().collect::<Vec<_>>().join(" ");
        component["properties"] = json!([{ "name": "precast:machines", "value": only }]);
    }
    component
}

/// License of glibc's start files, as each says. SPDX has no name for the exception.
const START_FILES: &str =
    "LGPL-2.1-or-later, most of them with unlimited permission to link the compiled file into any program";

/// Lists what a tool adds to every program that it links.
fn runtime(tool: &Tool) -> Vec<Value> {
    let parts = match tool.name.as_str() {
        "rustc" => &[("std", json!({ "expression": "MIT OR Apache-2.0" }))][..],
        "ziglang" => &[
            ("compiler-rt", json!({ "expression": "MIT" })),
            ("libunwind", json!({ "expression": "Apache-2.0 WITH LLVM-exception" })),
            ("glibc's start files", json!({ "license": { "name": START_FILES } })),
        ],
        _ => &[],
    };
    let part = |(name, license): &(&str, Value)| {
        json!({
            "type": "library",
            "bom-ref": format!("{name} of {} {}", tool.name, tool.version),
            "name": format!("{name} of {}", tool.name),
            "version": tool.version,
            "licenses": [license],
        })
    };
    parts.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::PathBuf;

    use super::super::build::Program;
    use super::super::provenance::statement;
    use super::*;

    #[test]
    fn both_documents_name_programs_crates_and_the_tools_that_ran() {
        let program = |bytes: &[u8]| Program { name: "precast", bytes: bytes.to_vec(), symbols: Vec::new() };
        let programs = [(0, &b"one"[..]), (1, b"two")]
            .map(|(host, bytes)| Programs { host: HOSTS[host], files: vec![program(bytes)] });
        let crates = [("zstd-sys", Some("ab12"), &["x86_64", "aarch64"][..]), ("precast", None, &["aarch64"])].map(
            |(name, checksum, machines)| Crate {
                name: name.to_owned(),
                version: "1.0.0".to_owned(),
                license: "MIT".to_owned(),
                checksum: checksum.map(str::to_owned),
                machines: BTreeSet::from_iter(machines.iter().copied()),
                sources: PathBuf::new(),
            },
        );
        let files = BTreeMap::from([("rustc".to_owned(), Digest::of(b"rustc"))]);
        let [name, version, uri] = ["rustc", "1.95.0", "pkg:generic/rust@1.95.0"].map(str::to_owned);
        let tools = [Tool { name, version, uri, files }];
        let materials = materials("1.2.3", &programs, &crates, &tools);
        let listed: Vec<&str> = materials["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|component| component["bom-ref"].as_str().unwrap())
            .collect();
        assert_eq!(
            listed,
            [
                "precast for x86_64-linux",
                "precast for aarch64-linux",
                "pkg:cargo/zstd-sys@1.0.0",
                "pkg:cargo/precast@1.0.0",
                "std of rustc 1.95.0",
            ]
        );
        let component = |index: usize| &materials["components"][index];
        assert_eq!(component(1)["hashes"][0]["content"], Digest::of(b"two").to_string());
        assert_eq!(component(2)["hashes"][0]["content"], "ab12");
        assert_eq!(component(2)["properties"], Value::Null);
        assert_eq!(component(3)["properties"][0]["value"], "aarch64");

        let files = BTreeMap::from([("a.whl".to_owned(), b"wheel".to_vec())]);
        let bundles = BTreeMap::from([("sm_90".to_owned(), Digest::of(b"bundle"))]);
        let statement = statement(&files, &programs, &bundles, "c0ffee", Some("v1.2.3"), &tools);
        let subjects: Vec<&str> =
            statement["subject"].as_array().unwrap().iter().map(|subject| subject["name"].as_str().unwrap()).collect();
        assert_eq!(subjects, ["a.whl", "precast for x86_64-linux", "precast for aarch64-linux"]);
        let definition = &statement["predicate"]["buildDefinition"];
        assert_eq!(
            definition["externalParameters"],
            json!({ "commit": "c0ffee", "tag": "v1.2.3", "features": ["all"] })
        );
        assert_eq!(definition["internalParameters"]["bundles"]["sm_90"], Digest::of(b"bundle").to_string());
        let ran = &definition["resolvedDependencies"][1];
        assert_eq!(ran["annotations"]["files"][0]["digest"]["sha256"], Digest::of(b"rustc").to_string());
    }
}
