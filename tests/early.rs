//! Launches that begin before the launch in front of them has ended, and wait for its end themselves.

use crate::driver::machine;
use crate::every_call;
use crate::support::prelude::*;

/// Returns how many launches of a step begin early on a GPU of this compute capability, by the kernels built in.
fn early_launches(capability: &'static str) -> u32 {
    let machine = machine(&[("PRECAST_FAKE_CAPABILITY", capability)]);
    let [model, calls] = ["config.json", "calls"].map(|name| machine.path().join(name));
    let config = fs::read_to_string(root().join("aot/models/smollm2-135m.json")).unwrap();
    fs::write(&model, config.replace("\"num_hidden_layers\": 30", "\"num_hidden_layers\": 1")).unwrap();
    let mut bench = precast();
    bench.with("bench step --precision bf16 --batch-size 1 --seq-len 16 --model").arg(&model);
    machine.run(bench.env("PRECAST_FAKE_CALLS", &calls)).succeeds();
    every_call::calls(&calls).get("cuGraphAddDependencies_v2").map_or(0, |count| count.calls)
}

#[test]
fn launches_of_hoppers_kernels_begin_early_and_no_others() {
    skip_if!(has_driver());
    let launches = early_launches("9.0");
    assert!(launches >= 10, "{launches}");
    assert_eq!(early_launches("12.1"), 0);
}
