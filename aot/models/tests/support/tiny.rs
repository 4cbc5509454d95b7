//! A published bundle of a tiny model.

use std::path::PathBuf;

use minisign::KeyPair;
use precast_aot::cache::Cache;
use precast_aot::publish::{Signer, publish};
use precast_aot::{Arch, Built, Request, build, home, lock};
use precast_fatbins::{Lock, TrustedKey};
use precast_kernels::KERNELS;
use precast_models::Selection;
use tempfile::TempDir;

use super::program::{nvrtc, tiny_model};

/// Builds a tiny model's kernels for one architecture, and its lock.
pub fn tiny() -> (Request, Built, Vec<(String, Lock)>) {
    let model = tiny_model();
    let selection = Selection::of_models(vec![model], vec![Arch::Sm121]);
    let request = selection.request();
    let built = build(&request, &nvrtc(), &Cache::at(home::directory().join("cache")), &|_, _| {}).unwrap();
    let lock = lock::of(&built.manifest, &selection.locked()[0], &request.archs);
    (request, built, vec![("tiny".to_owned(), lock)])
}

/// Makes a key pair: a closure that signs with the secret key, and the public key to trust.
pub fn key() -> (impl Fn(&[u8]) -> Result<String, String>, TrustedKey) {
    let pair = KeyPair::generate_unencrypted_keypair().unwrap();
    let trusted = TrustedKey::find(&pair.pk.to_base64()).unwrap();
    let sign = move |bytes: &[u8]| {
        let signature = minisign::sign(None, &pair.sk, bytes, Some("no time"), None);
        signature.map(|signature| signature.into_string()).map_err(|error| error.to_string())
    };
    (sign, trusted)
}

/// Publishes a layout into a directory.
pub fn published(sign: Option<Signer<'_>>) -> (TempDir, PathBuf) {
    let (_, built, locks) = tiny();
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("layout");
    publish(&built.encode(), &KERNELS, &locks, sign).unwrap().write(&to).unwrap();
    (dir, to)
}
