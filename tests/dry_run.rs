//! `distill --dry-run`: every check of a run that needs no device, and the plan; nothing is written.

use crate::support::prelude::*;

const RUN: &str = "--precision fp32";

#[test]
fn a_dry_run_plans_and_writes_nothing() {
    let case = Case::new(17 * 4);
    let printed = case.distill("out", [RUN, "--dry-run"]).prints("activations");
    assert!(!printed.contains("phase micro"), "{printed}");
    case.distill("out", [RUN, "--dry-run --verbose"]).prints(["phase micro", "kernels:"]);
    assert!(!case.has("out"));
}

/// The simulated GPU executes references: no bundle lacks them.
#[test]
fn a_plan_for_the_simulated_gpu_lacks_no_kernels() {
    let case = Case::new(17 * 4);
    let shape = "--precision fp32 --batch-size 2 --seq-len 16 --teacher teacher --student student";
    let printed = case.run(["plan --arch sim --verbose --check", shape]).prints(" x reference");
    assert!(!printed.contains("not in the bundle"), "{printed}");
}

#[test]
fn a_plan_of_nothing_names_the_models_that_kernels_are_built_for() {
    let case = Case::empty();
    case.run("plan").prints(["share a tokenizer", "HuggingFaceTB/SmolLM2-135M"]);
    let printed = case.run("plan --json").prints("");
    assert_eq!(serde_json::from_str::<Value>(&printed).unwrap()["others"], serde_json::json!([]));
    case.run("plan --card H200").fails(2, "--teacher is missing");
}

#[test]
fn a_dry_run_fails_where_the_run_would() {
    let case = Case::new(17 * 4);
    case.student_with("garbage", "model.safetensors", &[0xFF; 8]);
    case.student_with("tokenizer", "tokenizer.json", b"{");
    case.write("text.txt", "Some text.");
    token_file(case.dir.path(), "beyond.bin", 17 * 4, 1000);
    for inputs in [
        "--student garbage",
        "--student tokenizer --data text.txt",
        "--data text.txt",
        "--data beyond.bin",
        "--data none.bin",
    ] {
        let [dry, real] = ["--dry-run", ""].map(|dry| case.distill("out", [RUN, inputs, dry]).fails(5, ""));
        assert_eq!(dry, real, "{inputs}");
    }
    assert!(!case.has("out/run.json"));
}

/// Plans the head that is on the device and states the reads; offers neither teacher formats nor other lengths.
#[test]
fn a_plan_with_a_cached_teacher_is_of_its_head_and_reads() {
    let case = Case::new(65 * 4);
    case.run("cache --teacher teacher --data data.bin --seq-len 64 --out cache").succeeds();
    let shape = "--student student --seq-len 64 --batch-size 1";
    let plan = |words: &str| case.run(["plan --arch sim", shape, words]);
    let printed = plan("--teacher-cache cache").prints("it reads 4.00 KiB (4096 bytes) of the cache, on the average");
    assert!(printed.contains("rows of the cache") && !printed.contains("--teacher-format"), "{printed}");
    assert!(!plan("--teacher teacher").succeeds().contains("of the cache"));
    let dry = ["--dry-run --teacher-cache cache", shape];
    case.distill("out", dry).prints("it reads 4.00 KiB (4096 bytes) of the cache, on the average");
    let ends = |words: &[&str]| case.run(["plan --arch sm_89 --json", shape, &words.join(" ")]).ends().1;
    let json = |words: &[&str]| serde_json::from_str::<Value>(&ends(words)).unwrap();
    // All that helps is shorter sequences, which the cache has not.
    let least = json(&["--teacher-cache cache --recompute blocks"])["memory_bytes"].as_u64().unwrap();
    let memory = format!("--memory {}", (64 << 20) + least - 1);
    let of_cache = json(&["--teacher-cache cache", &memory]);
    assert_eq!((&of_cache["fits"], &of_cache["suggestions"]), (&false.into(), &json!([])));
    assert_eq!((&of_cache["teacher_format"], &of_cache["step"]["hidden_bytes"]), (&Value::Null, &4096.into()));
}

/// It opens nothing: neither models nor data are there, and no such device.
#[test]
fn a_printed_configuration_is_that_of_the_command_line() {
    let case = Case::empty();
    let print = |arguments: &str| case.run(["distill --print-config --device cuda:7 --config run.toml", arguments]);
    case.write(
        "run.toml",
        "teacher = 'T'
student = 'S'
data = 'D'
lr = 1e-3
batch-size = 3
device = 'cuda:7'
",
    );
    let text = print("--out nowhere --lr 2e-3").succeeds();
    let has = |line: &str| text.lines().any(|one| one == line);
    for line in ["teacher = \"T\"", "lr = 0.002", "batch_size = 3", "out = \"nowhere\"", "keep = 1"] {
        assert!(has(line), "{line}\n{text}");
    }
    case.write("run.toml", &text);
    // What nobody asked for stands in nobody's way.
    for gpus in ["1", "2"] {
        assert_eq!(print(&format!("--gpus {gpus}")).succeeds(), text);
    }
    print("--gpus 2 --replicas 4 --grad-accum 4").prints(["\nreplicas = 4\n", "\ngrad_accum = 4\n"]);
    assert_eq!(names_in(case.dir.path()), ["run.toml"]);
}
