//! `precast distill --teacher-cache`: the bits of a teacher that is computed in the run.

use precast_kernels::Block;
use precast_plan::Formats;

use crate::gguf;
use crate::support::Texts;
use crate::support::prelude::*;

/// `precast cache` of the case's teacher on its data, of 16 tokens a sequence, unless the words name others.
pub fn fill(case: &Case, out: &str, words: impl Texts) -> Command {
    let (teacher, data) = (case.teacher.display().to_string(), case.data.display().to_string());
    let mut line = vec!["cache", "--out", out];
    let words = words.words();
    for (flag, value) in [("--teacher", &*teacher), ("--data", &data), ("--seq-len", "16"), ("--batch-size", "3")] {
        if !words.contains(&flag) {
            line.extend([flag, value]);
        }
    }
    line.extend(words);
    case.run(line)
}

/// Runs a distillation online and from `cache`, and compares their bits.
fn same_bits(case: &Case, words: &str) {
    case.distill("online", [words, "--overwrite"]).succeeds();
    same_bits_as_online(case, &[words]);
}

/// Runs a distillation from `cache`, again and again where it is continued, and compares its bits with those of
/// `online`.
fn same_bits_as_online(case: &Case, parts: &[&str]) {
    for (index, words) in parts.iter().enumerate() {
        let start = if index == 0 { "--overwrite" } else { "--resume" };
        case.distill("cached", ["--teacher-cache cache", words, start]).succeeds();
    }
    let steps = case.metrics("cached").len();
    assert!(steps > 1 && case.bits("online") == case.bits("cached"), "{parts:?}");
    assert!(case.results("online") == case.results("cached"), "{parts:?}");
    let score = ["online", "cached"].map(|out| case.record(out)["teacher_score"].clone());
    assert!(score[0].is_object() && score[0] == score[1], "{score:?}");
}

#[test]
fn a_cached_teacher_gives_the_bits_of_an_online_one() {
    for name in ["made-qwen2", "made-llama3", "made-qwen3"] {
        let mut case = Case::golden(name);
        case.data = token_file(case.dir.path(), "data.bin", 17 * 4, 96);
        for (precision, own) in [("fp32", "fp32"), ("bf16", "bf16"), ("int8", "bf16")] {
            if precision != "int8" {
                let _ = fs::remove_dir_all(case.path("cache"));
                fill(&case, "cache", ["--precision", own]).succeeds();
            }
            same_bits(&case, &format!("--steps 2 --checkpoint-every 0 --precision {precision}"));
        }
    }
}

/// Models of one layer, and rows of which some tokens count: in one none does, and two are the same.
pub fn case_of_masked_rows() -> Case {
    let mut case = Case::of_layers(1, 17 * 4);
    let row = |row: u32| {
        let ids: Vec<u32> = (0..6 + row).map(|at| (7 * row + 5 * at + at * at) % 96).collect();
        masked_row(&ids, |at| row != 3 && at > 0 && !(at + row as usize).is_multiple_of(3))
    };
    case.data = case.write("rows.jsonl", (0..9).chain([4]).map(row).collect::<String>());
    case
}

#[test]
fn adapters_learn_masked_rows_with_the_same_bits() {
    let case = case_of_masked_rows();
    fill(&case, "cache", "").succeeds();
    same_bits(&case, "--steps 4 --checkpoint-every 0 --lora-rank 4 --beta 0.5 --grad-accum 2 --recompute blocks");
}

#[test]
fn two_gpus_read_the_rows_of_their_replicas() {
    skip_if!(is_on_gpu());
    let case = case_of_masked_rows();
    fill(&case, "cache", "").succeeds();
    let how = "--steps 4 --checkpoint-every 0 --beta 1 --replicas 2 --shuffle true --shuffle-window 4";
    same_bits(&case, how);
    same_bits_as_online(&case, &[&format!("{how} --gpus 2")]);
}

/// The cache was filled with other shares, in another order.
#[test]
fn a_mixture_has_the_same_bits_over_two_passes() {
    let case = case_of_masked_rows();
    token_file(case.dir.path(), "held-out.bin", 17 * 3, 90);
    fill(&case, "cache", "--data rows.jsonl=0.2 --data data.bin=0.8 --eval-data held-out.bin").succeeds();
    let mixture = "--data data.bin=0.5 --data rows.jsonl=0.5 --eval-data held-out.bin --eval-every 2";
    same_bits(&case, &format!("{mixture} --steps 20 --checkpoint-every 0"));
    let of_held_out = |out: &str| case.metrics(out).iter().filter_map(|step| step.held_out.clone()).collect::<Vec<_>>();
    assert!(of_held_out("cached").len() == 10 && of_held_out("cached") == of_held_out("online"));
}

#[test]
fn a_run_that_resumes_from_its_cache_has_the_same_bits() {
    let case = case_of_masked_rows();
    fill(&case, "cache", "--precision fp32").succeeds();
    let how = "--precision fp32 --shuffle true --checkpoint-every 1 --steps";
    case.distill("online", [how, "5"]).succeeds();
    same_bits_as_online(&case, &["2", "5"].map(|steps| format!("{how} {steps}")).each());
}

/// The teacher knows more tokens than the student; its cache is the same whether its weights stay as they are stored.
#[test]
fn a_wider_teacher_of_a_gguf_file_has_the_same_bits() {
    let mut case = Case::new(17 * 4);
    let config = shape(&{
        let mut config = model_config("blocks");
        config["num_hidden_layers"] = 1.into();
        config
    });
    case.teacher = gguf::write(case.dir.path(), "teacher.gguf", &config, &Formats::uniform(&config, Block::Q4_K), 3);
    for form in ["stored", "bf16"] {
        fill(&case, form, ["--student student --teacher-format", form]).succeeds();
    }
    assert!(contents_of(&case, "stored") == contents_of(&case, "bf16"));
    fs::rename(case.path("stored"), case.path("cache")).unwrap();
    case.distill("online", "--steps 2 --checkpoint-every 0 --teacher-format stored").succeeds();
    same_bits_as_online(&case, &["--steps 2 --checkpoint-every 0"]);
}

/// The files of a cache, by name.
pub fn contents_of(case: &Case, cache: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = case.path(cache);
    contents(&dir).into_iter().map(|(path, bytes)| (path.strip_prefix(&dir).unwrap().to_owned(), bytes)).collect()
}

/// A dry run says what is taken of disk and device, and writes nothing.
#[test]
fn a_dry_run_says_what_a_cache_takes_and_writes_nothing() {
    let case = Case::new(17 * 4);
    let forecast = fill(&case, "cache", "--dry-run --json").json();
    assert!(!case.has("cache"));
    let filled = fill(&case, "cache", "--json").json();
    for name in ["sequences", "rows"] {
        assert!(forecast[name] == filled[name] && forecast[name].as_u64() > Some(0), "{forecast} {filled}");
    }
    let files = ["hidden.bin", "index.bin"].map(|name| case.read(format!("cache/{name}")).len() as u64);
    // The head has the teacher's tied embedding, of 96 tokens and 32 columns.
    assert_eq!(forecast["disk_bytes"], files.iter().sum::<u64>() + 2 * 96 * 32);
    assert!(forecast["memory"].is_object(), "{forecast}");
}

/// Kernels of another architecture may give other bits: a run that reads what they gave says so, and its record has it.
#[test]
fn a_cache_of_another_architecture_is_read_with_a_note() {
    let case = Case::new(17 * 4);
    fill(&case, "cache", "").succeeds();
    let run = |out: &str| case.distill(out, "--teacher-cache cache --steps 2 --checkpoint-every 0").says();
    let said = "cache was filled by kernels of sm_80, and this run launches those of ";
    let [_, own] = run("own");
    assert!(!own.contains("was filled by kernels"), "{own}");
    let arch = case.json("cache/cache.json")["arch"].as_str().unwrap().to_owned();
    case.write("cache/cache.json", case.text("cache/cache.json").replace(&format!("\"{arch}\""), "\"sm_80\""));
    let [_, other] = run("other");
    assert!(other.contains(said), "{other}");
    assert!(case.record("other")["notes"].to_string().contains(said));
}
