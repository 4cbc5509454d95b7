//! `precast generate`: completions of a prompt and of many.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::success::planted;
use crate::support::{Case, fail, logits, on_device, precast, succeed, texts, tokenizer};

const TEXT: &str = "again and cat mat on sat the <u> <a> <e>";

fn case() -> Case {
    let case = Case::new(0);
    let mut words = tokenizer(TEXT);
    words["pre_tokenizer"] = serde_json::json!({"type": "WhitespaceSplit"});
    fs::write(case.student.join("tokenizer.json"), words.to_string()).unwrap();
    case
}

impl Case {
    fn generate(&self, prompt: &str, arguments: &[&str]) -> Command {
        let mut command = precast();
        command.args(["generate", "--json", "--prompt", prompt, "--model"]).arg(&self.student);
        command.args(on_device()).args(arguments);
        command
    }
}

fn ids(json: &Value, name: &str) -> Vec<u32> {
    json[name].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// Each token is the likeliest by the logits of everything before it.
#[test]
fn every_token_is_the_likeliest_after_those_before() {
    let case = case();
    let json: Value =
        serde_json::from_str(&succeed(&mut case.generate("the cat sat", &["--raw", "--max-tokens", "9"]))).unwrap();
    let (mut sequence, found) = (ids(&json, "prompt_ids"), ids(&json, "ids"));
    assert_eq!((sequence.len(), found.len()), (3, 9));
    for next in found {
        let logits = logits(&case.student, &sequence);
        let last = &logits[logits.len() - 96..];
        let best = (0..96).max_by(|a, b| last[*a].total_cmp(&last[*b]).then(b.cmp(a))).unwrap();
        assert_eq!(next as usize, best, "after {sequence:?}");
        sequence.push(next);
    }
}

#[test]
fn a_prompt_is_a_message_where_the_model_has_a_template_and_an_end_ends() {
    let case = case();
    fs::write(
        case.student.join("chat_template.jinja"),
        "{% for m in messages %}<u> {{ m.content }} <e>{% endfor %}{% if add_generation_prompt %} <a>{% endif %}",
    )
    .unwrap();
    let run = |arguments: &[&str]| -> Value {
        serde_json::from_str(&succeed(&mut case.generate("the cat", arguments))).unwrap()
    };
    let (chat, raw) = (run(&["--max-tokens", "5"]), run(&["--max-tokens", "5", "--raw"]));
    assert_eq!((ids(&chat, "prompt_ids").len(), ids(&raw, "prompt_ids").len()), (5, 2));
    // The second token that it says ends an answer now.
    let said = ids(&chat, "ids");
    let end = said[1];
    fs::write(case.student.join("generation_config.json"), format!("{{\"eos_token_id\": [95, {end}]}}")).unwrap();
    let ended = ids(&run(&["--max-tokens", "5"]), "ids");
    let length = said.iter().position(|id| *id == end).unwrap() + 1;
    assert_eq!(ended, said[..length]);
}

/// Standard output carries the text or the score, and nothing else.
#[test]
fn standard_output_has_the_text_or_the_score_alone() {
    let case = case();
    fs::write(case.path("words.txt"), TEXT).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = precast();
        command.args(arguments).arg("--model").arg(&case.student).args(on_device());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        texts(&output)
    };
    let (text, heading) = run(&["generate", "--raw", "--prompt", "the cat sat", "--max-tokens", "3"]);
    let json: Value =
        serde_json::from_str(&succeed(&mut case.generate("the cat sat", &["--raw", "--max-tokens", "3"]))).unwrap();
    assert_eq!(text, format!("{}\n", json["text"].as_str().unwrap()));
    assert!(heading.contains("device   ") && heading.contains("model    "), "{heading}");
    let words = case.path("words.txt").display().to_string();
    let (score, heading) = run(&["eval", "--untrained", "--data", &words]);
    assert!(score.starts_with("nll ") && score.lines().count() == 1, "{score}");
    assert!(heading.contains("device   ") && heading.contains("model    "), "{heading}");
}

/// No row of NaN has a likeliest token.
#[test]
fn a_model_whose_logits_are_no_numbers_generates_nothing() {
    let mut case = case();
    let tensor = "model.layers.0.input_layernorm.weight";
    let broken = planted(case.dir.path(), &case.student, "broken", tensor, 0, f32::MAX);
    fs::copy(case.student.join("tokenizer.json"), broken.join("tokenizer.json")).unwrap();
    case.student = broken;
    let message = fail(&mut case.generate("the cat", &["--raw"]), 1);
    assert!(message.contains("sequence 0 at position 2: a logit is not finite"), "{message}");
    assert!(message.contains("try --precision fp32, and check the model with precast eval"), "{message}");
}

/// All of the model's positions can be used, and no more.
#[test]
fn an_answer_ends_with_the_models_positions() {
    let case = case();
    let json: Value =
        serde_json::from_str(&succeed(&mut case.generate(&"the ".repeat(62), &["--raw", "--max-tokens", "9"])))
            .unwrap();
    assert_eq!((ids(&json, "prompt_ids").len(), ids(&json, "ids").len()), (62, 2));
    let message = fail(&mut case.generate(&"the ".repeat(64), &["--raw", "--max-tokens", "1"]), 2);
    assert!(message.contains("--prompt is 64 tokens, and the model takes 64 with its answer: shorten it"), "{message}");
}

#[test]
fn a_prompt_that_cannot_be_read_is_refused() {
    let case = case();
    let long = "the ".repeat(70);
    assert!(fail(&mut case.generate(&long, &["--raw"]), 2).contains("--prompt is 70 tokens, and the model takes 64"));
    assert!(fail(&mut case.generate("", &["--raw"]), 2).contains("--prompt has no token to go on from"));
    fs::remove_file(case.student.join("tokenizer.json")).unwrap();
    assert!(fail(&mut case.generate("the", &["--raw"]), 5).contains("has no tokenizer.json"));
}

/// Rows of prompts of every kind, completed into rows of data.
mod of_data {
    use std::path::{Path, PathBuf};

    use std::os::unix::process::ExitStatusExt;

    use super::*;
    use crate::driver::{Machine, machine, sm_121};
    use crate::support::{has_driver, is_sim, lacks_compiler, names_in, skipped, tiny_config, train};

    const CHATS: &str = r#"{"messages": [{"role": "user", "content": "the cat"}, {"role": "assistant", "content": "sat"}]}
{"messages": [{"role": "user", "content": "on the mat again"}]}
"#;
    const IDS: &str = "{\"input_ids\": [1, 2, 3, 4, 5], \"labels\": [-100, -100, -100, 4, 5]}\n{\"input_ids\": [7, 8], \"labels\": [-100, -100]}\n";

    impl Case {
        fn completes(&self, data: &Path, out: &str, arguments: &[&str]) -> Command {
            let mut command = precast();
            command.args(["generate", "--model"]).arg(&self.student).arg("--data").arg(data);
            command.arg("--out").arg(self.path(out)).args(on_device()).args(arguments);
            command
        }

        fn prompts(&self, name: &str, text: &str) -> PathBuf {
            fs::write(self.path(name), text).unwrap();
            self.path(name)
        }

        fn rows(&self, name: &str) -> Vec<Value> {
            let text = fs::read_to_string(self.path(name)).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        }
    }

    fn case_with_template() -> Case {
        let case = case();
        let template =
            "{% for m in messages %}<u> {{ m.content }} <e> {% endfor %}{% if add_generation_prompt %}<a>{% endif %}";
        fs::write(case.student.join("chat_template.jinja"), template).unwrap();
        case
    }

    #[test]
    fn each_kind_of_row_is_a_prompt_and_completions_are_data_again() {
        let case = case_with_template();
        let kinds = [
            ("text.jsonl", "{\"text\": \"the cat\"}\n{\"text\": \"sat on the mat\"}\n", [2, 4]),
            (
                "prompt.jsonl",
                "{\"prompt\": \"the cat sat\"}\n{\"prompt\": [{\"role\": \"user\", \"content\": \"on\"}]}\n",
                [3, 4],
            ),
            (
                "pairs.jsonl",
                "{\"prompt\": \"the\", \"completion\": \"cat\"}\n{\"prompt\": \"sat on\", \"completion\": \"\"}\n",
                [1, 2],
            ),
            ("chats.jsonl", CHATS, [5, 7]),
            ("ids.jsonl", IDS, [3, 2]),
        ];
        for (name, text, prompts) in kinds {
            let out = format!("of-{name}");
            succeed(&mut case.completes(&case.prompts(name, text), &out, &["--max-tokens", "4"]));
            let rows = case.rows(&out);
            assert_eq!(rows.len(), 2, "{name}");
            for (row, prompt) in rows.iter().zip(prompts) {
                let labels: Vec<i64> =
                    row["labels"].as_array().unwrap().iter().map(|label| label.as_i64().unwrap()).collect();
                let masked = labels.iter().take_while(|label| **label == -100).count();
                assert_eq!((masked, labels.len()), (prompt, prompt + 4), "{name}: {row}");
                assert_eq!(ids(row, "input_ids").len(), labels.len());
            }
        }
        let mut run = train(&case.student, &case.path("of-chats.jsonl"), &case.path("run"));
        succeed(run.args(["--steps", "1", "--batch-size", "2", "--seq-len", "16", "--precision", "fp32"]));
    }

    /// Sampled by temperature: neighbors, slots and interruptions change no byte.
    #[test]
    fn completions_do_not_depend_on_slots_groups_or_interruptions() {
        let case = case();
        let text: String = (0..9).map(|row| format!("{{\"input_ids\": [{row}, {}]}}\n", 2 * row + 1)).collect();
        let data = case.prompts("prompts.jsonl", &text);
        let how = ["--max-tokens", "40", "--group-size", "2", "--seed", "7", "--top-k", "50", "--top-p", "0.9"];
        let bytes = |out: &str, more: &[&str]| {
            succeed(&mut case.completes(&data, out, &[&how[..], more].concat()));
            fs::read(case.path(out)).unwrap()
        };
        let whole = bytes("whole.jsonl", &[]);
        let rows = case.rows("whole.jsonl");
        assert_eq!(rows.len(), 18);
        assert_ne!(rows[0]["input_ids"], rows[1]["input_ids"], "members of a group are draws of their own");
        assert_eq!(whole, bytes("one.jsonl", &["--slots", "1"]));
        assert_eq!(whole, bytes("seven.jsonl", &["--slots", "7"]));
        for kept in [0, whole.len() / 3, whole.len() - 1] {
            fs::write(case.path("seven.jsonl"), &whole[..kept]).unwrap();
            assert_eq!(whole, bytes("seven.jsonl", &["--resume"]), "{kept}");
        }
        assert_ne!(whole, bytes("other.jsonl", &["--seed", "8"]));
    }

    #[test]
    fn what_cannot_be_completed_is_refused_by_name() {
        let case = case();
        let ids = case.prompts("ids.jsonl", IDS);
        let refused = |data: &Path, arguments: &[&str], code| {
            let message = fail(&mut case.completes(data, "out.jsonl", arguments), code);
            assert!(!case.path("out.jsonl").exists(), "{message}");
            message.replace(&case.dir.path().display().to_string(), "DIR")
        };
        assert!(
            refused(&ids, &["--gemm", "cublas"], 2).contains("--gemm cublas: a row of cuBLASLt's GEMMs has other bits")
        );
        assert!(refused(&ids, &["--seq-len", "3"], 5).contains("DIR/ids.jsonl:1: a prompt of 3 tokens leaves no room"));
        let beyond = case.prompts("beyond.jsonl", "{\"input_ids\": [1]}\n{\"input_ids\": [1, 96]}\n");
        assert!(refused(&beyond, &[], 5).contains("DIR/beyond.jsonl:2: input_ids[1] is 96"));
        let ids_alone = case.prompts("beyond.bin", "\u{1}\0\0\0`\0\0\0");
        let said = "DIR/beyond.bin: token 1 has id 96, the model's vocabulary ends at 96";
        assert!(refused(&ids_alone, &["--prompt-tokens", "2"], 5).contains(said));
        let empty = case.prompts("empty.jsonl", "{\"input_ids\": [5], \"labels\": [5]}\n");
        assert!(refused(&empty, &[], 5).contains("DIR/empty.jsonl:1: a prompt of no tokens"));
        let text = case.prompts("story.txt", "the cat sat on the mat");
        assert!(refused(&text, &[], 5).contains("give --prompt-tokens N"));
        assert!(refused(&ids, &["--sampling-temperature", "0", "--top-k", "4"], 2).contains("the likeliest is taken"));
        for (option, value) in [
            ("--top-p", "0"),
            ("--top-p", "1.5"),
            ("--top-k", "0"),
            ("--sampling-temperature", "-1"),
            ("--sampling-temperature", "inf"),
        ] {
            assert!(refused(&ids, &[&format!("{option}={value}")], 2).contains(option), "{option} {value}");
        }
        succeed(&mut case.completes(&text, "of-text.jsonl", &["--prompt-tokens", "2", "--max-tokens", "2"]));
        assert_eq!(case.rows("of-text.jsonl").len(), 3);
        let there = fail(&mut case.completes(&ids, "of-text.jsonl", &[]), 2);
        assert!(there.contains("--resume continues it"), "{there}");
        let other = fail(&mut case.completes(&ids, "of-text.jsonl", &["--resume"]), 2);
        assert!(other.contains("is of another generation"), "{other}");
        fs::write(case.student.join("generation_config.json"), "{\"eos_token_id\": 57}").unwrap();
        let more = ["--prompt-tokens", "2", "--max-tokens", "2", "--resume"];
        let stops = fail(&mut case.completes(&text, "of-text.jsonl", &more), 2);
        assert!(stops.contains("\n  stops was []"), "{stops}");
        let inside = case.path("inside");
        fs::create_dir(&inside).unwrap();
        fs::copy(&ids, inside.join("ids.jsonl")).unwrap();
        fs::write(inside.join("README.md"), "none of it").unwrap();
        fs::write(inside.join("empty.jsonl"), "").unwrap();
        let within = fail(&mut case.completes(&inside, "inside/out.jsonl", &[]), 2);
        assert!(within.contains("where it would be read as prompts"), "{within}");
        let directory = fail(&mut case.completes(&ids, "inside", &[]), 2);
        assert!(directory.contains("is a directory: name a file in it"), "{directory}");
        let output = case.completes(&inside, "of-inside.jsonl", &["--max-tokens", "2"]).output().unwrap();
        let (_, stderr) = texts(&output);
        assert!(output.status.success() && stderr.contains("README.md"), "{stderr}");
        assert!(refused(&ids, &["--json"], 2).contains("--json prints the answer to --prompt"));
        assert!(refused(&ids, &["--prompt-tokens", "2"], 2).contains("--data has none"));
    }

    /// Prompts of one token to eight, and a model of one layer.
    fn many(prompts: u32) -> (Case, PathBuf) {
        many_of(prompts, 64)
    }

    fn many_of(prompts: u32, positions: u32) -> (Case, PathBuf) {
        let config = tiny_config(&[("num_hidden_layers", 1.into()), ("max_position_embeddings", positions.into())]);
        let case = Case::of([&config, &config], 0);
        let row = |row: u32| {
            let ids: Vec<u32> = (0..=row % 8).map(|at| (7 * row + at) % 96).collect();
            format!("{{\"input_ids\": {ids:?}}}\n")
        };
        let data = case.prompts("prompts.jsonl", &(0..prompts).map(row).collect::<String>());
        (case, data)
    }

    /// The phases of 64 to 512 rows, each with more completions than slots.
    #[test]
    fn completions_are_the_same_with_every_number_of_rows() {
        let (case, data) = many(52);
        let bytes = |slots: &str| {
            let how = ["--group-size", "10", "--max-tokens", "6", "--slots", slots];
            succeed(&mut case.completes(&data, slots, &how));
            fs::read(case.path(slots)).unwrap()
        };
        let whole = bytes("512");
        assert_eq!(case.rows("512").len(), 520);
        for slots in ["64", "128", "256"] {
            assert!(bytes(slots) == whole, "{slots} slots");
        }
    }

    #[test]
    fn greedy_completions_do_not_depend_on_the_order_of_prompts() {
        let (case, data) = many(9);
        let lines = fs::read_to_string(&data).unwrap();
        let back: String = lines.lines().rev().flat_map(|line| [line, "\n"]).collect();
        let back = case.prompts("back.jsonl", &back);
        for (data, out) in [(&data, "forth"), (&back, "back")] {
            let how = ["--sampling-temperature", "0", "--max-tokens", "40", "--slots", "2"];
            succeed(&mut case.completes(data, out, &how));
        }
        let (forth, mut back) = (case.rows("forth"), case.rows("back"));
        back.reverse();
        assert_eq!(forth, back);
    }

    /// Killed at each change to the disk, from the first to the last, and continued.
    #[test]
    fn a_generation_killed_at_any_change_to_the_disk_continues_to_the_same_bytes() {
        let (case, data) = many(5);
        let run = |out: &str, more: &[&str]| {
            case.completes(&data, out, &[&["--max-tokens", "3", "--slots", "2"], more].concat())
        };
        succeed(&mut run("whole.jsonl", &[]));
        let whole = fs::read(case.path("whole.jsonl")).unwrap();
        for at in 1.. {
            let output = run("out.jsonl", &[]).env("PRECAST_KILL_AT", at.to_string()).output().unwrap();
            if output.status.success() {
                return assert!(at > 8, "{at}");
            }
            assert_eq!(output.status.signal(), Some(9), "change {at}: {output:?}");
            let begun = case.path(".out.jsonl.header").exists();
            succeed(&mut run("out.jsonl", if begun { &["--resume"] } else { &[] }));
            assert!(fs::read(case.path("out.jsonl")).unwrap() == whole, "change {at}");
            let left: Vec<String> =
                names_in(case.dir.path()).into_iter().filter(|name| name.contains("out.jsonl")).collect();
            assert_eq!(left, [".out.jsonl.header", "out.jsonl"], "change {at}");
            left.iter().for_each(|name| fs::remove_file(case.path(name)).unwrap());
        }
    }

    /// A generation on a machine of the test's own, whose kernels are their references.
    fn on(machine: &Machine, case: &Case, data: &Path, arguments: &[&str]) -> Command {
        let bundle = sm_121(machine.path());
        let mut command = precast();
        command.args(["generate", "--device", "cuda:0", "--model"]).arg(&case.student).arg("--data").arg(data);
        command.arg("--out").arg(case.path("on.jsonl")).arg("--bundle").arg(&bundle).args(arguments);
        let kernels = std::env::current_exe().unwrap().with_file_name("libprecast_libcuda.so");
        command.env("PRECAST_FAKE_KERNELS", kernels).env("PRECAST_FAKE_BUNDLE", bundle);
        command.env("PRECAST_LIBCUDA_LOG", machine.path().join("log"));
        machine.run(&mut command)
    }

    /// As the driver sees it, which poisons a context that loads late.
    #[test]
    fn nothing_is_loaded_or_allocated_once_a_token_is_computed() {
        if has_driver() || lacks_compiler() {
            return;
        }
        let gb10 = machine(&[("PRECAST_FAKE_LOG_MEMORY", "1")]);
        let (case, data) = many(70);
        let how = ["--max-tokens", "34", "--slots", "65"];
        succeed(&mut on(&gb10, &case, &data, &how));
        let calls = fs::read_to_string(gb10.path().join("log")).unwrap();
        let calls: Vec<&str> = calls.lines().collect();
        let first = calls.iter().position(|call| *call == "launch").unwrap();
        let taken = |calls: &[&str]| {
            calls.iter().filter(|call| ["load", "alloc"].iter().any(|of| call.starts_with(of))).count()
        };
        assert!(taken(&calls[..first]) > 10 && taken(&calls[first..]) == 0, "{calls:?}");
        assert!(calls[first..].iter().filter(|call| **call == "launch").count() > 34 * 2);
        succeed(&mut case.completes(&data, "sim.jsonl", &how));
        assert!(fs::read(case.path("on.jsonl")).unwrap() == fs::read(case.path("sim.jsonl")).unwrap());
    }

    #[test]
    fn slots_that_do_not_fit_are_refused_with_the_most_that_do() {
        if has_driver() || lacks_compiler() {
            return;
        }
        let card = machine(&[("PRECAST_FAKE_INTEGRATED", "0"), ("PRECAST_FAKE_FREE_MIB", "100")]);
        let (case, data) = many_of(9, 2048);
        let how = ["--max-tokens", "1500", "--group-size", "60"];
        let message = fail(&mut on(&card, &case, &data, &[&how[..], &["--slots", "512"]].concat()), 4);
        assert!(message.contains("512 slots of 1508 tokens do not fit; --slots 64 does: the plan takes "), "{message}");
        assert!(message.contains(" bytes of device memory and ") && message.contains("keys and values"), "{message}");
        assert!(!case.path("on.jsonl").exists());
        succeed(&mut on(&card, &case, &data, &[&how[..], &["--slots", "64", "--max-tokens", "1"]].concat()));
    }

    #[test]
    fn a_rank_of_several_writes_nothing() {
        if skipped(!is_sim(), "it is of simulated GPUs") {
            return;
        }
        let (case, data) = many(2);
        let mut rank = case.completes(&data, "out.jsonl", &[]);
        rank.envs([("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "1")]);
        let message = fail(&mut rank, 2);
        assert!(message.contains("torchrun has started 2 ranks, and generate is one process on one GPU"), "{message}");
        assert!(!case.path("out.jsonl").exists());
        succeed(rank.env("RANK", "0").env("WORLD_SIZE", "1").args(["--max-tokens", "1"]));
    }

    #[test]
    fn what_ends_no_text_and_logits_that_are_no_numbers_are_said() {
        let mut case = case();
        let data = case.prompts("ids.jsonl", IDS);
        let note = "names no token that ends a text: --max-tokens ends each completion";
        for mut command in
            [case.completes(&data, "out.jsonl", &["--max-tokens", "1"]), case.generate("the", &["--raw"])]
        {
            let (_, stderr) = texts(&command.output().unwrap());
            assert_eq!(stderr.matches(note).count(), 1, "{stderr}");
        }
        let tensor = "model.layers.0.input_layernorm.weight";
        case.student = planted(case.dir.path(), &case.student, "broken", tensor, 0, f32::MAX);
        let message = fail(&mut case.completes(&data, "broken.jsonl", &["--group-size", "2"]), 1);
        assert!(message.contains("sequence 0 at position 3: a logit is not finite"), "{message}");
        assert!(fs::read(case.path("broken.jsonl")).unwrap().is_empty());
    }
}

/// A plan and a benchmark of generations take the memory that they take.
#[test]
fn a_generation_is_planned_and_measured() {
    let dir = tempfile::tempdir().unwrap();
    let (model, out) = (dir.path().join("tiny.json"), dir.path().join("bench"));
    fs::write(&model, crate::support::tiny_config(&[]).to_string()).unwrap();
    let command = |name: &str, arguments: &[&str]| {
        let mut command = precast();
        command.args([name, "--generate", "--model"]).arg(&model).args(on_device()).args(arguments);
        command
    };
    let shape = ["--slots", "66", "--prompt-tokens", "3", "--max-tokens", "9"];
    let json = |name: &str, arguments: &[&str]| -> Value {
        serde_json::from_str(&succeed(command(name, arguments).arg("--json"))).unwrap()
    };
    let planned = json("plan", &["--slots", "66", "--seq-len", "12"]);
    let measured = json("bench", &[&shape[..], &["--out", out.to_str().unwrap()]].concat());
    assert_eq!(planned["memory"], measured["memory"]["planned"]);
    let rows: Vec<u64> =
        measured["steps"].as_array().unwrap().iter().map(|step| step["rows"].as_u64().unwrap()).collect();
    assert_eq!(rows, [8, 64, 66]);
    assert_eq!(measured["generation"]["new_tokens"], 66 * 9);
    let launches =
        |json: &Value| json.as_array().unwrap().iter().map(|kernel| kernel["launches"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(launches(&measured["kernels"]), planned["steps"][1]["launches"].as_u64().unwrap());
    assert!(fs::read_to_string(out.join("report.html")).unwrap().contains("new tokens"));
    let printed = succeed(&mut command("bench", &shape));
    assert!(printed.contains("steps half-way through the slots") && printed.contains("keys and values"), "{printed}");
    for (name, arguments, said) in [
        ("bench", &["--max-tokens", "62", "--prompt-tokens", "3"][..], "are 65 tokens: the model takes 64"),
        ("bench", &["--seq-len", "8"], "with --generate it is the sum of --prompt-tokens and --max-tokens"),
        ("bench", &["--steps", "8"], "cannot be used with"),
        ("plan", &["--lora-rank", "2"], "--lora-rank does not go with --generate"),
        ("plan", &["--precision", "int8"], "give --format int8"),
        ("plan", &["--gemm", "cublas"], "--gemm cublas: a row of cuBLASLt's GEMMs has other bits"),
    ] {
        let message = fail(&mut command(name, arguments), 2);
        assert!(message.contains(said), "{message}");
    }
}
