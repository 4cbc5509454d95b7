//! A teacher in 8 bits: the same values from every file, and what they cost said before a step is made.

use std::fs;
use std::path::Path;
use std::process::Command;

use precast_fatbins::Digest;
use precast_kernels::Block;
use precast_plan::{Formats, ModelConfig};
use serde_json::{Value, json};

use crate::gguf;
use crate::support::{
    Case, distill, fail, is_sim, metrics_of, model_config, on_device, precast, random_model, root, run_record, skipped,
    succeed, tiny_config, with_tensor,
};

const INT8: [&str; 6] = ["--teacher-format", "int8", "--checkpoint-every", "0", "--steps", "2"];

fn case() -> Case {
    Case::new(17 * 8)
}

fn eval(model: &Path, data: &Path, arguments: &[&str]) -> Command {
    let mut command = precast();
    command.args(["eval", "--untrained", "--model"]).arg(model).arg("--data").arg(data).args(arguments);
    command.args(on_device());
    command
}

fn certified(model: &Path, data: &Path, arguments: &[&str]) -> Value {
    let arguments = [&["--json", "--format", "int8", "--against", "bf16"], arguments].concat();
    serde_json::from_str(&succeed(&mut eval(model, data, &arguments))).unwrap()
}

fn kl(measured: &Value) -> f64 {
    measured["kl_mean"].as_f64().unwrap()
}

#[test]
fn a_run_measures_its_teacher_on_the_first_batch_before_it_trains() {
    let case = case();
    let printed = succeed(&mut case.distill(&case.out(), &INT8));
    assert!(printed.contains("int8 teacher, on the first batch: KL "), "{printed}");
    let run = run_record(&case.out());
    assert_eq!(run["config"]["teacher_format"], "int8");
    assert_eq!(run["config"]["max_teacher_kl"], "0.02");
    let known = &run["teacher_certificate"];
    assert_eq!((&known["by"], &known["measured"]["tokens"]), (&json!("first batch"), &json!(32)));
    assert!((1e-6..0.02).contains(&kl(&known["measured"])), "{known}");
    let report = fs::read_to_string(case.out().join("report.html")).unwrap();
    assert!(report.contains("<td>teacher's certificate</td><td>KL 0.") && report.contains("(first batch)</td>"));
    // It taught, other bits than the exact one, and nearly the same.
    succeed(
        &mut case.distill(&case.path("bf16"), &["--teacher-format", "bf16", "--checkpoint-every", "0", "--steps", "2"]),
    );
    let [int8, exact] = [case.out(), case.path("bf16")].map(|out| metrics_of(&out)[1].kd_loss.unwrap());
    assert!(int8 != exact && (int8 - exact).abs() < 0.05 * exact, "{int8} {exact}");
}

/// What the run measures is what `eval` measures on the same tokens.
#[test]
fn a_run_and_an_evaluation_measure_the_same() {
    let case = case();
    // One row a document, as a run has rows of 17 tokens; the first batch is the first two.
    let ids: Vec<u32> = bytemuck::pod_collect_to_vec(&fs::read(&case.data).unwrap());
    let rows = |count: usize| -> String {
        ids.chunks(17).take(count).map(|row| json!({ "input_ids": row }).to_string() + "\n").collect()
    };
    let [data, first] = [("data.jsonl", 8), ("first.jsonl", 2)].map(|(name, count)| {
        fs::write(case.path(name), rows(count)).unwrap();
        case.path(name)
    });
    succeed(
        distill(&case.teacher, &case.student, &data, &case.out())
            .args(["--batch-size", "2", "--seq-len", "16"])
            .args(INT8),
    );
    let measured = &run_record(&case.out())["teacher_certificate"]["measured"];
    assert_eq!(*measured, certified(&case.teacher, &first, &["--batch-size", "2", "--seq-len", "16"])["measured"]);
}

/// Whatever form a file holds the same bf16 values in.
#[test]
fn every_file_of_the_same_values_gives_the_same_bits() {
    let case = case();
    let mut json = model_config("blocks");
    json["architectures"] = json!(["LlamaForCausalLM"]);
    let config = ModelConfig::from_json(&json.to_string()).unwrap();
    let file = gguf::write(case.dir.path(), "model.gguf", &config, &Formats::uniform(&config, Block::Q4_K), 5);
    let layers: Vec<String> = (0..config.layers).map(|layer| layer.to_string()).collect();
    let measured = |model: &Path| certified(model, &case.data, &["--seq-len", "32"])["measured"].clone();
    let stored = measured(&file);
    assert!(kl(&stored) > 0.0);
    for precision in ["fp32", "bf16"] {
        let mut init = precast();
        init.args(["init", "--from"]).arg(&file).args(["--layers", &layers.join(","), "--precision", precision]);
        succeed(init.arg("--out").arg(case.path(precision)));
        assert_eq!(measured(&case.path(precision)), stored, "{precision}");
    }
}

#[test]
fn exact_forms_are_no_distance_apart() {
    let case = case();
    let mut json = model_config("blocks");
    json["architectures"] = json!(["LlamaForCausalLM"]);
    let config = ModelConfig::from_json(&json.to_string()).unwrap();
    let file = gguf::write(case.dir.path(), "model.gguf", &config, &Formats::uniform(&config, Block::Q5_1), 5);
    let arguments = ["--json", "--format", "stored", "--against", "bf16", "--seq-len", "32"];
    let found: Value = serde_json::from_str(&succeed(&mut eval(&file, &case.data, &arguments))).unwrap();
    let measured = &found["measured"];
    assert_eq!(
        (&measured["kl_mean"], &measured["kl_max"], &measured["agreement"]),
        (&json!(0.0), &json!(0.0), &json!(1.0))
    );
    assert_eq!(measured["perplexity"], measured["exact_perplexity"]);
}

#[test]
fn a_certificate_is_of_a_teacher_and_its_kernels() {
    let case = case();
    let file = case.path("teacher.json.certificate");
    let path = file.display().to_string();
    let written = certified(&case.teacher, &case.data, &["--out", &path]);
    assert_eq!(serde_json::from_str::<Value>(&fs::read_to_string(&file).unwrap()).unwrap(), written);
    let run = |teacher: &Path, out: &str, more: &[&str]| {
        let mut command = distill(teacher, &case.student, &case.data, &case.path(out));
        command.args(["--batch-size", "2", "--seq-len", "16", "--teacher-certificate", &path]).args(INT8).args(more);
        command
    };
    let printed = succeed(&mut run(&case.teacher, "certified", &[]));
    assert!(printed.contains(&format!("int8 teacher, by {path}: KL ")), "{printed}");
    let known = run_record(&case.path("certified"))["teacher_certificate"].clone();
    assert_eq!((&known["measured"], &known["by"]["file"]), (&written["measured"], &json!(path)));
    assert_eq!(known["by"]["certificate"], written);
    // Of another model, of other sources, or of none.
    let other = random_model(case.dir.path(), "other", 3, &tiny_config(&[]));
    let message = fail(&mut run(&other, "other-out", &[]), 5);
    assert!(
        message.contains("the digest of the weights was ") && message.contains("precast eval --model"),
        "{message}"
    );
    let changed = |change: fn(&mut Value)| {
        let mut changed = written.clone();
        change(&mut changed);
        // As whoever writes certificates does: the digest is of the file with zeros in its place.
        changed["sha256"] = "0".repeat(64).into();
        let text = changed.to_string();
        let own = |digest: &str| format!("\"sha256\":\"{digest}\"");
        let digest = Digest::of(text.as_bytes()).to_string();
        fs::write(&file, text.replace(&own(&"0".repeat(64)), &own(&digest))).unwrap();
        run(&case.teacher, "changed", &["--dry-run", "--arch", "sm_89"])
    };
    let of_kernels = fail(&mut changed(|all| all["subject"]["kernels_sha256"] = "0".repeat(64).into()), 5);
    assert!(of_kernels.contains("the digest of the kernels' sources was 000"), "{of_kernels}");
    assert!(fail(&mut changed(|all| all["measured"] = Value::Null), 5).contains("it is no certificate"));
    for (change, reason) in [
        (|all: &mut Value| all["measured"]["kl_mean"] = (-5).into(), "kl_mean is -5, expected from 0 to kl_max"),
        (|all| all["measured"]["agreement"] = 7.into(), "agreement is 7, expected from 0 to 1"),
        (|all| all["vocab"] = 1.into(), "it is of 1 tokens, and the teacher chooses among"),
        (|all| all["against"] = "int8".into(), "it is against int8: expected an exact form, bf16 or stored"),
    ] as [(fn(&mut Value), &str); 4]
    {
        let message = fail(&mut changed(change), 5);
        assert!(message.contains(reason), "{message}");
    }
    fs::write(&file, written.to_string().replace("sm_", "sn_").replace("sim", "sum")).unwrap();
    let message = fail(&mut run(&case.teacher, "changed", &[]), 5);
    assert!(message.contains("it was changed since it was written"), "{message}");
    let far =
        fail(&mut changed(|all| (all["measured"]["kl_mean"], all["measured"]["kl_max"]) = (0.5.into(), 1.into())), 1);
    assert!(far.contains("KL 0.50000 nats") && far.contains("--max-teacher-kl 0.02 allows"), "{far}");
    // Where it was measured is recorded, not compared.
    succeed(&mut changed(|all| all["arch"] = "sm_89".into()));
    assert!(
        fail(&mut run(&case.teacher, "changed", &["--teacher-format", "bf16"]), 2)
            .contains("is of a teacher that is not exact")
    );
    fs::remove_file(&file).unwrap();
    assert!(fail(&mut run(&case.teacher, "none", &[]), 5).contains("cannot read it"));
    // What is there and no certificate stays.
    fs::write(&file, "mine").unwrap();
    let refused =
        eval(&case.teacher, &case.data, &["--format", "int8", "--against", "bf16", "--out", &path]).output().unwrap();
    assert_eq!((refused.status.code(), fs::read(&file).unwrap()), (Some(2), b"mine".to_vec()));
}

/// The residual stream of a student so small that nothing of the teacher fits where it lies.
#[test]
fn a_run_without_room_to_measure_asks_for_a_certificate() {
    if skipped(!is_sim(), "kernels of that width are built for no machine") {
        return;
    }
    let narrow =
        [("hidden_size", 16), ("intermediate_size", 16), ("num_attention_heads", 1), ("num_key_value_heads", 1)];
    let narrow = narrow.map(|(name, value)| (name, json!(value)));
    // A layer larger than all that the student has, its semaphores included.
    let wide = [("hidden_size", json!(256)), ("intermediate_size", json!(4096)), ("num_hidden_layers", json!(1))];
    let case = Case::of([&tiny_config(&wide), &tiny_config(&narrow)], 17 * 8);
    let one = ["--batch-size", "1", "--seq-len", "1"];
    let run = |arguments: &[&str]| {
        let mut command = case.distill(&case.out(), &INT8);
        command.args(one).args(arguments);
        command
    };
    let message = fail(&mut run(&[]), 2);
    assert!(message.contains("has no room to measure") && message.contains("--teacher-certificate FILE"), "{message}");
    assert!(!case.out().join("run.json").exists());
    let file = case.path("certificate").display().to_string();
    certified(&case.teacher, &case.data, &["--out", &file]);
    succeed(&mut run(&["--teacher-certificate", &file, "--max-teacher-kl", "none"]));
}

#[test]
fn a_run_that_continues_knows_what_was_measured_and_no_other_rounding() {
    let case = case();
    let four = ["--teacher-format", "int8", "--checkpoint-every", "1", "--steps", "4"];
    let two = ["--teacher-format", "int8", "--checkpoint-every", "1", "--steps", "2"];
    succeed(&mut case.distill(&case.path("whole"), &four));
    succeed(&mut case.distill(&case.out(), &two));
    let before = run_record(&case.out())["teacher_certificate"].clone();
    let resumed = |format: &str| {
        case.distill(&case.out(), &["--resume", "--steps", "4", "--checkpoint-every", "1", "--teacher-format", format])
    };
    let message = fail(&mut resumed("bf16"), 2);
    assert!(message.contains("rounding of the teacher was int8, is none"), "{message}");
    let printed = succeed(&mut resumed("int8"));
    assert!(printed.contains("int8 teacher, as it was measured: KL "), "{printed}");
    assert_eq!(run_record(&case.out())["teacher_certificate"], before);
    let student = |out: &Path| fs::read(out.join("student/model.safetensors")).unwrap();
    assert!(student(&case.out()) == student(&case.path("whole")));
    // And the other way round.
    succeed(&mut case.distill(&case.path("exact"), &["--checkpoint-every", "1", "--steps", "2"]));
    let mut rounded = case.distill(&case.path("exact"), &["--resume", "--steps", "4", "--teacher-format", "int8"]);
    assert!(fail(&mut rounded, 2).contains("rounding of the teacher was none, is int8"));
}

#[test]
fn what_int8_does_not_go_with_is_refused_by_name() {
    let case = case();
    let run = |arguments: &[&str]| case.distill(&case.out(), &[&INT8[..], arguments].concat());
    let fp32 = fail(&mut run(&["--precision", "fp32"]), 2);
    assert!(fp32.contains("--teacher-format int8") && fp32.contains("--precision fp32"), "{fp32}");
    let odd = random_model(case.dir.path(), "odd", 3, &tiny_config(&[("intermediate_size", json!(40))]));
    let mut of_odd = distill(&odd, &case.student, &case.data, &case.out());
    let rotation = fail(of_odd.args(["--batch-size", "2", "--seq-len", "16"]).args(INT8), 2);
    assert!(rotation.contains("model.layers.0.mlp.down_proj.weight sums over 40"), "{rotation}");
    for option in [["--max-teacher-kl", "1"], ["--teacher-certificate", "none.json"]] {
        let message = fail(&mut case.distill(&case.out(), &option), 2);
        assert!(message.contains(option[0]) && message.contains("--teacher-format auto is"), "{message}");
    }
    let student = fail(&mut case.distill(&case.out(), &["--lora-rank", "2", "--student-format", "int8"]), 2);
    assert!(student.contains("expected bf16 or stored"), "{student}");
    let refused = |arguments: &[&str]| fail(&mut eval(&case.teacher, &case.data, arguments), 2);
    assert!(refused(&["--format", "int8", "--precision", "fp32"]).contains("--precision fp32"));
    assert!(refused(&["--format", "bf16", "--against", "bf16"]).contains("no model is far from itself"));
    assert!(refused(&["--against", "bf16"]).contains("--format int8"));
    let mut by_cublas = eval(&case.teacher, &case.data, &["--format", "int8", "--against", "bf16"]);
    let by_cublas = fail(by_cublas.args(["--gemm", "cublas"]), 2);
    assert!(by_cublas.contains("leave --gemm cublas out"), "{by_cublas}");
    assert!(!case.out().exists());
}

/// Rows and columns of zeros, and tokens whose states are zero: exact zeros, and no division by a scale of zero.
#[test]
fn zeros_are_exact() {
    let case = case();
    let (hidden, intermediate) = (32, 48);
    // Nothing comes out of any layer, so the model is its embedding and its head; the first token's state is zero, too.
    let mut model = case.teacher.clone();
    for (name, layer, module) in
        [("a", 0, "mlp.up_proj"), ("b", 1, "mlp.up_proj"), ("c", 0, "self_attn.v_proj"), ("d", 1, "self_attn.v_proj")]
    {
        model = with_tensor(&case, &model, name, &format!("model.layers.{layer}.{module}.weight"), |_, _| 0.0);
    }
    model = with_tensor(
        &case,
        &model,
        "e",
        "model.embed_tokens.weight",
        |index, was| if index < 8 * hidden { 0.0 } else { was },
    );
    let measured = certified(&model, &case.data, &["--seq-len", "16"])["measured"].clone();
    assert_eq!(
        (&measured["kl_mean"], &measured["kl_max"], &measured["agreement"]),
        (&json!(0.0), &json!(0.0), &json!(1.0))
    );
    // Single rows of zeros among others.
    let rows = with_tensor(&case, &case.teacher, "f", "model.layers.0.mlp.gate_proj.weight", |index, was| {
        if (index / hidden).is_multiple_of(3) { 0.0 } else { was }
    });
    let columns = with_tensor(&case, &rows, "g", "model.layers.0.mlp.down_proj.weight", |index, was| {
        if (index % intermediate).is_multiple_of(5) { 0.0 } else { was }
    });
    let measured = certified(&columns, &case.data, &["--seq-len", "16"])["measured"].clone();
    assert!(kl(&measured).is_finite() && kl(&measured) < 0.02, "{measured}");
}

/// Weights at the edge of bf16: what is exact is no number any more, or the 8 bits are none either. It is said, and no NaN trains.
#[test]
fn the_edge_of_the_format_trains_no_nan() {
    let case = case();
    // Rows of the largest numbers, which count for nothing as zeros multiply them.
    let quiet = with_tensor(&case, &case.teacher, "a", "model.layers.0.mlp.up_proj.weight", |_, _| 0.0);
    let largest = f32::from_bits(0x7F7F_0000);
    let edge = with_tensor(&case, &quiet, "b", "model.layers.0.mlp.down_proj.weight", |index, _| {
        if index % 2 == 0 { largest } else { -largest }
    });
    let measured = certified(&edge, &case.data, &["--seq-len", "16"])["measured"].clone();
    assert!(kl(&measured).is_finite(), "{measured}");
    // And where the exact model overflows itself, nothing trains, whatever is allowed.
    let loud = with_tensor(&case, &case.teacher, "c", "model.layers.0.mlp.down_proj.weight", |_, _| largest);
    let mut run = distill(&loud, &case.student, &case.data, &case.out());
    let run = run.args(["--batch-size", "2", "--seq-len", "16", "--max-teacher-kl", "none"]).args(INT8);
    assert!(fail(run, 1).contains("predictions are no numbers"));
    assert!(!case.out().join("run.json").exists());
}

/// A column of outliers that nothing is multiplied by leaves the exact model as it is and takes the 8 bits of all others.
#[test]
fn outliers_are_trained_on_within_the_bound_and_refused_beyond_it() {
    let case = case();
    let (hidden, intermediate) = (32, 48);
    // The first feature of each MLP is never on.
    let off = |model: &Path, name: &str, layer: usize| {
        with_tensor(&case, model, name, &format!("model.layers.{layer}.mlp.up_proj.weight"), |index, was| {
            if index < hidden { 0.0 } else { was }
        })
    };
    let quiet = off(&off(&case.teacher, "a", 0), "b", 1);
    let mut distances = Vec::new();
    let mut outcomes = Vec::new();
    for (step, outlier) in [1.0f32, 8.0, 300.0, 30_000.0].into_iter().enumerate() {
        let plant = |model: &Path, name: String, layer: usize| {
            with_tensor(
                &case,
                model,
                &name,
                &format!("model.layers.{layer}.mlp.down_proj.weight"),
                move |index, was| {
                    if index % intermediate == 0 { outlier } else { was }
                },
            )
        };
        let planted = plant(&plant(&quiet, format!("{step}-a"), 0), format!("{step}-b"), 1);
        let measured = certified(&planted, &case.data, &["--seq-len", "16"])["measured"].clone();
        distances.push(kl(&measured));
        let out = case.path(format!("out-{step}"));
        let mut run = distill(&planted, &case.student, &case.data, &out);
        run.args(["--batch-size", "2", "--seq-len", "16"]).args(INT8);
        let output = run.output().unwrap();
        outcomes.push(output.status.code());
        match output.status.code() {
            Some(0) => assert!(kl(&run_record(&out)["teacher_certificate"]["measured"]) <= 0.02),
            _ => {
                let message = fail(&mut run, 1);
                assert!(
                    message.contains("--max-teacher-kl 0.02 allows") && !out.join("run.json").exists(),
                    "{message}"
                );
                // The bound is the reader's.
                succeed(run.args(["--max-teacher-kl", "none"]));
            }
        }
    }
    assert!(distances.is_sorted(), "{distances:?}");
    assert_eq!((outcomes[0], outcomes[3]), (Some(0), Some(1)), "{outcomes:?} {distances:?}");
}

/// From configurations alone.
#[test]
fn a_plan_says_what_int8_takes() {
    let built_in = |name: &str| root().join(format!("aot/models/{name}.json"));
    let plan = |arguments: &[&str]| -> Value {
        let mut command = precast();
        command.args(["plan", "--json", "--arch", "sm_89", "--batch-size", "4", "--seq-len", "1024", "--teacher"]);
        command.arg(built_in("qwen2.5-7b")).arg("--student").arg(built_in("qwen2.5-0.5b")).args(arguments);
        serde_json::from_str(&succeed(&mut command)).unwrap()
    };
    let (auto, int8) = (plan(&[]), plan(&["--teacher-format", "int8"]));
    assert_eq!(
        (&auto["teacher_format"]["chosen"], &int8["teacher_format"]["chosen"]),
        (&json!("bf16"), &json!("int8"))
    );
    let forms: Vec<&str> = int8["teacher_format"]["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|form| form["format"].as_str().unwrap())
        .collect();
    assert_eq!(forms, ["bf16", "stored", "int8"]);
    assert_eq!(int8["teacher_format"]["choices"][2]["bytes"], int8["memory"]["total_bytes"]);
    assert!(int8["memory"]["total_bytes"].as_u64().unwrap() <= 22 << 30);
    let seconds = |plan: &Value| plan["step"]["estimate"]["seconds"].as_f64().unwrap();
    assert!(1.5 * seconds(&int8) < seconds(&auto), "8-bit GEMMs are counted at their own rate");
}
