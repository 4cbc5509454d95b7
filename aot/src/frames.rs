//! Bundles in zstd frames: one of each architecture, for programs that have all.

use precast_core::Arch;
use precast_fatbins::{Digest, compress};
use rayon::prelude::*;

use crate::build::Built;
use crate::cache::Cache;

/// The bundle of one architecture in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Framed {
    /// Compressed bundle.
    pub bytes: Vec<u8>,
    /// Size of the bundle, bytes.
    pub bundle_bytes: u64,
    /// Digest of the bundle's manifest.
    pub bundle: Digest,
}

/// Compresses the bundle of each architecture, in parallel, through the cache.
pub fn frames(built: &Built, archs: &[Arch], cache: &Cache) -> Vec<Framed> {
    let framed = |arch: &Arch| {
        let row = built.only(*arch);
        let bundle = row.encode();
        let key = Digest::of(&[b"frame", &*bundle].concat());
        let bytes = cache.get(&key).unwrap_or_else(|| {
            let bytes = compress(&bundle);
            cache.put(&key, &bytes);
            bytes
        });
        Framed { bytes, bundle_bytes: bundle.len() as u64, bundle: row.digest() }
    };
    archs.par_iter().map(framed).collect()
}
