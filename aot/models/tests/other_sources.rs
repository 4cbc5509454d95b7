//! Kernels of other sources under current names are always refused.

use precast_aot::publish::{Layout, PublishError, fetch, media, publish, title};
use precast_aot::{Arch, Built, lock, prebuilt};
use precast_fatbins::{Bundle, BundleError, Change, Digest, Stale, StaleModule};
use precast_kernels::KERNELS;
use precast_models::Selection;
use serde_json::json;

use crate::support::program::{aot, ends, tiny_json};
use crate::support::renamed::renamed;

const ARCH: Arch = Arch::Sm121;
const LOUDER: [&str; 2] = ["swiglu.fwd{x=bf16}[threads=128] sm_121", "swiglu.fwd{x=f32}[threads=128] sm_121"];

fn built() -> (Selection, [Built; 2]) {
    crate::support::louder::built(&tiny_json(), ARCH)
}

fn stale(error: BundleError) -> Stale {
    match error {
        BundleError::Stale(stale) => stale,
        other => panic!("{other}"),
    }
}

#[test]
fn a_bundle_of_other_sources_is_refused_wherever_it_is_taken_in() {
    let (selection, [today, other]) = built();
    Bundle::read(&today.encode(), &KERNELS).unwrap().verify().unwrap();
    let file = other.encode();
    let refused = stale(Bundle::read(&file, &KERNELS).unwrap().verify().unwrap_err());
    assert_eq!(refused.modules, LOUDER.map(|module| StaleModule::Source(module.to_owned())));

    // Everything is current but the digest of the sources.
    let named = |built: &Built| {
        let rows = built.manifest.modules.iter().filter(|row| LOUDER.contains(&row.to_string().as_str()));
        rows.map(|row| {
            let entry = &row.code.as_ref().unwrap().entry;
            (row.params_bytes, entry[..entry.len() - 16].to_owned())
        })
        .collect::<Vec<_>>()
    };
    assert_eq!(named(&today), named(&other));
    assert_eq!(named(&today).len(), 2);

    assert!(matches!(publish(&file, &KERNELS, &[], None), Err(PublishError::Bundle(BundleError::Stale(_)))));
    // Fetch refuses a bundle that another program published.
    let dir = tempfile::tempdir().unwrap();
    let mut layout = Layout::new();
    let layer = layout.add(media::BUNDLE, title::BUNDLE, &file);
    let manifest = layout.manifest(media::ARTIFACT, &[layer], None, json!({}));
    layout.index(media::ARTIFACT, manifest.to_string().as_bytes(), "1");
    let from = dir.path().join("theirs.tar");
    layout.write(&from).unwrap();
    assert!(matches!(fetch(&from, &[], &KERNELS), Err(PublishError::Bundle(BundleError::Stale(_)))));
    let to = dir.path().join("installed");
    let (code, _, message) = ends(aot("fetch --from").arg(&from).arg("--to").arg(&to));
    assert_eq!(code, Some(3));
    insta::assert_snapshot!(message);
    assert!(!to.exists());
    // Embedding (PRECAST_FATBINS) refuses it too.
    std::fs::create_dir(&to).unwrap();
    std::fs::write(to.join(title::BUNDLE), &file).unwrap();
    let error = prebuilt::select(&to, &[], &selection.request()).unwrap_err().to_string();
    assert!(LOUDER.iter().all(|module| error.contains(module)) && error.contains("precast-aot build"), "{error}");
}

#[test]
fn a_forged_manifest_is_refused_and_locks_find_a_forged_symbol() {
    let (selection, [today, other]) = built();
    let rows = |built: &Built| -> Vec<usize> {
        let modules = built.manifest.modules.iter().enumerate();
        modules.filter(|(_, row)| LOUDER.contains(&row.to_string().as_str())).map(|(index, _)| index).collect()
    };
    // The manifest claims current sources and symbols; the cubins say others.
    let mut forged = Built { manifest: other.manifest.clone(), cubins: other.cubins.clone(), compiled: 0 };
    for row in rows(&today) {
        let (theirs, ours) = (&mut forged.manifest.modules[row], &today.manifest.modules[row]);
        theirs.source = ours.source;
        theirs.code.as_mut().unwrap().entry.clone_from(&ours.code.as_ref().unwrap().entry);
    }
    let file = forged.encode();
    let error = Bundle::read(&file, &KERNELS).unwrap().verify().unwrap_err();
    assert!(matches!(error, BundleError::Claim { what: "entry symbol", .. }), "{error}");
    // Now the cubins claim them too: only the machine code is untrue.
    for row in rows(&today) {
        let code = forged.manifest.modules[row].code.as_mut().unwrap();
        let cubin = &forged.cubins[&code.digest];
        let renamed = renamed(cubin, &code.entry);
        code.digest = Digest::of(&renamed);
        forged.cubins.insert(code.digest, renamed);
    }
    let file = forged.encode();
    Bundle::read(&file, &KERNELS).unwrap().verify().unwrap();
    let lock = |built: &Built| lock::of(&built.manifest, &selection.locked()[0], &[ARCH]);
    let changes = lock(&today).compare(&lock(&forged));
    let bytes_alone =
        |change: &Change| matches!(change, Change::Changed { moved, same_code: false, .. } if moved.is_empty());
    assert!(changes.len() == 2 && changes.iter().all(bytes_alone), "{changes:?}");
}
