//! What the programs print and write.

use std::path::Path;

use safetensors::SafeTensors;

use crate::support::{
    GPU_FIELDS, bundle, device, distill, fixture, floats, is_sim, metrics_of, precast, random_model, succeed,
    tiny_config, token_file, tokenizer,
};

#[test]
fn a_run_leaves_metrics_a_record_a_report_and_a_student() {
    let dir = tempfile::tempdir().unwrap();
    let teacher = random_model(dir.path(), "teacher", 1, &tiny_config(&[]));
    let student = random_model(dir.path(), "student", 2, &tiny_config(&[]));
    // One tokenizer in two texts: the student's own comes along, with what belongs to it.
    let tokenizer = tokenizer("one tokenizer of two models");
    let texts = [(&teacher, tokenizer.to_string()), (&student, serde_json::to_string_pretty(&tokenizer).unwrap())];
    for (model, text) in &texts {
        std::fs::write(model.join("tokenizer.json"), text).unwrap();
        std::fs::write(model.join("generation_config.json"), format!("{{\"max_length\": {}}}", text.len())).unwrap();
    }
    let data = token_file(dir.path(), "data.bin", 17 * 8, 96);
    let out = dir.path().join("deep/er/out");
    let mut command = distill(&teacher, &student, &data, &out);
    command.args(["--steps", "3", "--batch-size", "2", "--seq-len", "16", "--precision", "bf16", "--log-every", "1"]);
    let printed = succeed(&mut command);
    assert_eq!(printed.matches("tokens/s").count(), 3, "{printed}");

    let records = metrics_of(&out);
    assert_eq!(records.iter().map(|record| record.step).collect::<Vec<_>>(), [1, 2, 3]);
    let line = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    let first: serde_json::Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
    let fields = first.as_object().unwrap().keys().map(String::as_str);
    let fields: Vec<&str> = fields.filter(|name| !GPU_FIELDS.contains(name)).collect();
    let mut expected =
        ["step", "loss", "kd_loss", "ce_loss", "grad_norm", "lr", "tokens", "step_ms", "tokens_per_s", "memory_bytes"];
    expected.sort_unstable();
    assert_eq!(fields, expected);

    let run: serde_json::Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
    for pointer in ["/bundle", "/binary", "/data/sha256", "/models/teacher", "/models/student"] {
        assert_eq!(run.pointer(pointer).and_then(|v| v.as_str()).map(str::len), Some(64), "{pointer}");
    }
    assert_eq!(run.pointer("/config/seq_len"), Some(&16.into()));
    let phases: f64 = run["startup"]["phases"].as_array().unwrap().iter().map(|p| p["seconds"].as_f64().unwrap()).sum();
    assert!((phases - run["startup"]["total_s"].as_f64().unwrap()).abs() < 1e-9);
    // The plan is what is taken, to within 2 %.
    let (planned, taken) =
        (run["memory"]["planned"]["total_bytes"].as_f64().unwrap(), run["memory"]["taken_bytes"].as_f64().unwrap());
    // A GPU hands memory out in blocks of 2 MiB, which tiny models do not fill.
    assert!((taken - planned).abs() <= 0.02 * planned + if is_sim() { 0.0 } else { 64e6 }, "{planned} {taken}");

    assert!(std::fs::read_to_string(out.join("report.html")).unwrap().contains("<svg"));
    let weights = std::fs::read(out.join("student/model.safetensors")).unwrap();
    let weights = SafeTensors::deserialize(&weights).unwrap();
    assert_eq!(weights.len(), 1 + 2 * 9 + 1, "a tied student has no lm_head");
    let config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("student/config.json")).unwrap()).unwrap();
    assert_eq!(config["torch_dtype"], "bfloat16");
    for name in ["tokenizer.json", "generation_config.json"] {
        let read = |model: &Path| std::fs::read_to_string(model.join(name)).unwrap();
        assert_eq!(read(&out.join("student")), read(&student), "{name}");
    }

    // The student is a model again: it scores, and differently than before.
    let nll = |model: &Path| {
        let mut command = precast();
        command.args(["eval", "--untrained", "--json", "--device", &device(), "--seq-len", "16", "--model"]).arg(model);
        if let Some(bundle) = bundle() {
            command.arg("--bundle").arg(bundle);
        }
        let score: serde_json::Value = serde_json::from_str(&succeed(command.arg("--data").arg(&data))).unwrap();
        assert_eq!(score["tokens"], 8 * 16);
        score["nll"].as_f64().unwrap()
    };
    assert!(nll(&out.join("student")) < nll(&student));
}

#[test]
fn a_benchmark_accounts_for_the_whole_step() {
    let dir = tempfile::tempdir().unwrap();
    let teacher = random_model(dir.path(), "teacher", 1, &tiny_config(&[("num_hidden_layers", 3.into())]));
    // A shape is enough.
    let student = dir.path().join("student.json");
    std::fs::write(&student, tiny_config(&[]).to_string()).unwrap();
    let mut command = precast();
    command.args(["bench", "--device", &device(), "--batch-size", "2", "--seq-len", "16", "--grad-accum", "3"]);
    command.args(["--steps", "5", "--teacher"]).arg(&teacher).arg("--student").arg(&student);
    if let Some(bundle) = bundle() {
        command.arg("--bundle").arg(bundle);
    }
    let out = dir.path().join("out");
    let printed = succeed(command.arg("--json").arg("--out").arg(&out));
    let record: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let written: serde_json::Value = serde_json::from_slice(&std::fs::read(out.join("bench.json")).unwrap()).unwrap();
    assert_eq!(record, written);

    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let (step, kernels) = (&record["step"], record["kernels"].as_array().unwrap());
    assert_eq!(step["tokens"], 3 * 2 * 16);
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
    assert!(near(number(&step["tokens_per_s"]) * number(&step["step_ms"]), 1e3 * 96.0));
    let sum = |field: &str| kernels.iter().map(|kernel| number(&kernel[field])).sum::<f64>();
    assert!(near(sum("step_ms"), number(&step["kernels_ms"])));
    assert!(near(sum("step_ms") + number(&step["between_ms"]), number(&step["step_ms"])));
    assert!(near(sum("share") + number(&step["between_ms"]) / number(&step["step_ms"]), 1.0));
    // Every launch of the plan is in one row: those of a micro-batch three times, those of the update once.
    let launches = |purpose: &str| -> u64 {
        let of = kernels.iter().filter(|kernel| kernel["purpose"] == purpose);
        of.map(|kernel| kernel["launches"].as_u64().unwrap()).sum()
    };
    assert_eq!([launches("adamw"), launches("student.layers.*.swiglu.bwd")], [1, 3 * 2]);
    let plan = precast()
        .args(["plan", "--verbose", "--device", &device(), "--batch-size", "2", "--seq-len", "16", "--teacher"])
        .arg(&teacher)
        .arg("--student")
        .arg(&student)
        .output()
        .unwrap();
    let plan = String::from_utf8(plan.stdout).unwrap();
    let of_phase = |name: &str| -> u64 {
        let line = plan.lines().find(|line| line.starts_with(&format!("phase {name} "))).unwrap();
        line.split_whitespace().nth(2).unwrap().parse().unwrap()
    };
    assert_eq!(step["launches"], 3 * of_phase("micro") + of_phase("update"));
    assert!(kernels.windows(2).all(|pair| number(&pair[0]["step_ms"]) >= number(&pair[1]["step_ms"])));
    assert!(kernels.iter().all(|kernel| kernel["share_of_limit"].is_null() == is_sim()));
    assert!(step["share_of_floor"].is_null() == is_sim() && record["limit"].is_null() == is_sim());
    let rows = record["memory"]["planned"]["rows"].as_array().unwrap();
    let bytes: u64 = rows.iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
    assert_eq!(record["memory"]["planned"]["total_bytes"], bytes);
    let phases: Vec<&str> =
        record["startup"]["phases"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    let expected =
        ["process", "arguments", "models", "device", "plan", "verify and load", "seal", "upload", "first step"];
    assert_eq!(phases, expected);
    let html = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert_eq!(html.matches("<rect").count(), 2 * (kernels.len() + 1));
    assert!(!html.contains("http") && !html.contains("NaN") && !html.contains("<script"));
}

#[test]
fn a_sweep_measures_what_fits_and_names_what_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let student = dir.path().join("student.json");
    let config = tiny_config(&[("max_position_embeddings", 512.into()), ("num_hidden_layers", 1.into())]);
    std::fs::write(&student, config.to_string()).unwrap();
    let mut command = precast();
    command.args(["bench", "--sweep", "--device", &device(), "--batch-size", "1", "--seq-len", "16", "--steps", "1"]);
    command.args(["--precision", "fp32"]);
    command.arg("--teacher").arg(&student).arg("--student").arg(&student);
    if let Some(bundle) = bundle() {
        command.arg("--bundle").arg(bundle);
    }
    let out = dir.path().join("out");
    let printed = succeed(command.arg("--out").arg(&out));
    assert!(printed.contains("batch x sequence") && printed.contains("left out: the teacher takes"), "{printed}");
    let record: serde_json::Value = serde_json::from_slice(&std::fs::read(out.join("bench.json")).unwrap()).unwrap();
    let shapes = |list: &str| -> Vec<(u64, u64)> {
        let rows = record["sweep"][list].as_array().unwrap();
        rows.iter().map(|row| (row["batch_size"].as_u64().unwrap(), row["seq_len"].as_u64().unwrap())).collect()
    };
    assert_eq!(shapes("points"), [1, 2, 4, 8, 16, 32].map(|batch_size| (batch_size, 512)));
    assert_eq!(shapes("left_out").len(), 4 * 6);
    let planned: Vec<u64> =
        record["sweep"]["points"].as_array().unwrap().iter().map(|p| p["planned_bytes"].as_u64().unwrap()).collect();
    assert!(planned.is_sorted() && planned[0] < planned[5], "{planned:?}");
    let html = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert_eq!(html.matches("<circle").count(), 2 * 6);
    assert!(!html.contains("NaN"));
}

#[test]
fn a_student_of_chosen_layers_has_their_weights() {
    let dir = tempfile::tempdir().unwrap();
    let teacher = random_model(dir.path(), "teacher", 1, &tiny_config(&[("num_hidden_layers", 4.into())]));
    let out = dir.path().join("student");
    let mut command = precast();
    command.arg("init").arg("--from").arg(&teacher).args(["--layers", "3,0", "--precision", "fp32", "--out"]);
    succeed(command.arg(&out));
    let read = |model: &Path| std::fs::read(model.join("model.safetensors")).unwrap();
    let (from, to) = (read(&teacher), read(&out));
    let (from, to) = (SafeTensors::deserialize(&from).unwrap(), SafeTensors::deserialize(&to).unwrap());
    let weights = |model: &SafeTensors<'_>, name: &str| floats(model.tensor(name).unwrap().data());
    for (mine, theirs) in [(0, 3), (1, 0)] {
        for part in ["self_attn.q_proj.weight", "mlp.down_proj.weight", "input_layernorm.weight"] {
            let name = |layer: i32| format!("model.layers.{layer}.{part}");
            assert_eq!(weights(&to, &name(mine)), weights(&from, &name(theirs)));
        }
    }
    assert_eq!(weights(&to, "model.norm.weight"), weights(&from, "model.norm.weight"));
    let config: serde_json::Value = serde_json::from_slice(&std::fs::read(out.join("config.json")).unwrap()).unwrap();
    assert_eq!(config["num_hidden_layers"], 2);
}

/// Name, bytes and shape.
type Tensor = (String, Vec<u8>, Vec<usize>);

#[test]
fn sharded_models_and_other_dtypes_read_the_same() {
    use precast::inputs::checkpoint::{Checkpoint, Scratch, Weights};
    use precast_kernels::Dtype;
    let dir = tempfile::tempdir().unwrap();
    let whole = random_model(dir.path(), "whole", 1, &tiny_config(&[]));
    let bytes = std::fs::read(whole.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let sharded = dir.path().join("sharded");
    std::fs::create_dir(&sharded).unwrap();
    std::fs::copy(whole.join("config.json"), sharded.join("config.json")).unwrap();
    // f32 in one file, f16 in another; the values are made representable in f16 first.
    let mut map = serde_json::Map::new();
    let mut shards: [Vec<Tensor>; 2] = [Vec::new(), Vec::new()];
    for (index, (name, view)) in tensors.iter().enumerate() {
        let values = floats(view.data()).into_iter().map(half::f16::from_f32);
        let bytes: Vec<u8> = match index % 2 {
            0 => values.flat_map(|v| v.to_f32().to_le_bytes()).collect(),
            _ => values.flat_map(half::f16::to_le_bytes).collect(),
        };
        map.insert(name.to_owned(), format!("part-{}.safetensors", index % 2).into());
        shards[index % 2].push((name.to_owned(), bytes, view.shape().to_vec()));
    }
    for (index, shard) in shards.iter().enumerate() {
        let dtype = [safetensors::Dtype::F32, safetensors::Dtype::F16][index];
        let views = shard.iter().map(|(name, bytes, shape)| {
            (name.clone(), safetensors::tensor::TensorView::new(dtype, shape.clone(), bytes).unwrap())
        });
        safetensors::serialize_to_file(views, None, &sharded.join(format!("part-{index}.safetensors"))).unwrap();
    }
    let index = serde_json::json!({ "weight_map": map });
    std::fs::write(sharded.join("model.safetensors.index.json"), index.to_string()).unwrap();
    let (whole, sharded) = (Checkpoint::open(&whole).unwrap(), Checkpoint::open(&sharded).unwrap());
    for parameter in precast_plan::Parameters::new(whole.config()).list {
        let exact = floats(whole.read(&parameter, Dtype::F32.into(), &mut Scratch::default()).unwrap());
        let rounded: Vec<f32> = exact.iter().map(|v| half::f16::from_f32(*v).to_f32()).collect();
        assert_eq!(
            floats(sharded.read(&parameter, Dtype::F32.into(), &mut Scratch::default()).unwrap()),
            rounded,
            "{}",
            parameter.name
        );
    }
}

#[test]
fn a_plan_says_what_a_run_takes() {
    let mut command = precast();
    command.args(["plan", "--arch", "sm_121", "--batch-size", "8", "--seq-len", "1024", "--teacher"]);
    command.arg("aot/models/qwen2.5-1.5b.json").arg("--student").arg("aot/models/qwen2.5-0.5b.json").arg("--verbose");
    let printed = succeed(&mut command);
    // Digests, and whether kernels are missing, depend on those that this trainer has embedded.
    let printed = printed.split("\n\n").filter(|part| !part.contains("precast-aot build")).collect::<Vec<_>>();
    let printed = regex_free_digests(&printed.join("\n\n"));
    insta::assert_snapshot!(printed);
    let json: serde_json::Value = serde_json::from_str(&succeed(command.arg("--json"))).unwrap();
    assert_eq!(json["step"]["tokens"], 8192);
    let total: u64 = json["memory"]["rows"].as_array().unwrap().iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
    assert_eq!(json["memory"]["total_bytes"], total);
}

#[test]
fn a_plan_says_what_a_run_takes_of_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let data = token_file(dir.path(), "data.bin", 1000, 96);
    let mut command = precast();
    command.args(["plan", "--json", "--arch", "sm_121", "--teacher", "aot/models/qwen2.5-1.5b.json", "--student"]);
    command.arg("aot/models/qwen2.5-0.5b.json").arg("--data").arg(&data);
    let json: serde_json::Value = serde_json::from_str(&succeed(&mut command)).unwrap();
    let rows = json["host_memory"]["rows"].as_array().unwrap();
    let bytes: Vec<u64> = rows.iter().map(|row| row["bytes"].as_u64().unwrap()).collect();
    // Eight slots; the teacher's embedding, 151936 x 1536, as f32 and bf16; three parts; ids twice.
    assert_eq!(bytes, [8 << 24, 151_936 * 1536 * 6, 3 << 24, 2 * 4000]);
    assert_eq!(json["host_memory"]["total_bytes"], bytes.iter().sum::<u64>());
}

/// The column of digests blanked.
fn regex_free_digests(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once(" x ") {
        Some((count, rest)) if rest.contains("{") => {
            let key = rest.rsplit("  ").next().unwrap_or(rest);
            format!("{count} x {key}")
        }
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_plan_touches_no_weights() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), tiny_config(&[]).to_string()).unwrap();
    let mut command = precast();
    command.args(["plan", "--device", "sim", "--batch-size", "2", "--seq-len", "16", "--teacher"]);
    let printed = succeed(command.arg(dir.path()).arg("--student").arg(dir.path()));
    assert!(printed.contains("activations") && printed.contains(", which --verbose lists"), "{printed}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn doctor_names_a_remedy_for_everything_bad_and_for_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let damaged = dir.path().join("damaged.bundle");
    std::fs::write(&damaged, b"\x7fELF and nothing else").unwrap();
    let damaged = damaged.to_str().unwrap();
    let bad = |device: &str, more: &[&str]| -> Vec<String> {
        let mut command = precast();
        command.args(["doctor", "--json", "--device", device, "--batch-size", "2", "--seq-len", "64", "--teacher"]);
        command.arg(fixture("golden/qwen2-tied/teacher")).arg("--student").arg(fixture("golden/qwen2-tied/student"));
        let output = command.args(more).output().unwrap();
        let findings: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
        let what: Vec<&str> = findings.iter().map(|finding| finding["what"].as_str().unwrap()).collect();
        // Where there is a driver and no such GPU, the device is first.
        assert!(what.starts_with(&["driver"]) || what.starts_with(&["device"]), "{what:?}");
        if more.is_empty() && device == "sim" {
            assert_eq!(what, ["driver", "device", "arch", "bundle", "kernels", "memory"]);
        }
        let is_bad = |finding: &&serde_json::Value| {
            let remedy = finding["remedy"].as_str();
            assert_eq!(finding["ok"].as_bool().unwrap(), remedy.is_none(), "{finding}");
            assert!(remedy.is_none_or(|remedy| !remedy.is_empty()), "{finding}");
            remedy.is_some()
        };
        let bad: Vec<String> = findings.iter().filter(is_bad).map(|finding| finding["what"].to_string()).collect();
        assert_eq!(output.status.success(), bad.is_empty(), "{findings:?}");
        bad
    };
    assert_eq!(bad("sim", &[]), [""; 0]);
    assert!(bad("sim", &["--bundle", damaged]).contains(&"\"bundle\"".to_owned()));
    assert!(!bad("cuda:99", &[]).is_empty());
}
