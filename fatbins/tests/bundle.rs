//! Bundles of real cubins: claims, round trips, and refusal of damaged files.

mod support {
    pub mod renamed;
}

use std::sync::LazyLock;

use minisign::KeyPair;
use precast_fatbins::{
    Bundle, BundleError, BundleFile, Code, CubinError, CubinFacts, Digest, Manifest, ManifestError, ModuleEntry,
    Origin, Stale, TrustedKey, encode, parts, signature_path,
};
use precast_kernels::{Arch, KERNELS, KeyVariant};

use support::renamed::renamed;

/// Cubins of older sources.
const COMPILED: [(&str, &str, &[u8]); 6] = [
    ("cast{from=f32,to=bf16}", "sm_121", include_bytes!("fixtures/cast.sm_121.cubin")),
    ("cast{from=f32,to=bf16}", "sm_89", include_bytes!("fixtures/cast.sm_89.cubin")),
    ("cast{from=f32,to=bf16}", "sm_90a", include_bytes!("fixtures/cast.sm_90a.cubin")),
    ("fill{first=false}", "sm_121", include_bytes!("fixtures/fill.sm_121.cubin")),
    ("fill{first=false}", "sm_89", include_bytes!("fixtures/fill.sm_89.cubin")),
    ("fill{first=false}", "sm_90a", include_bytes!("fixtures/fill.sm_90a.cubin")),
];

/// Those cubins under current symbols, which end in the digest of the current sources.
static CUBINS: LazyLock<Vec<(&str, &str, Vec<u8>)>> =
    LazyLock::new(|| COMPILED.map(|(key, arch, cubin)| (key, arch, renamed(cubin, &symbol(key, arch)))).into());

fn pair(key: &str, arch: &str) -> (KeyVariant, Arch) {
    let (key, arch) = (KERNELS.parse(key).unwrap(), Arch::of_name(arch).unwrap());
    let variant = key.kernel().variants(arch)[0];
    (KeyVariant { key, variant }, arch)
}

/// Returns the entry symbol that this program expects.
fn symbol(key: &str, arch: &str) -> String {
    let (pair, arch) = pair(key, arch);
    pair.entry(arch)
}

fn cubin(key: &str, arch: &str) -> &'static [u8] {
    CUBINS.iter().find(|(k, a, _)| *k == key && *a == arch).map_or(&[], |(_, _, cubin)| cubin)
}

fn entry(key: &str, arch: &str, cubin: &[u8]) -> ModuleEntry {
    let (pair, arch) = pair(key, arch);
    ModuleEntry::compiled(&pair, arch, cubin).unwrap()
}

fn simulated(key: &str) -> ModuleEntry {
    ModuleEntry::simulated(&pair(key, "sim").0)
}

fn manifest() -> Manifest {
    let mut modules: Vec<ModuleEntry> = CUBINS.iter().map(|(key, arch, cubin)| entry(key, arch, cubin)).collect();
    modules.extend(["cast{from=f32,to=bf16}", "fill{first=false}"].map(simulated));
    modules.sort_by(|a, b| a.order().cmp(&b.order()));
    Manifest {
        origin: Some(Origin::of(&KERNELS)),
        compiler: "NVRTC 13.0 (V13.0.88)".into(),
        options: vec!["--std=c++17".into()],
        built_for: vec!["tiny".into()],
        modules,
    }
}

fn file(manifest: &Manifest) -> Vec<u8> {
    encode(manifest, |module| cubin(&module.key, &module.arch))
}

fn check(file: &[u8]) -> Result<(), BundleError> {
    Bundle::read(file, &KERNELS)?.verify()
}

#[test]
fn cubins_say_what_they_are() {
    let facts: Vec<String> =
        COMPILED.iter().map(|(_, _, cubin)| format!("{:?}", CubinFacts::read(cubin).unwrap())).collect();
    insta::assert_snapshot!(facts.join("\n"));
}

#[test]
fn a_bundle_reads_back_whole() {
    let manifest = manifest();
    let file = file(&manifest);
    let bundle = Bundle::read(&file, &KERNELS).unwrap();
    bundle.verify().unwrap();
    assert_eq!(bundle.manifest(), &manifest);
    assert_eq!(bundle.archs(), [Arch::Sm89, Arch::Sm90a, Arch::Sm121, Arch::Sim]);
    for (key, arch, cubin) in CUBINS.iter() {
        let modules = bundle.modules(Arch::of_name(arch).unwrap()).unwrap();
        let module = modules.iter().find(|module| module.pair.key.text() == *key).unwrap();
        assert_eq!(module.image, cubin);
    }
    assert!(bundle.modules(Arch::Sim).unwrap().iter().all(|module| module.image.is_empty()));
    let (fatbin, encoded) = parts(&manifest, |module| cubin(&module.key, &module.arch));
    assert_eq!(Bundle::from_parts(&encoded, &fatbin, &KERNELS).unwrap().digest(), bundle.digest());
}

/// A bundle of the fill kernel alone, small enough to damage at every byte.
fn small() -> Vec<u8> {
    let mut manifest = manifest();
    manifest.modules.retain(|module| module.key.starts_with("fill") && module.arch != "sm_121");
    file(&manifest)
}

#[test]
fn every_flipped_byte_is_noticed() {
    let whole = small();
    check(&whole).unwrap();
    for offset in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[offset] ^= 1 << (offset % 8);
        assert!(check(&damaged).is_err(), "byte {offset} of {}", whole.len());
        assert!(examine(&damaged).is_err(), "byte {offset} of {}", whole.len());
    }
}

fn examine(file: &[u8]) -> Result<Option<BundleError>, BundleError> {
    Bundle::read(file, &KERNELS)?.examine()
}

#[test]
fn a_stale_bundle_is_held_to_its_manifest() {
    let stale = |change: fn(&mut Manifest)| {
        let mut other = manifest();
        other.modules.iter_mut().for_each(|module| module.source.0[0] ^= 1);
        change(&mut other);
        examine(&file(&other))
    };
    assert!(examine(&file(&manifest())).unwrap().is_none());
    let Some(BundleError::Stale(whole)) = stale(|_| {}).unwrap() else { panic!("every module is stale") };
    assert_eq!((whole.modules.len(), whole.total), (8, 8));
    assert!(matches!(stale(|m| code(m, 0).digest = Digest::of(b"")), Err(BundleError::Digest { .. })));
    assert!(matches!(stale(|m| code(m, 1).registers += 1), Err(BundleError::Claim { what: "registers", .. })));
    assert!(matches!(stale(|m| code(m, 1).entry.push('0')), Err(BundleError::Claim { what: "entry symbol", .. })));
}

#[test]
fn manifests_of_several_libraries_are_told_from_a_damaged_one() {
    let own = manifest().encode();
    let decode = |bytes: &[u8]| Manifest::decode(bytes).map(drop);
    assert_eq!(decode(&[&own[..], &[0; 16], &own[..]].concat()), Err(ManifestError::Several(2)));
    assert!(matches!(decode(&[&own[..], &[0; 16]].concat()), Err(ManifestError::Digest { .. })));
}

#[test]
fn every_truncation_is_noticed() {
    let whole = small();
    for length in 0..whole.len() {
        assert!(check(&whole[..length]).is_err(), "{length} of {} bytes", whole.len());
    }
    assert!(matches!(check(&[&whole[..], &[0]].concat()), Err(BundleError::NotCanonical { .. })));
}

fn stale(result: Result<(), BundleError>) -> Stale {
    let error = result.unwrap_err();
    if let BundleError::Stale(stale) = error { stale } else { panic!("{error}") }
}

#[test]
fn stale_kernels_are_counted_and_the_command_is_named() {
    let mut other = manifest();
    for module in &mut other.modules {
        match module.key.as_str() {
            "cast{from=f32,to=bf16}" => module.source.0[0] ^= 1,
            _ if module.arch == "sm_121" => module.key = "fill{first=false,more=1}".to_owned(),
            _ if module.arch == "sm_90a" => module.key = "flood{}".to_owned(),
            _ if module.arch == "sm_89" => module.variant = "threads=512".to_owned(),
            _ => {}
        }
    }
    other.modules.sort_by(|a, b| a.order().cmp(&b.order()));
    let file = encode(&other, |module| {
        let name = if module.key.starts_with("cast") { "cast{from=f32,to=bf16}" } else { "fill{first=false}" };
        cubin(name, &module.arch)
    });
    // It still reads: `inspect` and `diff` show it.
    assert_eq!(Bundle::read(&file, &KERNELS).unwrap().manifest(), &other);
    insta::assert_snapshot!(stale(check(&file)));
}

#[test]
fn bundles_of_other_programs_and_cores_are_refused_by_name() {
    let of = |program: &str, core: &str| {
        let origin = Some(Origin { program: program.to_owned(), core: core.to_owned() });
        let file = file(&Manifest { origin, ..manifest() });
        // It still reads, and is shown as it is.
        let reason = Bundle::read(&file, &KERNELS).unwrap().examine().unwrap();
        let refused = check(&file).unwrap_err();
        assert_eq!(reason.unwrap().to_string(), refused.to_string());
        assert!(matches!(refused, BundleError::Foreign(_)), "{refused}");
        refused.to_string()
    };
    insta::assert_snapshot!([of("saxpy", precast_core::VERSION), of("precast", "0.0.9")].join("\n\n"));
}

#[test]
fn a_signed_bundle_of_format_1_is_whole_and_refused() {
    // Built and signed by the version before entry symbols contained a digest of the sources.
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/older");
    let key = TrustedKey::find(path.join("older.pub").to_str().unwrap()).unwrap();
    let file = BundleFile::read(&path.join("older.bundle")).unwrap();
    let bundle = file.open(&[key], &KERNELS).unwrap();
    insta::assert_snapshot!(bundle.verify().unwrap_err());
    assert_eq!(bundle.encode(), file.bytes, "and written as it was");
}

#[test]
fn symbol_manifest_and_program_must_agree() {
    // The cubin of other sources, under its own symbol.
    let (key, arch) = ("fill{first=false}", "sm_89");
    let today = symbol(key, arch);
    let other = renamed(cubin(key, arch), &format!("{}{:016}", &today[..today.len() - 16], 0));
    let of = |cubin: &[u8], change: &dyn Fn(&mut ModuleEntry)| {
        let mut module = entry(key, arch, cubin);
        change(&mut module);
        let manifest = Manifest { modules: vec![module], ..manifest() };
        check(&encode(&manifest, |_| cubin))
    };
    of(cubin(key, arch), &|_| {}).unwrap();
    let untrue = |result: Result<(), BundleError>| {
        let error = result.unwrap_err();
        assert!(matches!(error, BundleError::Claim { what: "entry symbol", .. }), "{error}");
    };
    // The manifest claims current sources, then the current symbol too; the cubin does not.
    untrue(of(&other, &|_| {}));
    untrue(of(&other, &|module| module.code.as_mut().unwrap().entry.clone_from(&today)));
    // The cubin has the current symbol; the manifest does not.
    assert!(matches!(of(cubin(key, arch), &|module| module.source.0[9] ^= 1), Err(BundleError::Stale(_))));
    untrue(of(cubin(key, arch), &|module| module.code.as_mut().unwrap().entry.push('0')));
    // The source digest covers the options, which are repeated for people.
    let options = Manifest { options: vec!["--std=c++17".into(), "--use_fast_math".into()], ..manifest() };
    assert!(matches!(check(&file(&options)), Err(BundleError::Claim { what: "options", .. })));
    // Alteration is reported before staleness: no content of an altered file can be trusted.
    let mut altered = manifest();
    altered.modules[0].source.0[0] ^= 1;
    code(&mut altered, 1).digest = Digest::of(b"");
    assert!(matches!(check(&file(&altered)), Err(BundleError::Digest { .. })));
}

fn damage(change: impl FnOnce(&mut Manifest)) -> BundleError {
    let mut manifest = manifest();
    change(&mut manifest);
    // Some changes leave a module without its own cubin: any of the right size will do.
    let file = encode(&manifest, |module| {
        let bytes = module.code.as_ref().map_or(0, |code| code.bytes);
        let fits = |cubin: &&[u8]| cubin.len() as u64 == bytes;
        let own = Some(cubin(&module.key, &module.arch)).filter(fits);
        own.or_else(|| CUBINS.iter().map(|(_, _, cubin)| &cubin[..]).find(fits)).unwrap_or(&[])
    });
    check(&file).unwrap_err()
}

fn code(manifest: &mut Manifest, index: usize) -> &mut Code {
    manifest.modules.iter_mut().filter_map(|module| module.code.as_mut()).nth(index).unwrap()
}

#[test]
fn claims_that_are_not_true_are_named() {
    let errors = [
        damage(|manifest| code(manifest, 0).digest = Digest::of(b"")),
        damage(|manifest| code(manifest, 1).registers += 1),
        damage(|manifest| code(manifest, 1).stack_bytes = 8),
        damage(|manifest| code(manifest, 1).static_shared_bytes = 8),
        damage(|manifest| code(manifest, 1).max_threads = 128),
        damage(|manifest| code(manifest, 1).entry = "other".into()),
        damage(|manifest| manifest.modules[1].params_bytes = 32),
        damage(|manifest| manifest.modules[0].code = manifest.modules[1].code.clone()),
        damage(|manifest| manifest.modules[1].code = None),
        damage(|manifest| manifest.modules.swap(0, 1)),
        damage(|manifest| manifest.modules[1] = manifest.modules[0].clone()),
        damage(|manifest| manifest.modules[0].key = "cast{from=f32,to=f16}".into()),
        damage(|manifest| manifest.modules[0].key = "absent{}".into()),
        damage(|manifest| manifest.modules[0].variant = "threads=257".into()),
        damage(|manifest| manifest.modules[0].arch = "sm_12".into()),
    ];
    // Values that depend on the current sources are left out.
    let [first, second] = [0, 1].map(|index| code(&mut manifest(), index).clone());
    let message = |error: &BundleError| {
        let text = error.to_string().replace(&first.digest.to_string(), "DIGEST");
        text.replace(&second.entry, "SYMBOL")
    };
    insta::assert_snapshot!(errors.iter().map(message).collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_cubin_under_another_architectures_name_is_refused() {
    let mut manifest = manifest();
    let cast_89 = cubin("cast{from=f32,to=bf16}", "sm_89");
    for module in manifest.modules.iter_mut().filter(|module| module.key.starts_with("cast")) {
        if module.arch == "sm_121" {
            module.code = entry(&module.key.clone(), "sm_89", cast_89).code;
        }
    }
    let file = encode(&manifest, |module| match (module.key.as_str(), module.arch.as_str()) {
        ("cast{from=f32,to=bf16}", "sm_121") => cast_89,
        (key, arch) => cubin(key, arch),
    });
    let error = check(&file).unwrap_err();
    let BundleError::Claim { what: "architecture", expected, found, .. } = error else { panic!("{error}") };
    assert_eq!((expected.as_str(), found.as_str()), ("sm_121", "sm_89"));
}

#[test]
fn a_length_beyond_the_file_is_no_size_of_a_module() {
    let mut large = manifest();
    code(&mut large, 0).bytes = u64::MAX - 3;
    let encoded = large.encode();
    assert!(matches!(Bundle::from_parts(&encoded, &[], &KERNELS), Err(BundleError::Size { .. })));
}

#[test]
fn what_is_no_cubin_is_refused_with_a_reason() {
    assert!(matches!(CubinFacts::read(b""), Err(CubinError::Elf(_))));
    let mut other = COMPILED[1].2.to_vec();
    other[18] = 62;
    assert_eq!(CubinFacts::read(&other), Err(CubinError::Machine { found: 62 }));
    let whole = COMPILED[1].2;
    for length in 0..whole.len() {
        assert!(CubinFacts::read(&whole[..length]).is_err() || length > whole.len() - 300, "{length}");
    }
}

/// Returns the offset of the section headers of a bundle: null, .nv_fatbin, .precast, .shstrtab; 64 bytes each.
fn section_headers(file: &[u8]) -> usize {
    u64::from_le_bytes(file[40..48].try_into().unwrap()) as usize
}

/// Reads a bundle after a change to its section headers.
fn with_headers(change: impl FnOnce(&mut [[u8; 64]])) -> Result<(), BundleError> {
    let mut file = small();
    let start = section_headers(&file);
    let mut headers: Vec<[u8; 64]> = file[start..].chunks_exact(64).map(|header| header.try_into().unwrap()).collect();
    change(&mut headers);
    file.truncate(start);
    file.extend(headers.concat());
    file[60..62].copy_from_slice(&(headers.len() as u16).to_le_bytes());
    check(&file)
}

/// Places of 64-bit fields in a section header.
const OFFSET: std::ops::Range<usize> = 24..32;
const SIZE: std::ops::Range<usize> = 32..40;

#[test]
fn sections_that_are_not_as_they_should_be_are_refused() {
    let overlap = |headers: &mut [[u8; 64]]| {
        let first = headers[1];
        headers[2][OFFSET].copy_from_slice(&first[OFFSET]);
    };
    let results = [
        ("swapped", with_headers(|headers| headers.swap(1, 2))),
        ("duplicated", with_headers(|headers| headers[3] = headers[2])),
        ("missing", with_headers(|headers| headers[1] = [0; 64])),
        ("overlapping", with_headers(overlap)),
        ("oversized", with_headers(|headers| headers[1][SIZE].fill(0xFF))),
        ("beyond the file", with_headers(|headers| headers[2][OFFSET].copy_from_slice(&(u64::MAX - 8).to_le_bytes()))),
        ("one more", {
            let mut file = small();
            let extra = file[section_headers(&file) + 64..][..64].to_vec();
            file.extend(extra);
            file[60] += 1;
            check(&file)
        }),
        ("flags", with_headers(|headers| headers[1][8] ^= 4)),
    ];
    let errors = results.map(|(what, result)| format!("{what}: {}", result.unwrap_err()));
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn ptx_is_refused_wherever_it_is_put() {
    // In place of a cubin, with a matching digest.
    let ptx = b".version 8.8\n.target sm_121\n.entry fill() { ret; }\n";
    let mut with_ptx = manifest();
    with_ptx.modules.retain(|module| module.key.starts_with("fill") && module.arch == "sm_121");
    *code(&mut with_ptx, 0) =
        Code { digest: Digest::of(ptx), bytes: ptx.len() as u64, ..code(&mut with_ptx, 0).clone() };
    let error = check(&encode(&with_ptx, |_| ptx)).unwrap_err();
    assert!(matches!(error, BundleError::Cubin { .. }), "{error}");
    // As the kind of a fatbin entry: 1 is PTX.
    let whole = small();
    let entry = whole.windows(4).position(|window| window == [2, 0, 1, 1]).unwrap();
    let mut kind = whole.clone();
    kind[entry] = 1;
    assert!(matches!(check(&kind), Err(BundleError::Layout { .. })));
}

#[test]
fn only_a_trusted_key_opens_a_signed_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fill.bundle");
    let pairs = [(); 2].map(|()| KeyPair::generate_unencrypted_keypair().unwrap());
    let [good, other] = pairs.each_ref().map(|pair| TrustedKey::find(&pair.pk.to_base64()).unwrap());
    let text = minisign::sign(None, &pairs[0].sk, &small()[..], None, None).unwrap().into_string();
    std::fs::write(&path, small()).unwrap();
    let signature = signature_path(&path);
    let open = |keys: &[TrustedKey]| BundleFile::read(&path).unwrap().open(keys, &KERNELS).map(drop);
    let mut errors = vec![open(std::slice::from_ref(&good)).unwrap_err()];
    open(&[]).unwrap();
    std::fs::write(&signature, &text).unwrap();
    open(std::slice::from_ref(&good)).unwrap();
    open(&[other.clone(), good.clone()]).unwrap();
    errors.push(open(&[other]).unwrap_err());
    // The signature is checked first: a file that is no bundle fails by its signature.
    std::fs::write(&path, b"something else").unwrap();
    errors.push(open(std::slice::from_ref(&good)).unwrap_err());
    // What minisign does not write, its library skips.
    let without_comment = text.replacen("untrusted comment: ", "", 1);
    for wrong in
        [format!("{text}{}", "more\n".repeat(1 << 20)), without_comment, text.replacen("trusted comment: ", "", 2)]
    {
        std::fs::write(&path, small()).unwrap();
        std::fs::write(&signature, wrong).unwrap();
        assert!(open(std::slice::from_ref(&good)).unwrap_err().to_string().contains("is not a minisign signature"));
    }
    std::fs::write(&signature, "not a signature").unwrap();
    errors.push(open(std::slice::from_ref(&good)).unwrap_err());
    errors.push(TrustedKey::find("no key").unwrap_err().into());
    let base = dir.path().display().to_string();
    let messages: Vec<String> = errors
        .iter()
        .map(|error| error.to_string().replace(&base, "DIR").replace(&pairs[1].pk.to_base64(), "KEY"))
        .collect();
    insta::assert_snapshot!(messages.join("\n"));
}
