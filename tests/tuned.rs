//! A table of times selects kernels' variants, and changes nothing else.

use crate::support::prelude::*;

/// A run of two steps in bf16, by a table of times.
fn tuned(case: &Case, out: &str, arguments: &str) -> Command {
    case.distill(out, ["--precision bf16 --steps 2 --checkpoint-every 1 --tuned", arguments])
}

/// Measures the variants of this case's launches.
fn measured() -> Case {
    let case = Case::new(17 * 9);
    let models = "--teacher teacher --student student --batch-size 2 --seq-len 16";
    case.run(["bench tune times.txt --device sim", models]).succeeds();
    case
}

#[test]
fn a_table_changes_variants_and_no_bits() {
    skip_if!(is_on_gpu());
    let case = measured();
    let measured = case.text("times.txt");
    assert!(measured.starts_with("simulated_GPU sim gemm."), "{measured}");
    // The other variant of each launch is now the fastest.
    let last: Vec<&str> = measured.lines().filter(|line| line.contains("stages=4")).collect();
    let slower = |line: &&str| format!("{} 0.01\n", line.rsplit_once(' ').unwrap().0);
    case.write("times.txt", measured.clone() + &last.iter().map(slower).collect::<String>());
    tuned(&case, "tuned", "times.txt").succeeds();
    case.distill("plain", "--precision bf16 --steps 2").succeeds();
    assert_eq!(case.weights("tuned"), case.weights("plain"));
    let loads = |out: &str| {
        let loads: Vec<Value> = list(&case.record(out)["loads"]);
        loads.iter().map(|load| format!("{} {}", load["key"], load["variant"])).collect::<Vec<_>>()
    };
    assert_ne!(loads("tuned"), loads("plain"));
    assert_eq!(case.record("tuned")["tuned"].as_str().unwrap().len(), 64);
    assert!(case.record("plain")["tuned"].is_null());
}

#[test]
fn a_run_continues_with_its_table() {
    skip_if!(is_on_gpu());
    let case = measured();
    tuned(&case, "out", "times.txt").succeeds();
    let resume = |table: &str| tuned(&case, "out", &format!("{table} --resume --steps 3"));
    case.write("other.txt", case.text("times.txt") + "# another\n");
    resume("other.txt").fails(2, ["tuned was ", ", is "]);
    case.distill("out", "--precision bf16 --resume --steps 3 --checkpoint-every 1").fails(2, ", is none");
    // It may be somewhere else.
    fs::rename(case.path("times.txt"), case.path("moved.txt")).unwrap();
    resume("moved.txt").succeeds();
}
