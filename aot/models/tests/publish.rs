//! Publishing and fetching: accepted layouts, refused layouts, and no partial results.

use precast_kernels::{BuildKeys, KERNELS};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use precast_aot::publish::{PublishError, fetch, publish};
use precast_aot::{Arch, Request, prebuilt};
use precast_fatbins::{Bundle, BundleError, SignatureError};
use precast_models::{Model, Selection};

use crate::support::tiny::{key, published, tiny};

fn files_below(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

#[test]
fn what_is_published_is_fetched_and_built_from() {
    let (request, built, locks) = tiny();
    let (sign, trusted) = key();
    let layout = publish(&built.encode(), &KERNELS, &locks, Some(&sign)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let installed = dir.path().join("fatbins/published");
    for name in ["layout", "layout.tar"] {
        let to = dir.path().join(name);
        layout.write(&to).unwrap();
        // Equal content gives equal bytes.
        let again = dir.path().join(format!("again-{name}"));
        layout.write(&again).unwrap();
        assert!(to.is_dir() || fs::read(&to).unwrap() == fs::read(&again).unwrap());

        let fetched = fetch(&to, std::slice::from_ref(&trusted), &KERNELS).unwrap();
        let names: Vec<&String> = fetched.files.keys().collect();
        let expected =
            ["precast.bundle", "precast.bundle.minisig", "precast.cdx.json", "precast.provenance.json", "tiny.lock"];
        assert_eq!(names, expected);
        fetched.install(&installed).unwrap();
    }
    // Found in the directory and in its parent; the embedded parts equal those of a build with a compiler.
    for directory in [&installed, installed.parent().unwrap()] {
        let taken = prebuilt::select(directory, std::slice::from_ref(&trusted), &request).unwrap();
        assert!(taken.parts() == built.parts());
        assert_eq!(taken.compiled, 0);
    }
    let more = Request { archs: vec![Arch::Sm89, Arch::Sm121], ..request.clone() };
    let error = prebuilt::select(&installed, &[], &more).unwrap_err().to_string();
    assert!(error.contains("MISSING") && error.contains("sm_89") && error.contains("--model tiny"), "{error}");
    let nowhere = prebuilt::select(dir.path(), &[], &request).unwrap_err().to_string();
    assert!(nowhere.contains("precast-aot fetch"), "{nowhere}");
}

#[test]
fn bill_of_materials_and_provenance_name_no_time_or_machine() {
    let (_dir, to) = published(None);
    let fetched = fetch(&to, &[], &KERNELS).unwrap();
    let text = |name: &str| String::from_utf8(fetched.files[name].clone()).unwrap();
    let sbom: serde_json::Value = serde_json::from_str(&text("precast.cdx.json")).unwrap();
    assert_eq!((&sbom["bomFormat"], &sbom["specVersion"]), (&"CycloneDX".into(), &"1.6".into()));
    assert!(sbom["metadata"].get("timestamp").is_none());
    let serial = sbom["serialNumber"].as_str().unwrap();
    assert_eq!((serial.len(), &serial[..9], &serial[23..24]), (45, "urn:uuid:", "8"));
    let bundle = Bundle::read(&fetched.files["precast.bundle"], &KERNELS).unwrap();
    let with_code = bundle.manifest().modules.iter().filter(|module| module.code.is_some()).count();
    assert_eq!(sbom["components"].as_array().unwrap().len(), with_code);
    let statement: serde_json::Value = serde_json::from_str(&text("precast.provenance.json")).unwrap();
    assert_eq!(statement["predicateType"], "https://slsa.dev/provenance/v1");
    let sources = statement.pointer("/predicate/buildDefinition/resolvedDependencies").unwrap().as_array().unwrap();
    assert!(sources.iter().any(|source| source["name"] == "include device.cuh"));
    for path in [env!("CARGO_MANIFEST_DIR"), "/tmp"] {
        assert!(!text("precast.provenance.json").contains(path) && !text("precast.cdx.json").contains(path));
    }
}

#[test]
fn only_what_a_trusted_key_signed_is_fetched() {
    let ((sign, good), (_, other)) = (key(), key());
    let (_dir, signed) = published(Some(&sign));
    fetch(&signed, std::slice::from_ref(&good), &KERNELS).unwrap();
    fetch(&signed, &[], &KERNELS).unwrap();
    let refused = fetch(&signed, &[other], &KERNELS).unwrap_err();
    assert!(matches!(refused, PublishError::Signature(SignatureError::OtherKey { .. })), "{refused}");
    let (_dir, unsigned) = published(None);
    let refused = fetch(&unsigned, &[good], &KERNELS).unwrap_err();
    assert!(matches!(refused, PublishError::Signature(SignatureError::Missing(_))), "{refused}");
}

#[test]
fn every_altered_file_of_a_layout_is_noticed() {
    let (sign, trusted) = key();
    let (_dir, to) = published(Some(&sign));
    for (path, bytes) in files_below(&to) {
        for at in [0, bytes.len() / 2, bytes.len() - 1] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).unwrap();
            let result = fetch(&to, std::slice::from_ref(&trusted), &KERNELS);
            // The index is not signed: only another tag in it goes unnoticed.
            let harmless = result.as_ref().is_ok_and(|_| path.ends_with("index.json"));
            assert!(result.is_err() || harmless, "{} at {at}", path.display());
        }
        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert!(fetch(&to, std::slice::from_ref(&trusted), &KERNELS).is_err(), "{} truncated", path.display());
        fs::remove_file(&path).unwrap();
        assert!(fetch(&to, std::slice::from_ref(&trusted), &KERNELS).is_err(), "{} gone", path.display());
        fs::write(&path, &bytes).unwrap();
    }
    fetch(&to, &[trusted], &KERNELS).unwrap();
}

#[test]
fn a_bundle_that_is_not_as_locked_is_not_published() {
    let (_, built, mut locks) = tiny();
    let text = locks[0].1.to_string();
    let digest = text.lines().nth(1).unwrap().split(' ').nth(2).unwrap().to_owned();
    locks[0].1 = text.replace(&digest, &"0".repeat(64)).parse().unwrap();
    let refused = publish(&built.encode(), &KERNELS, &locks, None).unwrap_err();
    assert!(matches!(refused, PublishError::Lock { .. }), "{refused}");
    let damaged = {
        let mut file = built.encode();
        let middle = file.len() / 2;
        file[middle] ^= 1;
        file
    };
    let refused = publish(&damaged, &KERNELS, &[], None).unwrap_err();
    assert!(
        matches!(refused, PublishError::Bundle(BundleError::Digest { .. } | BundleError::Layout { .. })),
        "{refused}"
    );
}

#[test]
fn a_full_disk_leaves_what_was_there() {
    // A file in place of the layout's directory makes every write fail, as a full disk does.
    let (_, built, locks) = tiny();
    let layout = publish(&built.encode(), &KERNELS, &locks, None).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let blocked = dir.path().join("file");
    fs::write(&blocked, "old").unwrap();
    for name in ["layout", "layout.tar"] {
        assert!(layout.write(&blocked.join(name)).is_err());
    }
    assert_eq!(files_below(dir.path()), BTreeMap::from([(blocked, b"old".to_vec())]));
}

#[test]
fn keys_of_models_together_are_those_of_each() {
    // One lock per model suffices. Which kernels a row has besides is no matter of models.
    let models = Model::built_in();
    let keys = |models: &[Model]| Selection::of_models(models.to_vec(), Vec::new()).build_keys();
    let each: BuildKeys = models.iter().flat_map(|model| keys(std::slice::from_ref(model))).collect();
    assert!(each == keys(&models));
}
