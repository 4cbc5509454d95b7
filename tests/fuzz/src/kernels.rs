//! A bundle of kernels that were compiled once, small enough to be searched.

use precast_core::Arch;
use precast_fatbins::{CubinFacts, Manifest, ModuleEntry, Origin, encode};
use precast_kernels::{KERNELS, KeyVariant};

use crate::fixture;

/// Keys, architectures and the cubins of older sources.
const COMPILED: [(&str, &str); 3] =
    [("cast{from=f32,to=bf16}", "sm_89"), ("fill{first=false}", "sm_89"), ("fill{first=false}", "sm_121")];

/// Returns the cubins.
pub fn cubins() -> Vec<Vec<u8>> {
    let name = |key: &str| key.split('{').next().unwrap_or_default().to_owned();
    COMPILED.iter().map(|(key, arch)| fixture(&format!("fatbins/tests/fixtures/{}.{arch}.cubin", name(key)))).collect()
}

/// Returns a manifest and its cubins, under symbols as sources of today have them, and on request with modules of the
/// simulated GPU alone.
fn manifest(simulated: bool) -> (Manifest, Vec<(String, Vec<u8>)>) {
    let (mut modules, mut bodies) = (Vec::new(), Vec::new());
    for ((key, arch), cubin) in COMPILED.iter().zip(cubins()) {
        let (key, arch) = (KERNELS.parse(key).expect("a key"), Arch::of_name(arch).expect("an architecture"));
        let variant = key.kernel().variants(arch)[0];
        let pair = KeyVariant { key, variant };
        modules.push(ModuleEntry::simulated(&pair));
        if !simulated {
            let cubin = renamed(cubin, &pair.entry(arch));
            modules.push(ModuleEntry::compiled(&pair, arch, &cubin).expect("a cubin"));
            bodies.push((format!("{} {arch}", modules.last().expect("it was pushed").key), cubin));
        }
    }
    modules.sort_by(|one, other| one.order().cmp(&other.order()));
    modules.dedup_by(|one, other| one.order() == other.order());
    let origin = Some(Origin::of(&KERNELS));
    let compiler = "NVRTC 13.0 (V13.0.88)".to_owned();
    (Manifest { origin, compiler, options: vec!["--std=c++17".to_owned()], built_for: Vec::new(), modules }, bodies)
}

/// Gives a cubin an entry symbol of the same length.
fn renamed(mut cubin: Vec<u8>, symbol: &str) -> Vec<u8> {
    let old = CubinFacts::read(&cubin).expect("a cubin").entry.into_bytes();
    let places: Vec<usize> =
        cubin.windows(old.len()).enumerate().filter(|(_, window)| *window == old).map(|(at, _)| at).collect();
    places.into_iter().for_each(|at| cubin[at..at + old.len()].copy_from_slice(symbol.as_bytes()));
    cubin
}

/// Returns bundles, with machine code and without.
pub fn bundles() -> [Vec<u8>; 2] {
    [false, true].map(|simulated| {
        let (manifest, bodies) = manifest(simulated);
        encode(&manifest, |module| {
            let name = format!("{} {}", module.key, module.arch);
            bodies.iter().find(|(of, _)| *of == name).map_or(&[], |(_, cubin)| cubin)
        })
    })
}

/// Returns their manifests.
pub fn manifests() -> [Vec<u8>; 2] {
    [false, true].map(|simulated| manifest(simulated).0.encode())
}
