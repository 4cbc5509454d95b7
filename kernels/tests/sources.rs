//! The CUDA sources keep to rules: they teach, and they name intrinsics in one place.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use precast_kernels::{Arch, KERNELS, Source};

/// Every source that a kernel is built from, by path.
fn sources() -> BTreeMap<&'static str, Source> {
    let built = KERNELS.examples().into_iter().flat_map(|key| {
        Arch::GPUS.into_iter().chain([Arch::Sm90Portable]).flat_map(move |arch| key.built(arch).collect::<Vec<_>>())
    });
    built.map(|pair| pair.source()).map(|source| (source.path, source)).collect()
}

/// The comment at the start of a source.
fn comment(text: &str) -> String {
    text.lines().map_while(|line| line.strip_prefix("//")).collect::<Vec<_>>().join("\n")
}

/// A source's header, and those of the headers of its folder that it points at with "see NAME.cuh".
fn header(source: &Source) -> String {
    let own = comment(source.text);
    let folder = source.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let pointed = source.headers.iter().filter(|(name, _)| {
        let file = name.strip_prefix(folder).map_or("", |file| file.trim_start_matches('/'));
        !file.is_empty() && own.contains(file)
    });
    pointed.fold(own.clone(), |all, (_, text)| all + "\n" + &comment(text))
}

#[test]
fn a_kernels_header_names_its_bound_and_its_source() {
    let missing: Vec<String> = sources()
        .values()
        .flat_map(|source| {
            let header = header(source);
            let named = |one: &str, more: &str| header.contains(one) || header.contains(more);
            let bound = (!named(" Bound: ", " Bound: ")).then_some("bound");
            let origin = (!named("Source: ", "Sources: ")).then_some("source");
            bound.into_iter().chain(origin).map(|what| format!("{}: no {what}", source.path)).collect::<Vec<_>>()
        })
        .collect();
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn a_source_includes_what_it_needs() {
    for source in sources().values() {
        let names: Vec<&str> = source.headers().iter().map(|header| header.0).collect();
        assert!(names.contains(&"device.cuh") && names.contains(&"types.h"), "{}: {names:?}", source.path);
    }
}

/// The runtime lets launches of these overlap, as measurements of whole steps chose them: CTAs that crowd on
/// multiprocessors which the launch before left idle can cost more than they hide.
#[test]
fn launches_that_gain_by_it_overlap() {
    let begins_early = |source: &&Source| source.mentions("griddepcontrol.launch_dependents");
    let all = sources();
    let early: Vec<&str> = all.values().filter(begins_early).map(|source| source.path).collect();
    let gemms = ["dgrad.cu", "fwd.cu", "int8/fwd.cu", "int8/swiglu.cu", "swiglu.cu", "wgrad.cu"]
        .map(|file| format!("gemm/wgmma/{file}"));
    let others = [
        "attention/wgmma/decode.cu",
        "attention/wgmma/fwd.cu",
        "column_sum/finish.cu",
        "column_sum/partial.cu",
        "conv/decode.cu",
        "delta_rule/mma/decode.cu",
        "gated_norm/fwd.cu",
        "int8/quantize.cu",
        "kv/store.cu",
        "qk_norm/fwd.cu",
        "rmsnorm/bwd.cu",
        "rmsnorm/fwd.cu",
        "rmsnorm/int8/bwd.cu",
        "rmsnorm/int8/fwd.cu",
        "rope/bwd.cu",
        "rope/fwd.cu",
        "rope/store.cu",
        "sample/advance.cu",
        "sample/sample.cu",
        "swiglu/bwd.cu",
        "swiglu/fwd.cu",
        "swiglu/int8/bwd.cu",
        "swiglu/int8/fwd.cu",
    ];
    let expected: BTreeSet<&str> = gemms.iter().map(String::as_str).chain(others).collect();
    assert_eq!(early, expected.into_iter().collect::<Vec<_>>());
    // The runtime goes by the header that a source includes: one that does not call it would not wait.
    for source in all.values().filter(begins_early) {
        let calls = |(name, text): &(&str, &str)| *name != "early.cuh" && text.contains("begin_early();");
        let texts = source.headers();
        assert!(texts.iter().any(calls) || source.text.contains("begin_early();"), "{}", source.path);
    }
}

/// Words with two underscores that are C++ of CUDA, and no instruction.
const KEYWORDS: [&str; 7] =
    ["__align__", "__device__", "__forceinline__", "__launch_bounds__", "__shared__", "__restrict__", "__CUDA_ARCH__"];

/// Files with an ending below a directory.
fn files(directory: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "cu" || ending == "cuh") {
            found.push(path);
        }
    }
}

#[test]
fn only_common_headers_name_instructions_and_intrinsics() {
    let mut paths = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut paths);
    assert!(paths.len() > 40, "{} sources", paths.len());
    let mut named = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in (1..).zip(text.lines()) {
            let code = line.split("//").next().unwrap_or_default();
            let words = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let named_here = words.filter(|word| *word == "asm" || word.starts_with("__") && !KEYWORDS.contains(word));
            named.extend(named_here.map(|word| format!("{}:{number}: {word}", path.display())));
        }
    }
    assert!(named.is_empty(), "these belong into kernels/core/cuda:\n{}", named.join("\n"));
}
