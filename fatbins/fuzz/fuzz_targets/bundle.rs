//! Parses any bytes as a bundle, as a bundle's two sections, as a manifest, a cubin and a lock. No parser may panic,
//! and an accepted input must encode to the same bytes again.
//!
//! cargo fuzz run bundle        (from fatbins/; needs cargo-fuzz, and RUSTC_BOOTSTRAP=1 with a stable compiler)
//!
//! The corpus is a minimal cover of all edges found, regardless of their counts:
//!
//! mkdir fuzz/cover && cargo fuzz run bundle fuzz/cover fuzz/corpus/bundle -- -set_cover_merge=1 -use_counters=0
//! -use_cmp=0 rm -r fuzz/corpus/bundle && mv fuzz/cover fuzz/corpus/bundle
#![no_main]

use precast_kernels::KERNELS;
use libfuzzer_sys::fuzz_target;
use precast_fatbins::{Bundle, CubinFacts, Digest, Lock, Manifest};

/// Magic bytes of a manifest.
const MAGIC: &[u8] = b"PRECAST\x02";

fuzz_target!(|data: &[u8]| {
    if let Ok(bundle) = Bundle::read(data, &KERNELS) {
        let _ = bundle.verify();
    }
    let _ = CubinFacts::read(data);
    if let Ok(lock) = String::from_utf8_lossy(data).parse::<Lock>() {
        assert_eq!(lock.to_string().parse(), Ok(lock));
    }
    // Adds a correct digest, so that the fuzzer passes it: the body of a manifest, then a section.
    let split = data.first().map_or(0, |first| usize::from(*first) * 4).min(data.len());
    let (body, fatbin) = data.split_at(split);
    let digest = Digest::of_parts("precast.manifest", [body]);
    let bytes = [MAGIC, &digest.0, body].concat();
    if let Ok(manifest) = Manifest::decode(&bytes) {
        assert_eq!(manifest.encode(), bytes);
        if let Ok(bundle) = Bundle::from_parts(&bytes, fatbin, &KERNELS) {
            let _ = bundle.verify();
        }
    }
});
