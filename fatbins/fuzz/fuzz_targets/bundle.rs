//! Any bytes as a bundle, as the two sections of one, as a manifest, a cubin and a lock. None may panic, and what is taken
//! must encode to the same bytes again.
//!
//! cargo fuzz run bundle        (from fatbins/; needs cargo-fuzz, and RUSTC_BOOTSTRAP=1 with a stable compiler)
//!
//! The corpus is the set cover of all that was found, by the edges of code that it passes and not by how often:
//!
//! mkdir fuzz/cover && cargo fuzz run bundle fuzz/cover fuzz/corpus/bundle -- -set_cover_merge=1 -use_counters=0 -use_cmp=0
//! rm -r fuzz/corpus/bundle && mv fuzz/cover fuzz/corpus/bundle
#![no_main]

use libfuzzer_sys::fuzz_target;
use precast_fatbins::{Bundle, CubinFacts, Digest, Lock, Manifest};

/// Marks a manifest.
const MAGIC: &[u8] = b"PRECAST\x01";

fuzz_target!(|data: &[u8]| {
    if let Ok(bundle) = Bundle::read(data) {
        let _ = bundle.verify();
    }
    let _ = CubinFacts::read(data);
    if let Ok(lock) = String::from_utf8_lossy(data).parse::<Lock>() {
        assert_eq!(lock.to_string().parse(), Ok(lock));
    }
    // Behind a right digest, so that the fuzzer gets past it: the body of a manifest, then a section.
    let split = data.first().map_or(0, |first| usize::from(*first) * 4).min(data.len());
    let (body, fatbin) = data.split_at(split);
    let digest = Digest::of_parts("precast.manifest", [body]);
    let bytes = [MAGIC, &digest.0, body].concat();
    if let Ok(manifest) = Manifest::decode(&bytes) {
        assert_eq!(manifest.encode(), bytes);
        if let Ok(bundle) = Bundle::from_parts(&bytes, fatbin) {
            let _ = bundle.verify();
        }
    }
});
