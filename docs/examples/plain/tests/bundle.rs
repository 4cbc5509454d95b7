//! The machine code in this program, without a GPU.

use precast_core::{Arch, Kernels, Key, PlainKernel, PlainUnit, Source};
use precast_runtime::Bundle;

const KERNELS: [&str; 5] = ["gather{}", "gelu{}", "saxpy{}", "sum{}", "transform{}"];

#[test]
fn the_bundle_holds_every_kernel_for_seven_rows() {
    let bundle = plain::bundle().unwrap();
    bundle.verify().unwrap();
    for arch in Arch::GPUS {
        let modules = bundle.modules(arch).unwrap();
        assert_eq!(modules.iter().map(|module| module.pair.key.to_string()).collect::<Vec<_>>(), KERNELS, "{arch}");
        // Of two files.
        let mut places: Vec<*const u8> = modules.iter().map(|module| module.image.as_ptr()).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 2);
    }
    // A simulated GPU has what has a reference.
    let simulated = bundle.modules(Arch::Sim).unwrap();
    assert_eq!(simulated.iter().map(|module| module.pair.key.to_string()).collect::<Vec<_>>(), ["saxpy{}", "sum{}"]);
}

#[test]
fn a_program_of_other_kernels_can_examine_it() {
    static OTHERS: Kernels = Kernels::new("plain", &[], &[]);
    let file = plain::bundle().unwrap().encode();
    let reason = Bundle::read(&file, &OTHERS).unwrap().examine().unwrap();
    assert!(reason.unwrap().to_string().contains("were not made from this program's sources"));
}

#[test]
fn what_each_kernel_needs_is_known_before_a_launch() {
    let bundle = plain::bundle().unwrap();
    let most = |key: &str| {
        let module = bundle.manifest().modules.iter().find(|module| module.key == key && module.arch == "sm_90a");
        module.unwrap().code.as_ref().unwrap().max_threads
    };
    // The first says so in its launch bounds, the others' registers do.
    assert_eq!((most("transform{}"), most("saxpy{}")), (256, 1024));
}

#[test]
fn a_header_of_others_is_part_of_the_name_in_machine_code() {
    let [own, edited] = ["0.70710678118654752440", "0.5"].map(|number| {
        let unit = plain::kernels::GELU.unit;
        let edit =
            |(name, text): &(&'static str, &str)| (*name, &*text.replace("0.70710678118654752440", number).leak());
        let headers: Vec<_> = unit.source.headers.iter().map(edit).collect();
        let source = Source { headers: headers.leak(), ..unit.source };
        let unit = Box::leak(Box::new(PlainUnit { source, ..*unit }));
        let kernel = Box::leak(Box::new(PlainKernel { unit, ..plain::kernels::GELU }));
        Key::of_plain(kernel).built(Arch::Sm89).next().unwrap().entry(Arch::Sm89)
    });
    assert_ne!(own, edited);
    let bundle = plain::bundle().unwrap();
    let entries: Vec<&str> = bundle.cubins().map(|(_, image)| image).map(|image| symbol(image, &own)).collect();
    assert!(entries.contains(&&*own) && !bundle.cubins().any(|(_, image)| symbol(image, &edited) == edited));
}

/// The symbol if machine code has it.
fn symbol<'s>(image: &[u8], symbol: &'s str) -> &'s str {
    if image.windows(symbol.len()).any(|window| window == symbol.as_bytes()) { symbol } else { "" }
}
