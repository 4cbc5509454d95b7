//! A published layout: a tar file, and a directory with a manifest of its own, which names files that are right.
#![no_main]

use std::fs;
use std::path::PathBuf;

use precast_aot::publish::{fetch, publish};
use precast_fatbins::{Bundle, Digest, Lock};
use precast_fuzz::{Folder, kernels};
use precast_kernels::KERNELS;
use serde_json::{Value, json};

precast_fuzz::target!(
    || {
        let folder = Folder::new();
        published(&folder);
        let manifest = fs::read(blob(&folder, &index(&folder)["manifests"][0]["digest"])).expect("it was published");
        vec![folder.read("layout.tar"), manifest]
    },
    |input: &[u8]| {
        thread_local!(static FOLDER: Folder = {
            let folder = Folder::new();
            published(&folder);
            folder
        });
        FOLDER.with(|folder| {
            let _ = fetch(&folder.put("layout.tar", input), &[], &KERNELS);
            // Under its own digest, which the index has.
            let digest = Digest::of(input);
            let path = folder.put(&format!("layout/blobs/sha256/{digest}"), input);
            let mut index = index(folder);
            index["manifests"][0]["digest"] = json!(format!("sha256:{digest}"));
            index["manifests"][0]["size"] = json!(input.len());
            folder.put("layout/index.json", index.to_string().as_bytes());
            let _ = fetch(&folder.path("layout"), &[], &KERNELS);
            fs::remove_file(path).expect("it was written");
        });
    }
);

/// Publishes a small bundle as a directory and as a tar file.
fn published(folder: &Folder) {
    let [bundle, _] = kernels::bundles();
    let lock = Lock::of(Bundle::read(&bundle, &KERNELS).expect("a bundle").manifest());
    let layout = publish(&bundle, &KERNELS, &[("tiny".to_owned(), lock)], None).expect("it is published");
    for name in ["layout", "layout.tar"] {
        layout.write(&folder.path(name)).expect("it is written");
    }
}

fn index(folder: &Folder) -> Value {
    serde_json::from_slice(&folder.read("layout/index.json")).expect("JSON")
}

/// Returns the path of the blob with a digest.
fn blob(folder: &Folder, digest: &Value) -> PathBuf {
    let digest = digest.as_str().and_then(|digest| digest.strip_prefix("sha256:")).expect("a digest");
    folder.path(&format!("layout/blobs/sha256/{digest}"))
}
