//! A kernel that no plan launches: by its examples every program knows it. The operation here is one that the built-in models
//! launch, with sizes that none of them has.

use crate::support::{fail, lacks_compiler, precast, precast_aot, succeed};

/// An example that is no key of a built-in model.
const EXAMPLE: &str = "rope.fwd{d=48,x=bf16}";

#[test]
fn examples_are_built_checked_and_measured_by_name() {
    if lacks_compiler() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let bundle = dir.path().join("examples.bundle");
    let mut build = precast_aot();
    succeed(build.args(["build", "--key", "rope.fwd", "--arch", "sm_121", "--out"]).arg(&bundle));
    let listed = succeed(precast_aot().arg("inspect").arg(&bundle));
    assert!(listed.contains(EXAMPLE), "{listed}");

    let on_sim = |command: &str, kernel: &str| {
        let mut program = precast();
        program.args([command, "--device", "sim", "--kernel", kernel, "--bundle"]).arg(&bundle);
        program
    };
    let checked = succeed(&mut on_sim("selftest", "rope.fwd"));
    assert!(checked.contains("8 launches checked"), "{checked}");
    let measured = succeed(&mut on_sim("bench", "rope.fwd"));
    assert!(measured.lines().count() == 2 && measured.contains(EXAMPLE) && measured.contains("GB/s"), "{measured}");
    let json: serde_json::Value = serde_json::from_str(&succeed(on_sim("bench", "rope.fwd").arg("--json"))).unwrap();
    assert!(json[0]["microseconds"].as_f64().is_some_and(|time| time > 0.0) && json[0]["bytes"].is_u64(), "{json}");

    // A size that is asked for is taken everywhere; without one the simulated GPU takes a small one.
    let (small, bytes) = (json[0]["bytes"].as_u64().unwrap(), |size: &[&str]| {
        let printed = succeed(on_sim("bench", EXAMPLE).args(size).arg("--json"));
        serde_json::from_str::<serde_json::Value>(&printed).unwrap()[0]["bytes"].as_u64().unwrap()
    });
    let [one, four] =
        [bytes(&["--batch-size", "1", "--seq-len", "16"]), bytes(&["--batch-size", "4", "--seq-len", "16"])];
    assert!(small < one && 3 * one < four && four < 4 * one, "{small} {one} {four}");

    let message = fail(on_sim("bench", EXAMPLE).args(["--batch-size", "65536", "--seq-len", "2"]), 2);
    assert!(message.contains("--kernel takes at most 65536"), "{message}");

    // What is not in the bundle is said to be one build away, or not there at all.
    for command in ["selftest", "bench"] {
        let message = fail(&mut on_sim(command, "swiglu."), 2);
        assert!(message.contains("precast-aot build --key swiglu.bwd --arch sim"), "{message}");
        let message = fail(&mut on_sim(command, "no-such"), 2);
        assert!(message.contains("`precast kernels` lists them"), "{message}");
    }
}
