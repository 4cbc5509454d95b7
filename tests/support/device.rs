//! The device under test, and what this machine lacks.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use precast_plan::Gemm;

use super::root;

/// The device under test.
pub fn device() -> String {
    std::env::var("PRECAST_TEST_DEVICE").unwrap_or_else(|_| "sim".to_owned())
}

/// Kernels for the device under test.
pub fn bundle() -> Option<PathBuf> {
    std::env::var_os("PRECAST_TEST_BUNDLE").map(|bundle| root().join(bundle))
}

/// Who computes GEMMs in the tests: the bundle's kernels, unless PRECAST_TEST_GEMM says cublas.
pub fn gemm() -> Gemm {
    std::env::var("PRECAST_TEST_GEMM")
        .map_or(Gemm::Bundle, |name| name.parse().expect("PRECAST_TEST_GEMM names a gemm"))
}

pub fn is_sim() -> bool {
    device() == "sim"
}

/// The arguments that name the device under test to a command that computes and names no other; none to others.
pub fn device_for(words: &[&str]) -> Vec<OsString> {
    let is_named = ["--device", "--arch", "--card"].iter().any(|name| words.contains(name));
    let computes = ["bench", "distill", "eval", "generate", "selftest", "train"].contains(&words[0]);
    match words[0] {
        _ if is_named => Vec::new(),
        "cache" if words.contains(&"--from") => Vec::new(),
        "cache" => device_and_bundle(),
        _ if computes => on_device(),
        _ => Vec::new(),
    }
}

/// The arguments that name the device under test and its kernels.
pub fn on_device() -> Vec<OsString> {
    [vec!["--gemm".into(), gemm().to_string().into()], device_and_bundle()].concat()
}

/// The same of commands that compute GEMMs by kernels of the bundle.
pub fn device_and_bundle() -> Vec<OsString> {
    let bundle = bundle().map(|bundle| ["--bundle".into(), bundle.into_os_string()]);
    ["--device".into(), device().into()].into_iter().chain(bundle.into_iter().flatten()).collect()
}

/// What a program says on standard error, but for a note of kernels that are given as a file: who runs the tests trusts
/// it.
pub fn without_trust(stderr: &str) -> String {
    let others = stderr.lines().filter(|line| !line.contains(": no trusted key is configured, "));
    others.flat_map(|line| [line, "\n"]).collect()
}

/// Whether a test shows nothing here; the terminal says so. The output of a test that passes is captured, this is not.
#[track_caller]
pub fn skipped(shows_nothing: bool, because: &str) -> bool {
    if shows_nothing {
        let at = std::panic::Location::caller();
        let _ = writeln!(std::io::stderr(), "skipped: {}:{}: {because}", at.file(), at.line());
    }
    shows_nothing
}

/// Ends a test that shows nothing here: a condition says so, as [`skipped`] does.
macro_rules! skip_if {
    ($shows_nothing:expr) => {
        if $shows_nothing {
            return;
        }
    };
}

/// Whether a test of simulated GPUs, as those of several ranks are, shows nothing.
#[track_caller]
pub fn is_on_gpu() -> bool {
    skipped(!is_sim(), "it is of simulated GPUs")
}

/// True on a GPU, for a test that makes its own models: only models in the tree have packed kernels.
#[track_caller]
pub fn lacks_kernels() -> bool {
    skipped(!is_sim(), "kernels of the models that it makes are built for no GPU")
}

/// True on a GPU, for a test of its own bundle: there every program gets the one of the device.
#[track_caller]
pub fn has_bundle() -> bool {
    skipped(!is_sim(), "programs have the bundle of the device under test")
}

/// Whether this machine only runs the tests: compiling kernels needs `precast-aot` and the toolchain.
#[track_caller]
pub fn lacks_compiler() -> bool {
    skipped(std::env::var_os("PRECAST_BIN").is_some(), "this machine has programs and no compiler")
}

/// Whether a driver of the test's own would stand beside a real one.
#[track_caller]
pub fn has_driver() -> bool {
    let has = !is_sim() || precast_runtime::cuda::is_present();
    skipped(has, "it brings a driver of its own, and this machine has one")
}

/// SmolLM2-135M-Instruct as a GGUF file.
#[track_caller]
pub fn smollm2() -> Option<PathBuf> {
    let model = std::env::var_os("PRECAST_TEST_SMOLLM2").map(PathBuf::from);
    skipped(model.is_none(), "PRECAST_TEST_SMOLLM2 names no model; `cargo xtask test` fetches it");
    model
}
