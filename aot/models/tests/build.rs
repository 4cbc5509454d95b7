//! Builds bundles of models with the real compiler: `cargo xtask test` installs it.

use std::collections::BTreeSet;
use std::process::Command;

use precast_aot::cache::Cache;
use precast_aot::compile::CompileError;
use precast_aot::{Arch, BuildError, Built, Nvrtc, Request, build};
use precast_fatbins::Bundle;
use precast_kernels::{KERNELS, Key, fill::Fill};
use precast_models::Selection;

use crate::support::louder::edited::{Edited, task};
use crate::support::program::{aot, ends, nvrtc, tiny_json, tiny_model};

fn request(archs: &[Arch]) -> Request {
    Selection::of_models(vec![tiny_model()], archs.to_vec()).request()
}

/// Requests kernels that compile fast, two of them from one source.
fn few(archs: &[Arch]) -> Request {
    let keys = ["cast{from=bf16,to=f32}", "cast{from=f32,to=bf16}", "fill{first=false}", "swiglu.fwd{x=bf16}"];
    let keys = keys.map(|text| KERNELS.parse(text).unwrap()).to_vec();
    Selection { models: Vec::new(), keys, archs: archs.to_vec() }.request()
}

fn built(request: &Request, cache: &Cache) -> Built {
    build(request, &nvrtc(), cache, &|_, _| {}).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_bundle_verifies_and_a_second_build_compiles_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path().to_owned());
    let request = few(&[Arch::Sm89, Arch::Sm121]);
    let first = built(&request, &cache);
    assert_eq!(first.compiled, request.tasks().len());
    assert!(first.compiled >= 8);
    let bytes = first.encode();
    Bundle::read(&bytes, &KERNELS).unwrap().verify().unwrap();
    let second = built(&request, &cache);
    assert_eq!(second.compiled, 0);
    assert!(second.encode() == bytes);
    // Neither cache nor thread count shows in the bytes.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let alone = pool.install(|| built(&request, &Cache::none()));
    assert!(alone.encode() == bytes);
}

#[test]
fn a_frame_holds_what_a_build_for_its_architecture_alone_writes() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path().to_owned());
    let archs = [Arch::Sm86, Arch::Sm89, Arch::Sm120];
    let both = built(&few(&archs), &cache);
    let first = precast_aot::frames(&both, &archs, &cache);
    for (arch, framed) in archs.into_iter().zip(&first) {
        let alone = built(&few(&[arch]), &cache);
        assert!(framed.decompress(&first).unwrap() == alone.encode(), "{arch}");
        assert_eq!(framed.base, (arch == Arch::Sm86).then_some(Arch::Sm89));
        assert_eq!(framed.bundle, alone.digest());
    }
    // From the cache, and without it, they are the same bytes.
    assert!(precast_aot::frames(&both, &archs, &cache) == first);
    assert!(precast_aot::frames(&both, &archs, &Cache::none()) == first);
}

#[test]
fn a_compile_error_shows_the_key_the_line_and_the_log() {
    let broken = Edited::new(Fill { first: true }, |text| text.replace("= p.value;", "= undefined_name;"));
    let error = task(Key::new(broken), Arch::Sm89).compile(&nvrtc()).unwrap_err();
    assert!(matches!(error, CompileError::Source { .. }));
    insta::assert_snapshot!(BuildError::Compile(vec![error]));
}

#[test]
fn no_two_tasks_or_compilers_share_a_place_in_the_cache() {
    let tasks = request(&[Arch::Sm89]).tasks();
    let digests: BTreeSet<String> = tasks.iter().map(|task| task.source_digest().to_string()).collect();
    assert_eq!(digests.len(), tasks.len(), "two tasks share a digest");
    let compilers = ["NVRTC 13.0 (V13.0.88)", "NVRTC 13.0 (V13.0.89)"];
    assert_ne!(tasks[0].cache_key(compilers[0]), tasks[0].cache_key(compilers[1]));
}

/// A copy of the compiler with one more byte reports the same version.
#[test]
fn a_changed_compiler_of_the_same_version_shares_no_cubin() {
    let dir = tempfile::tempdir().unwrap();
    let own = nvrtc();
    for entry in std::fs::read_dir(own.path().parent().unwrap()).unwrap() {
        let entry = entry.unwrap();
        let mut bytes = std::fs::read(entry.path()).unwrap();
        bytes.push(0);
        std::fs::write(dir.path().join(entry.file_name()), bytes).unwrap();
    }
    let other = Nvrtc::load(&dir.path().join(own.path().file_name().unwrap())).unwrap();
    assert_eq!(own.compiler(), other.compiler());
    let task = &few(&[Arch::Sm89]).tasks()[0];
    assert_ne!(task.cache_key(own.identity()), task.cache_key(other.identity()));
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path().to_owned());
    let build = |nvrtc: &Nvrtc| build(&few(&[Arch::Sm89]), nvrtc, &cache, &|_, _| {}).unwrap().compiled;
    assert!(build(&own) > 0 && build(&own) == 0 && build(&other) > 0);
    // Threads of a pool end later than the pool does, and call into it then.
    let path = other.path().display().to_string();
    drop(other);
    assert!(std::fs::read_to_string("/proc/self/maps").unwrap().contains(&path), "{path} is unloaded");
}

#[test]
fn the_program_builds_verifies_and_inspects() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.bundle");
    let run = |command: &mut Command| {
        let (code, printed, message) = ends(command);
        assert_eq!(code, Some(0), "{message}");
        printed
    };
    let mut build = aot("build --arch sm_90,sm_121 --model smollm2-135m --out");
    build.arg(&out);
    // Here a line of progress is due at once, and else after 30 seconds.
    let (code, printed, said) = ends(build.env("PRECAST_PROGRESS_S", "0"));
    assert!(code == Some(0) && said.contains("compiling: 1 of "), "{said}");
    assert_eq!(ends(build.env_remove("PRECAST_PROGRESS_S")).2, "");
    assert!(printed.contains("sm_90a") && printed.contains("for smollm2-135m"), "{printed}");
    assert!(run(aot("verify").arg(&out)).contains("modules verified"));
    let json: serde_json::Value = serde_json::from_str(&run(aot("inspect --json").arg(&out))).unwrap();
    let keys = run(&mut aot("keys --arch sm_90,sm_121 --model smollm2-135m"));
    let with_code = json["modules"].as_array().unwrap().iter().filter(|module| !module["code"].is_null()).count();
    assert_eq!(with_code, keys.lines().count());
    // A damaged file exits with 3 and names its fault.
    let mut bytes = std::fs::read(&out).unwrap();
    bytes[2000] ^= 1;
    std::fs::write(&out, bytes).unwrap();
    let (code, _, message) = ends(aot("verify").arg(&out));
    assert_eq!(code, Some(3));
    assert!(message.starts_with("error: ") && message.contains("SHA-256"), "{message}");
}

#[test]
fn no_input_is_written_over() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("layout")).unwrap();
    for name in ["tiny.json", "tiny.lock", "saxpy.h", "text", "text.minisig", "layout/b"] {
        std::fs::copy(tiny_json(), dir.path().join(name)).unwrap();
    }
    for line in [
        "abi . --out saxpy.h",
        "build --model tiny.json --out tiny.json",
        "build --model tiny.json --nvrtc . --out text",
        "build --model tiny.json --locks . --out tiny.lock",
        "lock --model tiny.lock --locks .",
        "sign text --key text.minisig",
        "publish --to layout --bundle layout/b",
        "fetch --from layout --to layout",
    ] {
        let (code, _, message) = ends(aot(line).current_dir(dir.path()));
        assert!(code == Some(2) && message.contains("would be overwritten, and it is read"), "{line}: {message}");
    }
    // What was made of a folder's headers lies in it, and is made again.
    std::fs::write(dir.path().join("abi.rs"), "").unwrap();
    let variables = [("LIBCLANG_PATH", dir.path()), ("PRECAST_HOME", dir.path())];
    let (code, _, message) = ends(aot("abi . --out abi.rs").current_dir(dir.path()).envs(variables));
    let expected = format!("error: LIBCLANG_PATH is {}, which has no libclang: unset it", dir.path().display());
    assert!(code == Some(2) && message.starts_with(&expected), "{code:?}: {message}");
    std::fs::remove_file(dir.path().join("text.minisig")).unwrap();
    std::fs::write(dir.path().join("key.pub"), "").unwrap();
    let (code, _, message) = ends(aot("sign --new-key --key key").current_dir(dir.path()));
    assert!(
        code == Some(1) && message.contains("cannot write key.pub") && !dir.path().join("key").exists(),
        "{message}"
    );
}

#[test]
fn what_cannot_be_found_is_named_with_what_was_tried() {
    let (code, _, message) = ends(&mut aot("keys --model gpt-5"));
    assert!(code == Some(5) && message.contains("qwen2.5-0.5b") && message.contains("config.json"), "{message}");
    let (code, _, message) = ends(&mut aot("build --model smollm2-135m --out /dev/null --nvrtc /no/nvrtc"));
    assert!(code == Some(1) && message.contains("/no/nvrtc") && message.contains("toolchain install"), "{message}");
}
