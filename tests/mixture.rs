//! `--data A=0.7 --data B=0.3`: sources with shares of the tokens.

use crate::support::prelude::*;

/// A case with two sources, the second with rows of two tokens.
fn case() -> Case {
    let case = Case::new(17 * 9);
    case.write("b.jsonl", (0..40).map(|id| format!("{{\"input_ids\": [{id}, {}]}}\n", id + 1)).collect::<String>());
    case
}

/// A run of four sequences a step on these sources.
fn run(case: &Case, out: &str, [a, b]: [&str; 2], more: &str) -> Command {
    let data = format!("--data data.bin{a} --data b.jsonl{b}");
    case.train(out, ["--precision fp32 --packing none --grad-accum 2 --checkpoint-every 1", &data, more])
}

#[test]
fn a_mixture_is_the_same_over_resumes_and_no_other_is() {
    let case = case();
    let run = |out: &str, shares: [&str; 2], more: &str| run(&case, out, shares, more);
    let shares = ["=0.7", "=0.3"];
    let said = run("whole", shares, "--steps 6").succeeds();
    let passes = said.lines().find(|line| line.starts_with("steps ")).unwrap();
    // 24 sequences: 0.7 / 17 and 0.3 / 2 of tokens a sequence, of 9 and 40.
    let drawn = [0.7 / 17.0, 0.3 / 2.0].map(|weight| 24.0 * weight / (0.7 / 17.0 + 0.3 / 2.0));
    let [a, b] = [drawn[0] / 9.0, drawn[1] / 40.0];
    assert_eq!(passes, format!("steps    6 x 64 tokens = {a:.2} passes over data.bin, {b:.2} passes over b.jsonl"));
    // Tokens that count: 16 of a sequence of the first source, 1 of the second.
    let counted: u64 = case.metrics("whole").iter().map(|step| step.tokens).sum();
    let of_first = (counted - 24) / 15;
    assert_eq!((of_first, 24 - of_first), (5, 19), "{counted}");

    run("out", shares, "--steps 2").succeeds();
    run("out", ["=0.6", "=0.4"], "--steps 6 --resume")
        .fails(2, "packing was rows 1, stream 1, 0.7 of 1 file, 0.3 of 1 file, is ");
    run("out", ["", ""], "--steps 6 --resume").fails(2, "");
    // Shares beside each other are what counts.
    run("out", ["=7", "=3"], "--steps 6 --resume").succeeds();
    assert!(case.weights("out") == case.weights("whole"));
    assert_eq!(case.record("out")["config"]["data"][1], "b.jsonl=3");
    skip_if!(is_on_gpu());
    run("ranks", shares, "--steps 6 --replicas 2 --gpus 2").succeeds();
    run("replicas", shares, "--steps 6 --replicas 2").succeeds();
    assert!(case.weights("ranks") == case.weights("replicas"));
}
