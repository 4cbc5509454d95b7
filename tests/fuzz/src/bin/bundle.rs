//! A bundle, its two sections, its manifest, a cubin. What is accepted is what the program writes.
#![no_main]

use precast_fatbins::{Bundle, CubinCode, CubinFacts, Digest, Manifest};
use precast_fuzz::{joined, kernels, parts};
use precast_kernels::KERNELS;

/// Magic bytes of a manifest, of today and of before programs had names; its digest follows.
const MAGIC: [&[u8]; 2] = [b"PRECAST\x02", b"PRECAST\x01"];
const HEAD: usize = 8 + 32;

precast_fuzz::target!(
    || {
        let [manifest, simulated] = kernels::manifests();
        let sections = [&manifest, &simulated].map(|manifest| joined(&[&manifest[HEAD..], b""]));
        kernels::bundles().into_iter().chain(kernels::cubins()).chain(sections).collect()
    },
    |input: &[u8]| {
        if let Ok(bundle) = Bundle::read(input, &KERNELS) {
            let _ = (bundle.verify(), bundle.examine());
        }
        let _ = (CubinFacts::read(input), CubinCode::read(input));
        // With the digest that is right, so that the body is read.
        let [body, fatbin] = parts::<2>(input);
        let digest = Digest::of_parts("precast.manifest", [body]);
        for magic in MAGIC {
            let bytes = [magic, &digest.0, body].concat();
            let Ok(manifest) = Manifest::decode(&bytes) else { continue };
            assert_eq!(manifest.encode(), bytes);
            if let Ok(bundle) = Bundle::from_parts(&bytes, fatbin, &KERNELS) {
                let _ = bundle.verify();
            }
        }
    }
);
