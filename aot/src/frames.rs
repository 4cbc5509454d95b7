//! Bundles in zstd frames: one of each architecture, for programs that have all.

use precast_core::Arch;
use precast_fatbins::{Digest, Frame, compress};
use rayon::prelude::*;

use crate::build::Built;
use crate::cache::Cache;

/// Compresses the bundle of each architecture, in parallel, through the cache. The last of a generation is the
/// dictionary of those before it. The frames live as long as the process, as those in a program do.
pub fn frames(built: &Built, archs: &[Arch], cache: &Cache) -> Vec<Frame> {
    let framed = |arch: &Arch| {
        let row = built.only(*arch);
        let (bundle, base) = (row.encode(), base(*arch, archs));
        let dictionary = base.map(|base| built.only(base).encode()).unwrap_or_default();
        let key = Digest::of(&[b"frame", Digest::of(&dictionary).0.as_slice(), &bundle].concat());
        let bytes = cache.get(&key).unwrap_or_else(|| {
            let bytes = compress(&bundle, &dictionary);
            cache.put(&key, &bytes);
            bytes
        });
        let (sha256, bytes) = (Digest::of(&bytes), bytes.leak());
        Frame { arch: *arch, base, bytes, sha256, bundle_bytes: bundle.len() as u64, bundle: row.digest() }
    };
    archs.par_iter().map(framed).collect()
}

/// Returns the last of these architectures with the major compute capability of `arch`; none for that one itself.
fn base(arch: Arch, archs: &[Arch]) -> Option<Arch> {
    let major = |arch: &Arch| arch.compute_capability().map(|(major, _)| major);
    archs.iter().copied().rfind(|other| major(other) == major(&arch)).filter(|last| *last != arch)
}
