//! A student that learns from what it writes: the same bits however it is written, and on any number of ranks.

use precast::device::memory::KERNELS_BYTES;

use crate::copies::Host;
use crate::support::Texts;
use crate::support::prelude::*;

/// Two tiny models of which the student ends texts by some tokens, and rows of ragged prompts.
pub fn case() -> Case {
    let case = Case::new(17 * 8);
    case.write("student/generation_config.json", json!({"eos_token_id": [5, 9, 17]}).to_string());
    let row = |at: u32| {
        let prompt: Vec<u32> = (0..1 + at * 5 % 11).map(|token| (7 * at + 13 * token * token + 3) % 96).collect();
        masked_row(&[&prompt[..], &[11, 12, 13]].concat(), |at| at >= prompt.len())
    };
    case.write("prompts.jsonl", (0..23).map(row).collect::<String>());
    case
}

pub fn run(case: &Case, out: &str, arguments: impl Texts) -> Command {
    let shape = "--data prompts.jsonl --on-policy --max-tokens 12 --seq-len 24 --lr 1e-2 --grad-accum 4 --steps 4";
    case.distill(out, [&[shape, "--checkpoint-every 0"], &arguments.each()[..]].concat())
}

/// Students whose layers differ, or whose values are scaled.
#[test]
fn every_family_scores_as_it_draws() {
    skip_if!(lacks_kernels());
    for name in ["made-mistral", "made-smollm3", "made-granite", "made-olmo2", "made-olmo3", "made-gemma3"] {
        let golden = Case::golden(name);
        let case = case();
        let config = golden.json("golden/student/config.json");
        let small = |config: &mut Value| {
            // Logits of the second are wider than the vocabulary.
            config["vocab_size"] = if name == "made-smollm3" { 99 } else { 96 }.into();
            // Shorter than what is written.
            config.get_mut("sliding_window").into_iter().for_each(|window| *window = 9.into());
        };
        let made = |role: &str, seed| {
            let mut config = config.clone();
            small(&mut config);
            fs::remove_dir_all(case.path(role)).unwrap();
            random_model(case.dir.path(), role, seed, &config)
        };
        made("teacher", 1);
        made("student", 2);
        for precision in ["bf16", "int8 --guard-every 0"] {
            let out = precision.split(' ').next().unwrap();
            run(&case, out, ["--precision", precision]).succeeds();
            for record in &case.results(out).1 {
                assert_eq!(record.rollouts.as_ref().expect("completions").mismatch, 0, "{name} {precision}");
            }
        }
    }
}

/// Decoding has the bits of training, in every precision, with adapters and under recomputation, whatever the slots.
#[test]
fn every_token_is_scored_as_it_was_drawn_in_any_slots() {
    let case = case();
    for (name, arguments) in [
        ("fp32", "--precision fp32"),
        ("bf16", "--precision bf16 --top-k 40 --top-p 0.9 --sampling-temperature 0.8"),
        ("int8", "--precision int8 --guard-every 0"),
        ("lora", "--precision bf16 --lora-rank 3 --recompute blocks"),
    ] {
        let [few, many] = ["3", "512"].map(|slots| {
            let out = format!("{name}-{slots}");
            run(&case, &out, [arguments, "--rollout-slots", slots]).succeeds();
            case.results(out)
        });
        assert!(few == many, "{name}");
        for record in &few.1 {
            let rollouts = record.rollouts.as_ref().expect("completions");
            assert_eq!((rollouts.mismatch, record.skipped), (0, false), "{name}");
            if name == "fp32" {
                // What was drawn is what counts: both are the mean of the same log-probabilities.
                assert!((rollouts.entropy / record.ce_loss.unwrap() - 1.0).abs() < 1e-5, "{record:?}");
            }
        }
        let ended = few.1.iter().any(|record| record.rollouts.as_ref().unwrap().ended_share > 0.0);
        assert!(ended, "{name}: none ended by itself");
    }
}

#[test]
fn a_run_that_resumes_writes_the_same_again() {
    let case = case();
    let with = |out: &str, more: &str| {
        run(&case, out, ["--precision fp32 --on-policy 0.6 --group-size 4 --shuffle true", more])
    };
    with("whole", "").succeeds();
    with("parts", "--steps 2 --checkpoint-every 1").succeeds();
    with("parts", "--resume --checkpoint-every 1 --rollout-slots 2").succeeds();
    assert!(case.results("parts") == case.results("whole"));
    // Some sequences are the data's, others the student's.
    run(&case, "own", "--precision fp32 --group-size 4 --shuffle true").succeeds();
    assert!(case.weights("own") != case.weights("whole"));
    run(&case, "parts", "--precision fp32 --resume --steps 5 --top-k 3").fails(2, "top_k");
}

#[test]
fn ranks_write_and_learn_the_same() {
    skip_if!(is_on_gpu());
    let case = case();
    // The guard of the first rank computes a micro-batch more, and changes nothing.
    for (precision, guard) in [("bf16", ""), ("int8", "--guard-every 2")] {
        let out = |count: &str| format!("{precision}-{count}");
        let with = |count: &str| run(&case, &out(count), ["--replicas 4 --precision", precision, guard]);
        with("1").succeeds();
        for count in ["2", "4"] {
            with(count).args(["--gpus", count]).succeeds();
            assert!(case.results(out(count)) == case.results(out("1")), "{precision}, {count} ranks");
        }
    }
}

/// Sequences that the student does not write have the data's completions, with their own masks.
#[test]
fn completions_of_the_data_are_those_of_their_rows() {
    let case = case_of_words();
    fs::copy(case.path("student/tokenizer.json"), case.path("teacher/tokenizer.json")).unwrap();
    let masked = r#"{"input_ids": [1, 2, 3, 4, 5, 6], "labels": [-100, -100, 3, -100, -100, 6]}"#;
    let words = r#"{"prompt": "the cat ", "completion": "sat on the mat"}"#;
    for (out, row, tokens) in [("text", words, 4), ("ids", masked, 2)] {
        case.write("rows.jsonl", format!("{row}\n"));
        let how = "--data rows.jsonl --on-policy 1e-6 --max-tokens 8 --batch-size 1 --steps 1 --precision fp32";
        let [_, stderr] = case.distill(out, how).says();
        assert!(
            stderr.contains("the student writes none of the run's 1 sequences, which are the data's own"),
            "{stderr}"
        );
        assert_eq!(case.metrics(out)[0].tokens, tokens);
    }
}

#[test]
fn prompts_that_leave_no_room_are_counted() {
    let case = case();
    let how = "--data prompts.jsonl --on-policy --max-tokens 12 --steps 2 --precision fp32";
    let [_, stderr] = case.distill("some", how).says();
    assert!(stderr.contains("prompts leave no room for a completion of --max-tokens"), "{stderr}");
}

/// The tokens of prompts, which no label of their rows counts, are what 8 bits are measured on.
#[test]
fn an_8_bit_teacher_is_measured_on_the_tokens_of_prompts() {
    let case = case();
    run(&case, "int8", "--teacher-format int8 --max-teacher-kl none --precision bf16 --steps 1").succeeds();
    let known = case.record("int8")["teacher_certificate"].clone();
    // Of the first two prompts, of 1 and of 6 tokens.
    assert_eq!([&known["by"], &known["measured"]["tokens"]], [&json!("first batch"), &json!(5)]);
}

#[test]
fn a_student_that_ends_no_text_is_noted_once() {
    let case = case();
    fs::remove_file(case.path("student/generation_config.json")).unwrap();
    let [_, stderr] = run(&case, "endless", "--precision fp32 --steps 1").says();
    let note = "names no token that ends a text: --max-tokens ends each completion";
    assert_eq!(stderr.matches(note).count(), 1, "{stderr}");
    assert_eq!(case.metrics("endless")[0].tokens, 8 * 12);
}

/// A number of slots that does not fit is refused in bytes with the most that does; a run takes as many as its plan
/// says.
#[test]
fn slots_are_as_many_as_fit_and_more_are_refused() {
    skip_if!(has_driver() || lacks_compiler());
    let host = Host::new(&[("PRECAST_FAKE_INTEGRATED", "0")]);
    let shape = "--on-policy --prompt-tokens 3 --max-tokens 4 --seq-len 64 --grad-accum 130";
    let plan = |arguments: &str| -> Value {
        let models = "plan --arch sm_121 --json --batch-size 1 --teacher teacher --student student";
        // One that does not fit is printed, too.
        let (_, printed, _) = host.case.run([models, shape, arguments]).ends();
        serde_json::from_str(&printed).unwrap()
    };
    let bytes = |slots: u32| plan(&format!("--rollout-slots {slots}"))["memory_bytes"].as_u64().unwrap();
    // For 64, and not for 128.
    let free_mib = (bytes(128) + KERNELS_BYTES - 1) >> 20;
    let mut command = host.distill("out", &format!("{shape} --steps 1 --untrained"));
    command.env("PRECAST_FAKE_FREE_MIB", free_mib.to_string());
    let fits = "512 slots of 64 tokens do not fit; --rollout-slots 64 does: it needs";
    let needs = format!("{fits} {} bytes ({} of device memory", bytes(512) + KERNELS_BYTES, bytes(512));
    let said = [needs, format!(" has {} bytes free", free_mib << 20)];
    command.args(["--rollout-slots", "512"]).fails(4, said);
    let refused = plan(&format!("--rollout-slots 512 --memory {free_mib}MiB"));
    assert_eq!(refused["suggestions"][0]["flags"], "--rollout-slots 64");
    let auto = plan(&format!("--memory {free_mib}MiB"));
    assert_eq!(auto["rollouts"]["slots"], 64);
    command.args(["--rollout-slots", "auto"]).succeeds();
    assert_eq!(host.case.metrics("out")[0].memory_bytes, auto["memory_bytes"]);
}

/// A plan and a benchmark of steps on completions take the memory and the slots that they take.
#[test]
fn steps_on_completions_are_planned_and_measured() {
    let case = Case::empty();
    case.write("tiny.json", tiny_config(&[]).to_string());
    let command = |name: &str, arguments: &str| {
        let models = "--teacher tiny.json --student tiny.json --batch-size 2 --grad-accum 3 --seq-len 16";
        let mut command = precast();
        command.current_dir(case.dir.path()).with([name, models, arguments]).args(on_device());
        command
    };
    let planned = command("plan --on-policy", "--max-tokens 9 --json").json();
    let measured = command("bench on-policy", "--max-tokens 9 --steps 3 --out bench --json").json();
    assert_eq!(planned["memory"], measured["memory"]["planned"]);
    assert_eq!([&planned["rollouts"]["slots"], &measured["slots"], &measured["prompt_tokens"]], [6, 6, 7]);
    let step = &measured["step"];
    // Six completions, and a target less than each sequence has tokens.
    assert_eq!([&step["new_tokens"], &step["positions"], &step["mismatch"]], [6 * 9, 6 * 15, 0]);
    let ms = ["write_ms", "train_ms", "step_ms"].map(|name| step[name].as_f64().unwrap());
    assert!(ms[0] > 0.0 && ms[1] > 0.0 && (ms[0] + ms[1] - ms[2]).abs() < 1e-6, "{step}");
    assert!((step["new_tokens_per_s"].as_f64().unwrap() * ms[2] / 54e3 - 1.0).abs() < 1e-6, "{step}");
    assert!(case.text("bench/report.html").contains("6 slots of 16 tokens"));
    // A micro-batch of 32 places has two rows at most.
    let short = "--prompt-tokens 2 --max-tokens 3 --steps 1";
    let step = command("bench on-policy", &format!("{short} --json")).json()["step"].clone();
    assert_eq!([&step["positions"], &step["padding_share"]], [&json!(6 * 4), &json!(0.75)]);
    let said = ["6 of 2 + 3 tokens", "ms: 18 new tokens in 6 slots", "\nmismatch          0\n", "keys and values"];
    command("bench on-policy", short).prints(said);
}
