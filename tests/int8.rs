//! A teacher in 8 bits: the same values from every file, and what they cost said before a step is made.

use precast_fatbins::Digest;
use precast_kernels::Block;
use precast_plan::Formats;

use crate::gguf;
use crate::support::prelude::*;

const INT8: &str = "--teacher-format int8 --checkpoint-every 0 --steps 2";

fn case() -> Case {
    Case::new(17 * 8)
}

fn certified(case: &Case, arguments: &str) -> Value {
    case.run(["eval compare --untrained --json --format int8 --against bf16", arguments]).json()
}

fn kl(measured: &Value) -> f64 {
    measured["kl_mean"].as_f64().unwrap()
}

fn assert_exact(measured: &Value) {
    let found = ["kl_mean", "kl_max", "agreement"].map(|name| measured[name].as_f64());
    assert_eq!(found, [Some(0.0), Some(0.0), Some(1.0)]);
}

#[test]
fn a_run_measures_its_teacher_on_the_first_batch() {
    let case = case();
    case.distill("out", INT8).prints("int8 teacher, on the first batch: KL ");
    let run = case.record("out");
    assert_eq!(run["config"]["teacher_format"], "int8");
    assert_eq!(run["config"]["max_teacher_kl"], "0.02");
    let known = &run["teacher_certificate"];
    assert_eq!((&known["by"], &known["measured"]["tokens"]), (&json!("first batch"), &json!(32)));
    assert!((1e-6..0.02).contains(&kl(&known["measured"])), "{known}");
    let report = case.text("out/report.html");
    assert!(report.contains("<td>teacher's certificate</td><td>KL 0.") && report.contains("(first batch)</td>"));
    // It taught, other bits than the exact one, and nearly the same.
    case.distill("bf16", "--teacher-format bf16 --checkpoint-every 0 --steps 2").succeeds();
    let [int8, exact] = ["out", "bf16"].map(|out| case.metrics(out)[1].kd_loss.unwrap());
    assert!(int8 != exact && (int8 - exact).abs() < 0.05 * exact, "{int8} {exact}");
}

/// What the run measures is what `eval` measures on the same tokens.
#[test]
fn a_run_and_an_evaluation_measure_the_same() {
    let case = case();
    // One row a document, as a run has rows of 17 tokens; the first batch is the first two.
    let ids: Vec<u32> = bytemuck::pod_collect_to_vec(&case.read("data.bin"));
    let row = |ids: &[u32]| json!({ "input_ids": ids }).to_string() + "\n";
    for (name, count) in [("data.jsonl", 8), ("first.jsonl", 2)] {
        case.write(name, ids.chunks(17).take(count).map(row).collect::<String>());
    }
    case.distill("out", [INT8, "--data data.jsonl"]).succeeds();
    let measured = &case.record("out")["teacher_certificate"]["measured"];
    let same = certified(&case, "--model teacher --data first.jsonl --batch-size 2 --seq-len 16");
    assert_eq!(*measured, same["measured"]);
}

/// Whatever form a file holds the same bf16 values in.
#[test]
fn every_file_of_the_same_values_gives_the_same_bits() {
    let case = case();
    let config = shape(&model_config("blocks"));
    gguf::write(case.dir.path(), "model.gguf", &config, &Formats::uniform(&config, Block::Q4_K), 5);
    let layers: Vec<String> = (0..config.depth()).map(|layer| layer.to_string()).collect();
    let measured =
        |model: &str| certified(&case, &format!("--seq-len 32 --data data.bin --model {model}"))["measured"].clone();
    let stored = measured("model.gguf");
    assert!(kl(&stored) > 0.0);
    for precision in ["fp32", "bf16"] {
        let form = format!("--layers {} --precision {precision} --out {precision}", layers.join(","));
        case.run(["init --from model.gguf", &form]).succeeds();
        assert_eq!(measured(precision), stored, "{precision}");
    }
}

#[test]
fn a_certificate_is_of_a_teacher_and_its_kernels() {
    let case = case();
    let written = certified(&case, "--model teacher --data data.bin --out certificate");
    assert_eq!(case.json("certificate"), written);
    let run = |out: &str, more: &str| case.distill(out, [INT8, "--teacher-certificate certificate", more]);
    run("certified", "").prints("int8 teacher, by certificate: KL ");
    let known = case.record("certified")["teacher_certificate"].clone();
    assert_eq!((&known["measured"], &known["by"]["file"]), (&written["measured"], &json!("certificate")));
    assert_eq!(known["by"]["certificate"], written);
    // Of another model, of other sources, or of none.
    case.model("other", 3, &[]);
    run("other-out", "--teacher other").fails(5, ["the digest of the weights was ", "precast eval compare --model"]);
    let changed = |change: fn(&mut Value)| {
        let mut changed = written.clone();
        change(&mut changed);
        // As whoever writes certificates does: the digest is of the file with zeros in its place.
        changed["sha256"] = "0".repeat(64).into();
        let text = changed.to_string();
        let own = |digest: &str| format!("\"sha256\":\"{digest}\"");
        let digest = Digest::of(text.as_bytes()).to_string();
        case.write("certificate", text.replace(&own(&"0".repeat(64)), &own(&digest)));
        run("changed", "--dry-run --arch sm_89")
    };
    type Change = fn(&mut Value);
    let changes: [(Change, &str); 6] = [
        (|all| all["subject"]["kernels_sha256"] = "0".repeat(64).into(), "the digest of the kernels' sources was 000"),
        (|all| all["measured"] = Value::Null, "it is no certificate"),
        (|all| all["measured"]["kl_mean"] = (-5).into(), "kl_mean is -5, expected from 0 to kl_max"),
        (|all| all["measured"]["agreement"] = 7.into(), "agreement is 7, expected from 0 to 1"),
        (|all| all["vocab"] = 1.into(), "its vocabulary has 1 tokens, and the teacher's has"),
        (|all| all["against"] = "int8".into(), "it is against int8: expected an exact form, bf16 or stored"),
    ];
    for (change, reason) in changes {
        changed(change).fails(5, reason);
    }
    case.write("certificate", written.to_string().replace("sm_", "sn_").replace("sim", "sum"));
    run("changed", "").fails(5, "it was changed since it was written");
    changed(|all| (all["measured"]["kl_mean"], all["measured"]["kl_max"]) = (0.5.into(), 1.into()))
        .fails(1, ["KL 0.50000 nats", "--max-teacher-kl 0.02 allows"]);
    // Where it was measured is recorded, not compared.
    changed(|all| all["arch"] = "sm_89".into()).succeeds();
    run("changed", "--teacher-format bf16").fails(2, "requires --teacher-format int8");
    fs::remove_file(case.path("certificate")).unwrap();
    run("none", "").fails(5, "cannot read it");
    // What is there and no certificate stays.
    case.write("certificate", "mine");
    let again =
        "eval compare --untrained --model teacher --data data.bin --format int8 --against bf16 --out certificate";
    assert_eq!((case.run(again).ends().0, case.text("certificate")), (Some(2), "mine".to_owned()));
}

/// The residual stream of a student so small that nothing of the teacher fits where it lies.
#[test]
fn a_run_without_room_to_measure_asks_for_a_certificate() {
    skip_if!(lacks_kernels());
    let narrow =
        [("hidden_size", 16), ("intermediate_size", 16), ("num_attention_heads", 1), ("num_key_value_heads", 1)];
    let narrow = narrow.map(|(name, value)| (name, json!(value)));
    // A layer larger than all that the student has, its semaphores included.
    let wide = [("hidden_size", json!(256)), ("intermediate_size", json!(4096)), ("num_hidden_layers", json!(1))];
    let case = Case::of([&tiny_config(&wide), &tiny_config(&narrow)], 17 * 8);
    let run = |more: &str| case.distill("out", [INT8, "--batch-size 1 --seq-len 1", more]);
    run("").fails(2, ["has no room to measure", "--teacher-certificate FILE"]);
    assert!(!case.has("out/run.json"));
    certified(&case, "--model teacher --data data.bin --out certificate");
    run("--teacher-certificate certificate --max-teacher-kl none").succeeds();
}

#[test]
fn a_run_that_continues_knows_what_was_measured() {
    let case = case();
    let run =
        |out: &str, more: &str| case.distill(out, ["--teacher-format int8 --checkpoint-every 1", more]).succeeds();
    run("whole", "--steps 4");
    run("out", "--steps 2");
    let before = case.record("out")["teacher_certificate"].clone();
    let printed = run("out", "--steps 4 --resume");
    assert!(printed.contains("int8 teacher, as it was measured: KL "), "{printed}");
    assert_eq!(case.record("out")["teacher_certificate"], before);
    assert!(case.weights("out") == case.weights("whole"));
}

/// Measures the divergence of a model in 8 bits from itself, on the case's tokens.
fn measured(case: &Case, model: &str) -> Value {
    certified(case, &format!("--data data.bin --seq-len 16 --model {model}"))["measured"].clone()
}

/// A matrix of a layer of a model, changed.
fn plant(case: &Case, from: &str, name: &str, (layer, module): (u32, &str), change: impl Fn(usize, f32) -> f32) {
    with_tensor(case, from, name, &format!("model.layers.{layer}.{module}.weight"), change);
}

/// Rows and columns of zeros, and tokens whose states are zero: exact zeros, and no division by a scale of zero.
#[test]
fn zeros_are_exact() {
    let case = case();
    let (hidden, intermediate) = (32, 48);
    // Nothing comes out of any layer, so the model is its embedding and its head; the first token's state is zero, too.
    let modules = [(0, "mlp.up_proj"), (1, "mlp.up_proj"), (0, "self_attn.v_proj"), (1, "self_attn.v_proj")];
    for ((from, to), module) in [("teacher", "a"), ("a", "b"), ("b", "c"), ("c", "d")].into_iter().zip(modules) {
        plant(&case, from, to, module, |_, _| 0.0);
    }
    let first_rows = |index, was| if index < 8 * hidden { 0.0 } else { was };
    with_tensor(&case, "d", "e", "model.embed_tokens.weight", first_rows);
    assert_exact(&measured(&case, "e"));
    // Single rows of zeros among others.
    let row = |index: usize, was| if (index / hidden).is_multiple_of(3) { 0.0 } else { was };
    let column = |index: usize, was| if (index % intermediate).is_multiple_of(5) { 0.0 } else { was };
    plant(&case, "teacher", "f", (0, "mlp.gate_proj"), row);
    plant(&case, "f", "g", (0, "mlp.down_proj"), column);
    let measured = measured(&case, "g");
    assert!(kl(&measured).is_finite() && kl(&measured) < 0.02, "{measured}");
}

/// Weights at the edge of bf16: what is exact is no number any more, or the 8 bits are none either. It is said, and no
/// NaN trains.
#[test]
fn the_edge_of_the_format_trains_no_nan() {
    let case = case();
    // Rows of the largest numbers, which count for nothing as zeros multiply them.
    let largest = f32::from_bits(0x7F7F_0000);
    plant(&case, "teacher", "a", (0, "mlp.up_proj"), |_, _| 0.0);
    plant(&case, "a", "b", (0, "mlp.down_proj"), |index, _| if index % 2 == 0 { largest } else { -largest });
    assert!(kl(&measured(&case, "b")).is_finite());
    // And where the exact model overflows itself, nothing trains, whatever is allowed.
    plant(&case, "teacher", "c", (0, "mlp.down_proj"), |_, _| largest);
    case.distill("out", [INT8, "--teacher c --max-teacher-kl none"]).fails(1, "predictions are no numbers");
    assert!(!case.has("out/run.json"));
}

/// A column of outliers that nothing is multiplied by leaves the exact model as it is and takes the 8 bits of all
/// others.
#[test]
fn outliers_are_trained_on_within_the_bound_and_no_further() {
    let case = case();
    let (hidden, intermediate) = (32, 48);
    // The first feature of each MLP is never on.
    let off = |index, was| if index < hidden { 0.0 } else { was };
    plant(&case, "teacher", "a", (0, "mlp.up_proj"), off);
    plant(&case, "a", "b", (1, "mlp.up_proj"), off);
    let (mut distances, mut outcomes) = (Vec::new(), Vec::new());
    for (step, outlier) in [1.0f32, 8.0, 300.0, 30_000.0].into_iter().enumerate() {
        let column = |index, was| if index % intermediate == 0 { outlier } else { was };
        let [half, planted, out] = ["half", "planted", "out"].map(|name| format!("{name}-{step}"));
        plant(&case, "b", &half, (0, "mlp.down_proj"), column);
        plant(&case, &half, &planted, (1, "mlp.down_proj"), column);
        distances.push(kl(&measured(&case, &planted)));
        let mut run = case.distill(&out, [INT8, "--teacher", &planted]);
        let (code, _, _) = run.ends();
        outcomes.push(code);
        if code == Some(0) {
            assert!(kl(&case.record(&out)["teacher_certificate"]["measured"]) <= 0.02);
            continue;
        }
        run.fails(1, "--max-teacher-kl 0.02 allows");
        assert!(!case.has(&format!("{out}/run.json")));
        // The bound is the reader's.
        run.with("--max-teacher-kl none").succeeds();
    }
    assert!(distances.is_sorted(), "{distances:?}");
    assert_eq!((outcomes[0], outcomes[3]), (Some(0), Some(1)), "{outcomes:?} {distances:?}");
}
