//! `--epochs`: the length of a run as passes over its data.

use crate::support::prelude::*;

#[test]
fn epochs_are_the_steps_that_they_come_to() {
    // 9 sequences, 2 a step.
    let case = Case::new(17 * 9);
    let run = |out: &str, arguments: &str| case.distill(out, ["--precision fp32 --lr 1e-2", arguments]);
    run("passes", "--epochs 1.5 --schedule cosine").prints("steps    7 x 32 tokens = 1.56 passes over the data");
    run("steps", "--steps 7 --schedule cosine").prints("steps    7 x 32 tokens = 1.56 passes over the data");
    assert!(case.weights("passes") == case.weights("steps"));
    let config = case.record("passes")["config"].clone();
    assert_eq!([&config["steps"], &config["epochs"]], [&json!(7), &json!(1.5)]);
    assert!(case.record("steps")["config"].get("epochs").is_none());

    run("dry", "--epochs 3 --dry-run").prints("steps    14 x 32 tokens = 3.11 passes over the data");
    assert!(!case.has("dry"));
}

#[test]
fn a_run_of_epochs_continues_and_may_become_longer() {
    let case = Case::new(17 * 9);
    let run = |out: &str, arguments: &str| case.distill(out, ["--precision fp32 --lr 1e-2", arguments]);
    run("out", "--epochs 1").succeeds();
    run("out", "--resume").fails(2, "all 5 steps are done");
    run("out", "--epochs 2 --resume").prints(["changed: epochs was 1.0, is 2.0", "step 9/9"]);
    run("whole", "--steps 9").succeeds();
    assert!(case.weights("out") == case.weights("whole"));
    // A file that was edited is not enough under cosine, a flag is.
    let cosine = |epochs: &str, more: &str| {
        case.write("run.toml", format!("epochs = {epochs}\nschedule = 'cosine'\n"));
        run("cosine", &format!("--config run.toml {more}"))
    };
    cosine("1", "").succeeds();
    cosine("2", "--resume").fails(2, "steps was 5, is 9");
    cosine("1", "--resume --epochs 2").succeeds();
}

/// The end of data larger than what is read ahead is known after a pass, or where it is counted.
#[test]
fn passes_over_large_data_are_said_as_soon_as_they_are_known() {
    skip_if!(lacks_kernels());
    // What is trained matters little, and takes less time of a small model.
    let smaller = ["hidden_size", "intermediate_size"].map(|name| (name, 16.into()));
    let one = ["num_hidden_layers", "num_attention_heads", "num_key_value_heads"].map(|name| (name, 1.into()));
    let changes = [&smaller[..], &one, &[("max_position_embeddings", 128.into())]].concat();
    let case = Case::of([&tiny_config(&changes), &tiny_config(&changes)], 0);
    let row = format!("{{\"input_ids\": [{}]}}\n", ["1, 2"; 64].join(", "));
    // More than the 512 Ki tokens that are read ahead.
    case.write("large.jsonl", row.repeat(4200));
    let run = |out: &str, arguments: &str| {
        case.train(out, ["--data large.jsonl --precision fp32 --seq-len 127 --checkpoint-every 0", arguments])
    };
    let said = run("streamed", "--batch-size 1100 --steps 4").succeeds();
    let before = "read while the run trains\nsteps    4 x 139700 places\n";
    let after = "4200 sequences, 537600 tokens, 0 masked; 0 rows truncated, 0 skipped\nsteps    4 x 139700 \
        places, 100.0 % filled by about 1100 rows = 1.05 passes";
    assert!(said.contains(before) && said.matches(after).count() == 1, "{said}");
    run("counted", "--batch-size 2 --epochs 0.0008 --schedule cosine")
        .prints("steps    2 x 254 places, 100.0 % filled by about 2 rows = 0.0010 passes over the data");
}

/// Steps follow from micro-batches, however many rows each holds.
#[test]
fn rows_end_to_end_take_fewer_steps() {
    let case = Case::new(17);
    let row = format!("{{\"input_ids\": [{}]}}\n", ["1"; 17].join(", "));
    case.write("rows.jsonl", row.repeat(16));
    let shape = "--data rows.jsonl --precision fp32 --batch-size 2 --seq-len 64";
    let run = |arguments: &str| case.train("dry", [shape, "--epochs 3 --dry-run", arguments]);
    run("--packing none").prints("steps    24 x 128 tokens = 3.00 passes over the data");
    run("--packing rows").prints("steps    6 x 128 places, 100.0 % filled by about 8 rows = 3.00 passes over the data");
    let plan = |packing| case.run(["plan --arch sim --model student", shape, "--packing", packing]);
    plan("none").prints("an epoch: 8 steps, whose places are 25.0 % filled");
    plan("rows").prints("an epoch: 2 steps, whose places are 100.0 % filled");
    let json = case.run(["plan --arch sim --json --model student", shape, "--packing rows"]).json();
    assert_eq!([&json["data"]["epoch_steps"], &json["data"]["fill"]], [&json!(2), &json!(1.0)]);
}
