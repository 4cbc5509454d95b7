//! `precast-aot diff`: compares machine code apart from names, of verified bundles.

use std::fs;
use std::path::{Path, PathBuf};

use precast_aot::{Arch, Built};

use crate::support::program::{aot, ends, tiny_json};

const ARCH: Arch = Arch::Sm121;

/// Returns the program's output, and true for exit code 0; any other code must be 1.
fn diff(before: &Path, after: &Path, more: &[&str]) -> (String, bool) {
    let (code, printed, message) = ends(aot("diff --code").args(more).arg(before).arg(after));
    assert!(code == Some(0) || code == Some(1), "{message}");
    (printed, code == Some(0))
}

#[test]
fn bundles_that_are_looked_at_are_verified() {
    let older = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fatbins/tests/fixtures/older/older.bundle");
    let dir = tempfile::tempdir().unwrap();
    let damaged = dir.path().join("damaged.bundle");
    let mut bytes = fs::read(&older).unwrap();
    // The middle lies in the machine code: the manifest, with its own digest, follows it.
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    for command in ["inspect", "diff", "diff --code"] {
        let look = |bundle: &Path| ends(aot(command).arg(bundle).args((command != "inspect").then_some(&older)));
        let (code, _, message) = look(&damaged);
        assert!(code == Some(3) && message.contains("the manifest says"), "{command:?}: {code:?} {message}");
        let (code, _, message) = look(&older);
        assert!(
            code == Some(0) && message.contains("is NOT VERIFIED: the bundle has format 1"),
            "{command:?}: {message}"
        );
    }
}

#[test]
fn machine_code_is_compared_apart_from_names() {
    let (_, [today, other]) = crate::support::louder::built(&tiny_json(), ARCH);
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, built: &Built| {
        let path = dir.path().join(name);
        fs::write(&path, built.encode()).unwrap();
        path
    };
    let count = today.cubins.len();
    let [before, louder] = [write("before", &today), write("louder", &other)];
    assert_eq!(
        diff(&before, &before, &[]),
        (format!("{count} kernels have the same name and machine code, of {count} before and {count} after\n"), true)
    );
    // Two kernels of other sources: one kept under another key, the other removed.
    let mut renamed = Built { manifest: other.manifest.clone(), cubins: other.cubins.clone(), compiled: 0 };
    renamed.manifest.modules.retain(|row| row.key != "adamw.update{w=f32}");
    for row in &mut renamed.manifest.modules {
        if row.key.starts_with("grad_norm.finish") {
            row.key = "grad_norm.end{}".to_owned();
        }
    }
    renamed.manifest.modules.sort_by(|a, b| a.order().cmp(&b.order()));
    let renamed = write("renamed", &renamed);
    let (there, back) = (diff(&before, &renamed, &[]), diff(&renamed, &before, &[]));
    assert!(!there.1 && !back.1);
    insta::assert_snapshot!(format!("{}\n{}", there.0, back.0));
    let (json, same) = diff(&before, &louder, &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(!same);
    assert_eq!(json["same"], count - 2);
    let modules: Vec<&str> =
        json["changed"].as_array().unwrap().iter().map(|row| row["module"].as_str().unwrap()).collect();
    assert_eq!(modules, ["sm_121 swiglu.fwd{x=bf16}[threads=128]", "sm_121 swiglu.fwd{x=f32}[threads=128]"]);
}

#[test]
fn sm_120_and_sm_121_have_equal_instructions() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = |arch: &str| {
        let path = dir.path().join(arch);
        let mut build = aot("build --key rmsnorm.fwd --key gemm.wgrad --key cast --out");
        assert_eq!(ends(build.arg(&path).args(["--arch", arch])).0, Some(0));
        path
    };
    let [ada, rtx, spark] = ["sm_89", "sm_120", "sm_121"].map(bundle);
    let (printed, equal) = diff(&rtx, &spark, &[]);
    assert!(equal, "{printed}");
    assert!(!diff(&ada, &rtx, &[]).1, "instructions of two generations are no longer told apart");
}
