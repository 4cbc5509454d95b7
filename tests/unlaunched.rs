//! A kernel that no plan launches: by its examples every program knows it. The operation here is one that the built-in
//! models launch, with sizes that none of them has.

use crate::support::prelude::*;

/// An example that is no key of a built-in model.
const EXAMPLE: &str = "rope.fwd{d=48,x=bf16}";

#[test]
fn examples_are_built_checked_and_measured_by_name() {
    skip_if!(lacks_compiler());
    let case = Case::empty();
    case.aot("build --key rope.fwd --arch sm_121 --out examples").succeeds();
    case.aot("inspect examples").prints(EXAMPLE);

    let on_sim = |command: &str, kernel: &str| case.run([command, kernel, "--device sim --bundle examples"]);
    on_sim("selftest --kernel", "rope.fwd").prints("8 launches checked");
    let measured = on_sim("bench kernels", "rope.fwd").prints([EXAMPLE, "GB/s"]);
    assert_eq!(measured.lines().count(), 2, "{measured}");
    let json = on_sim("bench kernels", "rope.fwd").with("--json").json();
    assert!(json[0]["microseconds"].as_f64().is_some_and(|time| time > 0.0) && json[0]["bytes"].is_u64(), "{json}");

    // A size that is asked for is taken everywhere; without one the simulated GPU takes a small one.
    let (small, bytes) = (json[0]["bytes"].as_u64().unwrap(), |size: &str| {
        on_sim("bench kernels", EXAMPLE).with(size).with("--json").json()[0]["bytes"].as_u64().unwrap()
    });
    let [one, four] = [bytes("--batch-size 1 --seq-len 16"), bytes("--batch-size 4 --seq-len 16")];
    assert!(small < one && 3 * one < four && four < 4 * one, "{small} {one} {four}");

    on_sim("bench kernels", EXAMPLE)
        .with("--batch-size 65536 --seq-len 2")
        .fails(2, "kernels are measured with 65536 at most");

    // What is not in the bundle is said to be one build away, or not there at all.
    for command in ["selftest --kernel", "bench kernels"] {
        on_sim(command, "swiglu.").fails(2, "precast-aot build --key swiglu.bwd --arch sim");
        on_sim(command, "no-such").fails(2, "`precast kernels` lists them");
    }
}
