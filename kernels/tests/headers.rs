//! A helper that is added to a common header changes the digests of those alone that call it.

use std::collections::{BTreeMap, BTreeSet};

use precast_core::source::words::{self, Mention};
use precast_core::source::{Common, Header};
use precast_kernels::{Arch, KERNELS, Source};

/// Returns every source that an example is built from, and the number of rows.
fn sources() -> (Vec<Source>, usize) {
    let keys = KERNELS.examples();
    let archs = Arch::GPUS.into_iter().chain([Arch::Sm90Portable]);
    let rows: Vec<Source> =
        archs.flat_map(|arch| keys.iter().flat_map(move |key| key.built(arch))).map(|pair| pair.source()).collect();
    let count = rows.len();
    let sources: BTreeMap<&str, Source> = rows.into_iter().map(|source| (source.path, source)).collect();
    (sources.into_values().collect(), count)
}

/// Words that cannot name a function and that introduce an item.
const KEYWORDS: [&str; 10] =
    ["alignas", "__align__", "class", "enum", "operator", "struct", "template", "typedef", "union", "using"];

/// Adds functions of these names to the end of each common header.
fn with_functions(names: &BTreeSet<&str>) -> Common {
    let added: String =
        names.iter().map(|name| format!("// New.\n__device__ float {name}(float x) {{ return x; }}\n")).collect();
    let more = |text: &str| -> &'static str {
        match text.strip_suffix("#endif\n") {
            Some(guarded) => format!("{guarded}\n{added}#endif\n").leak(),
            None => format!("{text}\n{added}").leak(),
        }
    };
    let common = sources().0[0].common.all();
    let headers: Vec<Header> = common.map(|(name, text)| (*name, more(text))).collect();
    Common::new(headers.leak())
}

#[test]
fn an_intrinsic_added_to_a_common_header_moves_no_row() {
    let (sources, rows) = sources();
    assert!(rows > 400, "{rows}");
    // Every name that a source or header has and never calls: fields, variables, parameters, types.
    let texts = || {
        let own = sources.iter().flat_map(|source| source.headers().into_iter().map(|(_, text)| text));
        own.chain(sources.iter().map(|source| source.text))
    };
    let all: Vec<Mention<'_>> = texts().flat_map(words::mentions).collect();
    let called: BTreeSet<&str> = all.iter().filter(|mention| mention.is_called).map(|mention| mention.name).collect();
    let names =
        all.iter().map(|mention| mention.name).filter(|name| !called.contains(name) && !KEYWORDS.contains(name));
    let names: BTreeSet<&str> = names.collect();
    assert!(names.len() > 300 && ["rows", "value"].iter().all(|name| names.contains(name)), "{names:?}");
    let moved = |common: Common| -> Vec<&str> {
        let common: &'static Common = Box::leak(Box::new(common));
        let moved = sources.iter().filter(|source| Source { common, ..**source }.digest() != source.digest());
        moved.map(|source| source.path).collect()
    };
    assert_eq!(moved(with_functions(&names)), [""; 0]);
    // Another overload of a called name changes its callers.
    let call = |source: &&Source| source.includes().iter().any(|(_, text)| text.contains("float sigmoid("));
    let callers: Vec<&str> = sources.iter().filter(call).map(|source| source.path).collect();
    assert!(!callers.is_empty() && callers.len() < sources.len() / 2);
    assert_eq!(moved(with_functions(&["sigmoid"].into())), callers);
}
