//! Signed caches: read where the key is trusted, and refused before anything of them is parsed where it is not.

use crate::support::prelude::*;
use crate::teacher_cache::{contents_of, fill};

/// A case with two keys, `good` and `other`.
fn case() -> Case {
    let case = Case::new(17 * 4);
    for key in ["good", "other"] {
        case.aot(["sign --new-key --key", key]).succeeds();
    }
    case
}

/// A signed cache but for its signature.
fn unsigned(case: &Case, cache: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut contents = contents_of(case, cache);
    contents.retain(|(path, _)| !path.ends_with("cache.json.minisig"));
    contents
}

#[test]
fn a_cache_is_read_where_its_key_is_trusted_alone() {
    skip_if!(skipped(!is_sim(), "a key that is trusted must have signed the kernels of other devices, too"));
    let case = case();
    fill(&case, "cache", "--key good").succeeds();
    fill(&case, "plain", "").succeeds();
    let signature = case.read("cache/cache.json.minisig");
    assert!(unsigned(&case, "cache") == contents_of(&case, "plain"));

    fs::create_dir(case.path("held")).unwrap();
    fs::copy(case.path("good"), case.path("held/good")).unwrap();
    fill(&case, "held", "--key held/good").fails(2, "held/good lies in --out held: an input is never overwritten");

    let run = |cache: &str, words: &str| {
        case.distill("out", ["--seq-len 16 --steps 1 --overwrite --teacher-cache", cache, words])
    };
    run("cache", "--trusted-key other.pub --trusted-key good.pub").succeeds();
    run("cache", "").env("PRECAST_TRUSTED_KEY", "good.pub").succeeds();
    let unchecked = "cache is signed, and no trusted key is configured: its signature is not checked";
    let [_, said] = run("cache", "").says();
    assert_eq!(said.matches(unchecked).count(), 1, "{said}");
    let [_, said] = run("plain", "").says();
    assert!(!said.contains("is signed"), "{said}");

    let unsigned = "error: plain/cache.json: not signed: no plain/cache.json.minisig, and a trusted key is configured";
    run("plain", "--trusted-key good.pub").fails(5, [unsigned, "precast-aot sign FILE --key KEY signs it"]);
    case.aot("sign plain/cache.json --key good").succeeds();
    run("plain", "--trusted-key good.pub").succeeds();
    let of_another = "cache/cache.json: cache/cache.json.minisig was made with a key other than the trusted ";
    run("cache", "--trusted-key other.pub").fails(5, of_another);
    run("cache", "").env("PRECAST_TRUSTED_KEY", "other.pub").fails(5, of_another);
    run("cache", "--trusted-key nothing").fails(2, "`nothing` is not a minisign public key");
    let shape = "--student student --seq-len 16 --teacher-cache cache --trusted-key other.pub";
    for command in ["plan --arch sim", "bench step --device sim --steps 1"] {
        case.run([command, shape]).fails(5, of_another);
    }
    let (_, said, _) = case.run("doctor --device sim --teacher-cache cache --trusted-key other.pub").ends();
    assert!(said.contains("a key other than the trusted"), "{said}");

    // What is not signed is not parsed, and what was signed may not change.
    let manifest = case.text("cache/cache.json");
    for changed in ["no json".to_owned(), manifest.replace("\"arch\": \"sim\"", "\"arch\": \"sin\"")] {
        assert_ne!(changed, manifest);
        case.write("cache/cache.json", changed);
        run("cache", "--trusted-key good.pub").fails(5, "cache/cache.json.minisig does not sign these bytes");
    }
    case.write("cache/cache.json", manifest);
    case.write("cache/cache.json.minisig", &signature[..signature.len() / 2]);
    run("cache", "--trusted-key good.pub").fails(5, "cache/cache.json.minisig is not a minisign signature");
    assert!(case.has("out/student"));
}

#[test]
fn a_key_that_cannot_sign_is_refused_before_anything_is_written() {
    let case = case();
    for key in ["good.pub", "data.bin", "nothing"] {
        let (code, _, said) = fill(&case, "cache", ["--key", key]).ends();
        assert!(code == Some(if key == "nothing" { 1 } else { 2 }) && said.contains(key), "{code:?} {said}");
        assert!(!case.has("cache"), "{said}");
    }
}

/// It is never there without its signature, and never with that of another command.
#[test]
fn a_signed_filling_killed_at_any_change_to_the_disk_continues() {
    let case = case();
    fill(&case, "plain", "").succeeds();
    let plain = contents_of(&case, "plain");
    let mut kinds = std::collections::BTreeSet::new();
    // Before these, it has not come to a signature.
    for at in 29.. {
        let _ = fs::remove_dir_all(case.path("cache"));
        if !is_killed_at(at, &mut fill(&case, "cache", "--key good")) {
            return assert_eq!(kinds.len(), 3, "{at} {kinds:?}");
        }
        let [has_signature, is_complete] =
            ["cache.json.minisig", "cache.json"].map(|name| case.has(&format!("cache/{name}")));
        assert!(has_signature || !is_complete, "change {at}");
        kinds.insert((has_signature, is_complete));
        let again = if at % 2 == 0 { "--key good" } else { "" };
        let (code, _, said) = fill(&case, "cache", again).ends();
        let is_done = said.contains("is a complete teacher cache");
        assert!(code == Some(0) || is_done, "change {at}: {said}");
        let is_signed = !again.is_empty() || is_complete;
        assert_eq!(case.has("cache/cache.json.minisig"), is_signed, "change {at}");
        assert!(unsigned(&case, "cache") == plain, "change {at}: {:?}", case.names("cache"));
    }
}
