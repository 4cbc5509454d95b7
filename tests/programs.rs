//! What the programs print and write.

use precast_fatbins::Digest;
use safetensors::SafeTensors;

use crate::support::GPU_FIELDS;
use crate::support::prelude::*;

#[test]
fn a_run_leaves_metrics_a_record_a_report_and_a_student() {
    let case = Case::new(17 * 8);
    // One tokenizer in two texts: the student's own comes along, with what belongs to it.
    let tokenizer = tokenizer("one tokenizer of two models");
    let texts = [("teacher", tokenizer.to_string()), ("student", serde_json::to_string_pretty(&tokenizer).unwrap())];
    for (model, text) in &texts {
        case.write(&format!("{model}/tokenizer.json"), text);
        case.write(&format!("{model}/generation_config.json"), format!("{{\"max_length\": {}}}", text.len()));
    }
    let out = "deep/er/out";
    let printed = case.distill(out, "--steps 3 --precision bf16 --log-every 1").succeeds();
    assert_eq!(printed.matches("tokens/s").count(), 3, "{printed}");

    assert_eq!(case.metrics(out).iter().map(|record| record.step).collect::<Vec<_>>(), [1, 2, 3]);
    let first: Value = serde_json::from_str(case.text("deep/er/out/metrics.jsonl").lines().next().unwrap()).unwrap();
    let fields = first.as_object().unwrap().keys().map(String::as_str);
    let fields: Vec<&str> = fields.filter(|name| !GPU_FIELDS.contains(name)).collect();
    let mut expected =
        "step loss kd_loss ce_loss grad_norm lr tokens step_ms tokens_per_s row_tokens_per_s padding_share memory_bytes"
            .split(' ')
            .collect::<Vec<_>>();
    expected.sort_unstable();
    assert_eq!(fields, expected);

    let run = case.record(out);
    for pointer in ["/bundle", "/binary", "/data/sha256", "/models/teacher", "/models/student"] {
        assert_eq!(run.pointer(pointer).and_then(|v| v.as_str()).map(str::len), Some(64), "{pointer}");
    }
    assert_eq!(run.pointer("/config/seq_len"), Some(&16.into()));
    let phases = each::<f64>(&run["startup"]["phases"], "seconds").iter().sum::<f64>();
    assert!((phases - run["startup"]["total_s"].as_f64().unwrap()).abs() < 1e-9);
    // The plan is what is taken, to within 2 %.
    let [planned, taken] =
        ["/memory/planned/total_bytes", "/memory/taken_bytes"].map(|at| run.pointer(at).unwrap().as_f64().unwrap());
    // A GPU hands memory out in blocks of 2 MiB, which tiny models do not fill.
    assert!((taken - planned).abs() <= 0.02 * planned + if is_sim() { 0.0 } else { 64e6 }, "{planned} {taken}");

    assert!(case.text("deep/er/out/report.html").contains("<svg"));
    let weights = case.weights(out);
    let weights = SafeTensors::deserialize(&weights).unwrap();
    assert_eq!(weights.len(), 1 + 2 * 9 + 1, "a tied student has no lm_head");
    assert_eq!(case.json("deep/er/out/student/config.json")["torch_dtype"], "bfloat16");
    for name in ["tokenizer.json", "generation_config.json"] {
        let read = |model: &str| case.text(format!("{model}/{name}"));
        assert_eq!(read("deep/er/out/student"), read("student"), "{name}");
    }

    // The student is a model again: it scores, and differently than before.
    let nll = |model: &str| {
        let score = case.run(["eval --untrained --json --seq-len 16 --data data.bin --model", model]).json();
        assert_eq!(score["tokens"], 8 * 16);
        score["nll"].as_f64().unwrap()
    };
    assert!(nll("deep/er/out/student") < nll("student"));
}

#[test]
fn a_benchmark_accounts_for_the_whole_step() {
    // A shape is enough.
    let case = Case::of([&tiny_config(&[("num_hidden_layers", 3.into())]), &tiny_config(&[])], 0);
    let models = "--batch-size 2 --seq-len 16 --teacher teacher --student student.json";
    let record = case.run(["bench step --grad-accum 3 --steps 5 --json --out out", models]).json();
    assert_eq!(record, case.json("out/bench.json"));

    let number = |value: &Value| value.as_f64().unwrap();
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
    let (_, plan, _) = case.run(["plan --verbose --device", &device(), models]).ends();
    let of_phase = |name: &str| -> u64 {
        let line = plan.lines().find(|line| line.starts_with(&format!("phase {name} "))).unwrap();
        line.split_whitespace().nth(2).unwrap().parse().unwrap()
    };
    assert_eq!(step["launches"], 3 * of_phase("micro") + of_phase("update"));
    assert!(kernels.windows(2).all(|pair| number(&pair[0]["step_ms"]) >= number(&pair[1]["step_ms"])));
    assert!(kernels.iter().all(|kernel| kernel["share_of_limit"].is_null() == is_sim()));
    assert!(step["share_of_floor"].is_null() == is_sim() && record["limit"].is_null() == is_sim());
    let bytes = each::<u64>(&record["memory"]["planned"]["rows"], "bytes").iter().sum::<u64>();
    assert_eq!(record["memory"]["planned"]["total_bytes"], bytes);
    let expected =
        ["process", "arguments", "models", "device", "plan", "verify and load", "seal", "upload", "first step"];
    assert_eq!(each::<String>(&record["startup"]["phases"], "name"), expected);
    let html = case.text("out/report.html");
    assert_eq!(html.matches("<rect").count(), 2 * (kernels.len() + 1));
    assert!(!html.contains("http") && !html.contains("NaN") && !html.contains("<script"));
}

/// Its tokens are in no cache: rows are those of the cache's sequences in turn, each read as in a run.
#[test]
fn a_benchmark_reads_the_sequences_of_a_cache_in_turn() {
    let case = Case::new(17 * 3);
    case.run("cache --teacher teacher --data data.bin --seq-len 16 --out cache").succeeds();
    let bench =
        "bench step --seq-len 16 --batch-size 2 --grad-accum 2 --steps 3 --teacher-cache cache --student student";
    let printed = case.run(bench).prints(["cache             4096 bytes a step", "teacher  cache cache of "]);
    assert!(!printed.contains("teacher.layers"), "{printed}");
    assert_eq!(case.run([bench, "--json"]).json()["step"]["hidden_bytes"], 4 * 16 * 64);
    // The last of three is read, too.
    let mut rows = case.read("cache/hidden.bin");
    *rows.last_mut().unwrap() ^= 1;
    case.write("cache/hidden.bin", rows);
    case.run(bench).fails(5, "do not have their checksum");
    case.run([bench, "--sweep"]).fails(2, "cannot be used with");
}

/// Heading, record and report name the cache, and `doctor` finds it.
#[test]
fn a_run_says_which_cache_it_read() {
    let case = Case::new(17 * 4);
    case.run("cache --teacher teacher --data data.bin --seq-len 16 --out cache").succeeds();
    let models = "--teacher-cache cache --student student";
    let said = "cache cache of F32, 20 tensors, 4 sequences";
    case.distill("out", [models, "--steps 1"]).prints(format!("teacher  {said}"));
    let (record, manifest) = (case.record("out"), case.json("cache/cache.json"));
    let mut cache = record["teacher_cache"].clone();
    let digest = cache.as_object_mut().unwrap().remove("sha256");
    assert_eq!((cache, digest), (manifest, Some(Digest::of(&case.read("cache/cache.json")).to_string().into())));
    assert_eq!(record["config"].get("teacher_format"), None);
    assert!(
        case.text("out/report.html").contains("<td>teacher cache</td><td>4 sequences, 64 tokens that count, of F32")
    );
    case.run(["doctor --device sim --seq-len 16", models]).prints([said, "this run takes"]);
    case.run("doctor --device sim --teacher-cache student").fails(2, "cache");
    case.run(["smoke --device sim", models]).fails(2, "a batch of its own, which no cache has");
}

#[test]
fn a_sweep_measures_what_fits_and_names_what_does_not() {
    let case = Case::empty();
    let config = tiny_config(&[("max_position_embeddings", 512.into()), ("num_hidden_layers", 1.into())]);
    case.write("model.json", config.to_string());
    let shape = "--batch-size 1 --seq-len 16 --steps 1 --precision fp32 --teacher model.json --student model.json";
    case.run(["bench step --sweep --out out", shape]).prints(["batch x sequence", "left out: the teacher takes"]);
    let sweep = &case.json("out/bench.json")["sweep"];
    let shapes = |list: &str| {
        let [batch_sizes, seq_lens] = ["batch_size", "seq_len"].map(|field| each::<u64>(&sweep[list], field));
        batch_sizes.into_iter().zip(seq_lens).collect::<Vec<_>>()
    };
    assert_eq!(shapes("points"), [1, 2, 4, 8, 16, 32].map(|batch_size| (batch_size, 512)));
    assert_eq!(shapes("left_out").len(), 4 * 6);
    let planned: Vec<u64> = each(&sweep["points"], "planned_bytes");
    assert!(planned.is_sorted() && planned[0] < planned[5], "{planned:?}");
    let html = case.text("out/report.html");
    assert_eq!(html.matches("<circle").count(), 2 * 6);
    assert!(!html.contains("NaN"));
}

#[test]
fn a_student_of_chosen_layers_has_their_weights() {
    let case = Case::empty();
    case.model("teacher", 1, &[("num_hidden_layers", 4.into())]);
    case.run("init --from teacher --layers 3,0 --precision fp32 --out student").succeeds();
    let [from, to] = ["teacher", "student"].map(|model| case.read(format!("{model}/model.safetensors")));
    let (from, to) = (SafeTensors::deserialize(&from).unwrap(), SafeTensors::deserialize(&to).unwrap());
    let weights = |model: &SafeTensors<'_>, name: &str| floats(model.tensor(name).unwrap().data());
    for (mine, theirs) in [(0, 3), (1, 0)] {
        for part in ["self_attn.q_proj.weight", "mlp.down_proj.weight", "input_layernorm.weight"] {
            let name = |layer: i32| format!("model.layers.{layer}.{part}");
            assert_eq!(weights(&to, &name(mine)), weights(&from, &name(theirs)));
        }
    }
    assert_eq!(weights(&to, "model.norm.weight"), weights(&from, "model.norm.weight"));
    assert_eq!(case.json("student/config.json")["num_hidden_layers"], 2);
}

#[test]
fn a_plan_says_what_a_run_takes() {
    let mut command = precast();
    command.with("plan --arch sm_121 --batch-size 8 --seq-len 1024 --verbose --teacher aot/models/qwen2.5-1.5b.json");
    command.with("--student aot/models/qwen2.5-0.5b.json");
    let printed = command.succeeds();
    // Digests, and whether kernels are missing, depend on those that this trainer has embedded.
    let printed = printed.split("\n\n").filter(|part| !part.contains("precast-aot build")).collect::<Vec<_>>();
    let printed = regex_free_digests(&printed.join("\n\n"));
    insta::assert_snapshot!(printed);
    let json = command.with("--json").json();
    assert_eq!(json["step"]["tokens"], 8192);
    assert_eq!(json["memory"]["total_bytes"], each::<u64>(&json["memory"]["rows"], "bytes").iter().sum::<u64>());
}

#[test]
fn a_plan_says_what_a_run_takes_of_the_host() {
    let case = Case::empty();
    let data = token_file(case.dir.path(), "data.bin", 1000, 96);
    let mut command = precast();
    command.with("plan --json --arch sm_121 --teacher aot/models/qwen2.5-1.5b.json");
    let json = command.with("--student aot/models/qwen2.5-0.5b.json --data").arg(&data).json();
    let bytes: Vec<u64> = each(&json["host_memory"]["rows"], "bytes");
    // Eight slots; a part of a tensor, 2^22 elements, as f32 and bf16; three parts of a checkpoint; ids twice.
    assert_eq!(bytes, [8 << 24, (4 << 20) * 6, 3 << 24, 2 * 4000]);
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
fn doctor_names_a_remedy_for_everything_bad_and_nothing_else() {
    let case = Case::golden("made-qwen2");
    case.write("damaged.bundle", b"\x7fELF and nothing else");
    let bad = |device: &str, more: &str| -> Vec<String> {
        let shape = "--batch-size 2 --seq-len 64 --teacher golden/teacher --student golden/student";
        let (code, stdout, _) = case.run(["doctor --json --device", device, shape, more]).ends();
        let findings: Vec<Value> = serde_json::from_str(&stdout).unwrap();
        let what: Vec<&str> = findings.iter().map(|finding| finding["what"].as_str().unwrap()).collect();
        // Where there is a driver and no such GPU, the device is first.
        assert!(what.starts_with(&["driver"]) || what.starts_with(&["device"]), "{what:?}");
        if more.is_empty() && device == "sim" {
            assert_eq!(what, ["driver", "device", "arch", "bundle", "kernels", "memory"]);
        }
        let is_bad = |finding: &&Value| {
            let remedy = finding["remedy"].as_str();
            assert_eq!(finding["ok"].as_bool().unwrap(), remedy.is_none(), "{finding}");
            assert!(remedy.is_none_or(|remedy| !remedy.is_empty()), "{finding}");
            remedy.is_some()
        };
        let bad: Vec<String> = findings.iter().filter(is_bad).map(|finding| finding["what"].to_string()).collect();
        assert_eq!(code == Some(0), bad.is_empty(), "{findings:?}");
        bad
    };
    assert_eq!(bad("sim", ""), [""; 0]);
    assert!(bad("sim", "--bundle damaged.bundle").contains(&"\"bundle\"".to_owned()));
    assert!(!bad("cuda:99", "").is_empty());
}

#[test]
fn fields_that_no_class_has_are_noted() {
    let case = Case::new(17 * 4);
    case.change("student/config.json", |config| (config["sink_tokens"], config["use_cache"]) = (4.into(), true.into()));
    let [_, stderr] = case.run("eval --untrained --batch-size 2 --seq-len 16 --model student --data data.bin").says();
    let said = "student/config.json: not read, and in transformers no fields of LlamaForCausalLM: sink_tokens\n";
    assert!(stderr.contains(said), "{stderr}");
}
