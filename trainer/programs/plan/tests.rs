use std::path::{Path, PathBuf};

use precast_kernels::Arch;
use precast_plan::{Gemm, Precision, Share, human_bytes};
use serde_json::{Value, json};

use super::{Detail, GenerationReport, Limit, Report, Target};
use crate::device::frozen::Forward;
use crate::device::memory::KERNELS_BYTES;
use crate::options::{
    DivisionOptions, ModelOptions, Options, Purpose, RunConfig, ShapeOptions, SlotChoice, WeightFormat,
};
use crate::programs::generate::DecodingOptions;

fn built_in(name: &str) -> Option<PathBuf> {
    Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("aot/models").join(name).with_extension("json"))
}

/// A teacher and a student that are both this model.
fn pair(model: Option<PathBuf>) -> ModelOptions {
    ModelOptions {
        teacher: model.clone().into_iter().map(Into::into).collect(),
        student: model,
        ..ModelOptions::default()
    }
}

/// Distills the smallest built-in model into itself.
fn config(change: impl FnOnce(&mut Options)) -> RunConfig {
    let mut options = Options { models: pair(built_in("smollm2-135m")), ..Options::default() };
    options.shape = ShapeOptions { batch_size: 2, seq_len: 64 };
    change(&mut options);
    options.planned().unwrap()
}

fn report(target: Target, change: impl FnOnce(&mut Options)) -> Report {
    Report::of(&config(change), &target).unwrap()
}

/// On a device of which no memory is known.
fn on_ada(change: impl FnOnce(&mut Options)) -> Report {
    report(Target::of(Arch::Sm89), change)
}

/// On a card that is named.
fn on_card(name: &str) -> Report {
    let limit = Limit::Card(crate::options::card::card(name).unwrap());
    report(Target::find(&Options::default().target, None, limit).unwrap(), |_| {})
}

fn brief(report: &Report) -> String {
    report.text(Detail::Brief).to_string()
}

/// An RTX 4090 with so much memory.
fn of_memory(bytes: u64) -> Target {
    Target::find(&Options::default().target, Some(Arch::Sm89), Limit::Memory(bytes)).unwrap()
}

/// A vocabulary of any size is computed by tensor cores; other widths are said.
#[test]
fn gemms_on_cuda_cores_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let said = |field: &str, value: u32| {
        let text = std::fs::read_to_string(built_in("smollm2-135m").unwrap()).unwrap();
        let mut json: Value = serde_json::from_str(&text).unwrap();
        json[field] = value.into();
        let path = dir.path().join("config.json");
        std::fs::write(&path, json.to_string()).unwrap();
        let report = on_ada(|options| options.models = pair(Some(path)));
        (brief(&report), report.to_json()["on_cuda_cores"].clone())
    };
    let (text, json) = said("intermediate_size", 1530);
    assert!(text.contains("GEMMs on CUDA cores, as rows are no multiples of 8"), "{text}");
    assert!(json.to_string().contains("student.layers.*.down.dgrad") && !json.to_string().contains("qkv"), "{json}");
    for (field, value) in [("intermediate_size", 1536), ("vocab_size", 49_155)] {
        let (text, json) = said(field, value);
        assert!(!text.contains("CUDA cores") && json.is_null(), "{field}: {text}");
    }
}

/// A step quantizes the weights once, however many places it has.
#[test]
fn few_places_for_int8_are_said() {
    let says = |precision, seq_len, grad_accum| {
        let text = brief(&on_ada(|options| {
            options.arithmetic.precision = precision;
            options.shape = ShapeOptions { batch_size: 2, seq_len };
            options.division.grad_accum = Some(grad_accum);
        }));
        text.contains("--precision int8: the weights are quantized in each step")
    };
    assert!(says(Precision::Int8, 1535, 1) && !says(Precision::Int8, 1536, 1));
    assert!(!says(Precision::Int8, 64, 24) && !says(Precision::Bf16, 64, 1));
}

#[test]
fn a_plan_for_the_simulated_gpu_in_text_and_in_json() {
    let report = report(Target::of(Arch::Sim), |options| options.arithmetic.precision = Precision::Fp32);
    insta::assert_snapshot!(format!("{}\n\n{:#}", report.text(Detail::Full), report.to_json()));
    assert!(report.check().is_ok());
}

#[test]
fn a_model_alone_has_no_forms_to_choose_from() {
    let report = on_ada(|options| {
        options.models = ModelOptions { model: built_in("smollm2-135m"), ..ModelOptions::default() };
    });
    assert!(!brief(&report).contains("--teacher-format"));
    let json = report.to_json();
    assert_eq!([&json["teacher_format"], &json["room"], &json["cublas"]], [&Value::Null; 3]);
    assert_eq!(json["recompute"]["chosen"], "none");
}

#[test]
fn a_base_that_teaches_in_int8_is_in_memory_once() {
    let report = on_ada(|options| {
        options.adapting.lora_rank = Some(4);
        options.arithmetic.precision = Precision::Int8;
        options.teaching.teacher.teacher_format = Some(WeightFormat::Int8);
    });
    let json = report.to_json();
    let found = ["teacher_is_base", "student_format", "teacher_format"].map(|name| json[name].clone());
    assert_eq!(found, [json!(true), json!("int8"), json!(null)]);
    assert!(brief(&report).contains("The student stays as it is, in int8, which teaches too"));
}

/// Whatever fits, exact changes come first, and none is another one and more.
#[test]
fn changes_that_fit_are_few_and_none_contains_another() {
    let whole = on_ada(|options| options.shape.batch_size = 4);
    let mut seen = Vec::new();
    for percent in [99, 96, 93] {
        let bytes = whole.memory.total_bytes * percent / 100 + KERNELS_BYTES;
        let refused = report(of_memory(bytes), |options| {
            options.shape.batch_size = 4;
            options.teaching.teacher.teacher_format = Some(WeightFormat::Bf16);
        });
        let json = refused.to_json();
        let suggestions = json["suggestions"].as_array().unwrap();
        assert!((1..=3).contains(&suggestions.len()), "{json}");
        assert_eq!(suggestions[0], json["room"]["least_change"]);
        let flags: Vec<&str> = suggestions.iter().map(|one| one["flags"].as_str().unwrap()).collect();
        for (at, one) in flags.iter().enumerate() {
            assert!(flags[..at].iter().all(|less| !one.contains(less)), "{flags:?}");
        }
        assert!(suggestions.iter().all(|one| one["bytes"].as_u64().unwrap() + KERNELS_BYTES <= bytes));
        seen.push(brief(&refused).split("\n\n").next().unwrap().to_owned());
    }
    insta::assert_snapshot!(seen.join("\n\n"));
}

/// GB10's host takes of the same memory, and a GPU with its own does not count it.
#[test]
fn a_card_that_shares_its_memory_counts_what_the_host_takes() {
    let [own, shared] = ["4090", "gb10"].map(|name| brief(&on_card(name)));
    assert!(!own.contains("for the host, which shares it"), "{own}");
    let of_host = "for the host, which shares it, of 111.21 GiB (NVIDIA GB10: 119.21 GiB of host";
    assert!(shared.contains(of_host), "{shared}");
    assert!(own.contains("peak figures of a GeForce RTX 4090") && shared.contains("peak figures of a GB10"), "{own}");
}

/// Its memory is published, and not the rate of what its kernels compute with.
#[test]
fn a_plan_for_a_b200_has_its_memory_and_no_estimate() {
    let report = on_card("B200");
    let (text, json) = (brief(&report), report.to_json());
    assert!(text.contains("of 176.40 GiB (NVIDIA B200: 180.00 GiB by its data sheet"), "{text}");
    assert!(text.contains("GEMMs\nno estimate: no peak figures are known of this device\n"), "{text}");
    assert_eq!((&json["arch"], &json["step"]["estimate"]), (&json!("sm_100"), &Value::Null));
}

/// Two GPUs share the micro-batches of a step, so that its estimate is near half of what one GPU takes for all of them.
#[test]
fn the_estimate_of_a_step_is_of_the_micro_batches_of_one_rank() {
    let step = |ranks| {
        let models = pair(built_in("smollm2-135m"));
        let division = DivisionOptions { replicas: Some(4), ..DivisionOptions::default() };
        let options = Options { models, division, ..Options::default() };
        let config = options.resolve(Purpose::Plan, Share { ranks, ..Share::ALONE }, None).unwrap();
        Report::of(&config, &Target::of(Arch::Sm89)).unwrap().to_json()["step"].clone()
    };
    let [one, two] = [1, 2].map(step);
    assert_eq!([&one["tokens"], &one["flops"]], [&two["tokens"], &two["flops"]]);
    let seconds = |step: &Value| step["estimate"]["seconds"].as_f64().unwrap();
    let share = seconds(&two) / seconds(&one);
    assert!((0.45..0.55).contains(&share), "{share}");
}

/// 300 sequences of a tiny model, with so many slots.
fn on_policy(target: Target, slots: SlotChoice) -> Report {
    report(target, |options| {
        options.models = pair(Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/tiny.json")));
        options.division.grad_accum = Some(150);
        options.teaching.teacher.teacher_format = Some(WeightFormat::Bf16);
        (options.on_policy.on_policy, options.on_policy.completions.max_tokens) = (Some(1.0), Some(40));
        options.on_policy.completions.rollout_slots = Some(slots);
    })
}

/// As many as there is room for; a number that does not fit hears of the most that does.
#[test]
fn an_on_policy_run_is_planned_with_the_slots_that_fit() {
    let of = |slots| on_policy(Target::of(Arch::Sm89), SlotChoice::Count(slots)).memory.total_bytes;
    let room = || of_memory(of(128) + KERNELS_BYTES);
    let auto = on_policy(room(), SlotChoice::Auto);
    let (text, json) = (auto.text(Detail::Full).to_string(), auto.to_json());
    assert_eq!((&json["rollouts"]["slots"], &json["fits"]), (&json!(128), &json!(true)));
    assert_eq!(json["rollouts"]["choices"][1], json!({"slots": 256, "bytes": of(256)}));
    let bytes = of(128);
    let line = format!("  {:<14} {:>12}  {bytes:>16} bytes  (chosen)", 128, human_bytes(bytes));
    assert!(text.contains(&line), "{text}");
    let phases: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("phase ")?.split(' ').next()).collect();
    assert_eq!(
        phases[3..],
        ["micro", "update", "teacher", "prefill.128", "prefill.512", "prefill.2048", "decode.64", "decode.128"]
    );
    // Without anything to compare with they are as many as the sequences.
    assert_eq!(on_policy(Target::of(Arch::Sm89), SlotChoice::Auto).to_json()["rollouts"]["slots"], 300);
    let failure = on_policy(room(), SlotChoice::Count(300)).check().unwrap_err();
    let said = format!("The least change that fits: --rollout-slots 128: {bytes} bytes, the same bits");
    assert!(failure.exit_code() == 4 && failure.to_string().ends_with(&said), "{failure}");
    let least = on_policy(of_memory(of(1) + KERNELS_BYTES - 1), SlotChoice::Count(300)).to_json();
    assert_eq!(least["room"]["least_change"]["flags"], "--recompute norms --rollout-slots auto");
    // A completion of 40 tokens is in no sequence of 32.
    let none = on_policy(of_memory(1 << 20), SlotChoice::Auto).to_json();
    assert_eq!((&none["rollouts"]["slots"], &none["suggestions"]), (&json!(1), &json!([])));
}

/// A generation of the smallest built-in model into slots of 1024 tokens.
fn generation(target: &Target, slots: SlotChoice, format: WeightFormat) -> GenerationReport {
    let forward = Forward {
        model: built_in("smollm2-135m").unwrap(),
        adapter: None,
        format,
        precision: Some(if target.rows.launches == Arch::Sim { Precision::Fp32 } else { Precision::Bf16 }),
        gemm: Gemm::Bundle,
        target: Options::default().target,
        teacher: None,
        heading: false,
    };
    GenerationReport::of(&DecodingOptions { forward, slots }, 1024, target).unwrap()
}

#[test]
fn a_generation_has_its_memory_and_the_least_time_of_its_steps() {
    let report = |arch| generation(&Target::of(arch), SlotChoice::Count(100), WeightFormat::Auto);
    insta::assert_snapshot!(report(Arch::Sim).text(Detail::Full).to_string());
    let report = report(Arch::Sm89);
    assert!(report.check().is_ok());
    assert!(report.text(Detail::Brief).to_string().contains("by the peak figures of a GeForce RTX 4090"));
    let json = report.to_json();
    let (bytes, seconds) = (&json["steps"][0]["bytes"], &json["steps"][0]["seconds"]);
    assert!((seconds.as_f64().unwrap() - bytes.as_f64().unwrap() / 1008e9).abs() < 1e-9);
    assert_eq!([&json["slots"], &json["fits"]], [&json!(100), &Value::Null]);
    assert_eq!(json["steps"].as_array().unwrap().len(), 2);
}

/// As many as there is room for, in the first form that is asked for; a number that does not fit hears of one that
/// does.
#[test]
fn a_generation_takes_as_many_slots_as_fit() {
    let bytes = |slots| {
        let report = generation(&Target::of(Arch::Sm89), SlotChoice::Count(slots), WeightFormat::Bf16);
        report.to_json()["memory_bytes"].as_u64().unwrap()
    };
    let room = of_memory(bytes(128) + KERNELS_BYTES);
    let auto = generation(&room, SlotChoice::Auto, WeightFormat::Bf16);
    assert_eq!((&auto.to_json()["slots"], &auto.to_json()["fits"]), (&json!(128), &json!(true)));
    let refused = generation(&room, SlotChoice::Count(300), WeightFormat::Bf16);
    let failure = refused.check().unwrap_err();
    let said = "300 slots of 1024 tokens do not fit; --slots 128 does: it needs";
    let said = format!("{said} {} bytes ({} of device memory", bytes(300) + KERNELS_BYTES, bytes(300));
    assert!(failure.exit_code() == 4 && failure.to_string().starts_with(&said), "{failure}");
    assert!(refused.text(Detail::Brief).to_string().starts_with("does not fit: "));
    let none = generation(&of_memory(1 << 20), SlotChoice::Auto, WeightFormat::Auto);
    assert!(none.check().unwrap_err().to_string().contains("not even one does"));
    // Weights in blocks leave room for what weights in bf16 do not.
    let least = of_memory(bytes(1) + KERNELS_BYTES - 1);
    assert_eq!(generation(&least, SlotChoice::Auto, WeightFormat::Auto).to_json()["format"], json!("stored"));
}
