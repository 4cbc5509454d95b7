//! `precast cache --keep-logits`: the most likely tokens of a teacher in place of its hidden states.

use crate::support::Texts;
use crate::support::prelude::*;
use crate::teacher_cache::{case_of_masked_rows, contents_of, fill};
use crate::teacher_cache_filled::least_memory;

/// The tokens of the case's models.
const VOCAB: usize = 96;

/// Models of one layer, of a teacher that is not its student.
fn case() -> Case {
    Case::of_layers(1, 17 * 4)
}

/// Returns the mean divergences of the first steps.
fn divergences(case: &Case, out: &str, words: impl Texts) -> Vec<f64> {
    let said = case.distill(out, words).with("--checkpoint-every 0 --overwrite").succeeds();
    // Of tokens that are not kept nobody has the logits.
    assert!(said.contains("step 1/") && !said.contains("teacher, on the first batch"), "{said}");
    case.metrics(out).iter().map(|row| row.kd_loss.unwrap()).collect()
}

/// With all tokens but one kept, the rest is that one: the divergence over all tokens, whatever its form.
#[test]
fn all_tokens_but_one_give_the_divergence_of_all() {
    let case = case();
    for (index, options) in
        ["--temperature 2", "--temperature 1 --beta 1", "--temperature 1.5 --beta 0.4"].into_iter().enumerate()
    {
        let run = format!("--precision fp32 --steps 3 {options}");
        let temperature = options.split(' ').nth(1).unwrap();
        let keep = ["--precision fp32 --keep-logits 95 --temperature", temperature, "--student student"].join(" ");
        let cache = format!("cache-{index}");
        fill(&case, &cache, keep).succeeds();
        case.distill("online", [&*run, "--checkpoint-every 0 --overwrite"]).succeeds();
        let online: Vec<f64> = case.metrics("online").iter().map(|row| row.kd_loss.unwrap()).collect();
        let compact = divergences(&case, "compact", format!("--teacher-cache {cache} {run}"));
        for (a, b) in online.iter().zip(&compact) {
            assert!((a - b).abs() < 1e-5 * a, "{options}: {online:?} {compact:?}");
        }
        assert_eq!((online.len(), compact.len()), (3, 3));
    }
}

/// Fewer tokens tell less: the divergence of the first step falls with them. Rows are of ids, most likely first, and
/// log-probabilities.
#[test]
fn fewer_tokens_are_less_on_disk_and_a_coarser_divergence() {
    let case = case();
    let mut before = f64::INFINITY;
    for keep in [95, 16, 1] {
        let cache = format!("cache-{keep}");
        let words = format!("--keep-logits {keep} --student student --json");
        let filled = fill(&case, &cache, words).json();
        let (row, rows) = (8 * keep + 4, filled["rows"].as_u64().unwrap());
        assert_eq!((&filled["hidden_bytes"], &filled["compact"]["keep_logits"]), (&json!(row * rows), &json!(keep)));
        let hidden = case.read(format!("{cache}/hidden.bin"));
        for row in hidden.chunks(row as usize) {
            let (ids, log_probs) = row.split_at(4 * keep as usize);
            let ids: Vec<u32> = ids.as_chunks::<4>().0.iter().map(|id| u32::from_le_bytes(*id)).collect();
            let logs: Vec<f32> = log_probs.as_chunks::<4>().0.iter().map(|log| f32::from_le_bytes(*log)).collect();
            assert!(
                ids.iter().collect::<std::collections::HashSet<_>>().len() == ids.len()
                    && ids.iter().all(|id| *id < VOCAB as u32)
            );
            assert!(logs[..ids.len()].is_sorted_by(|a, b| a >= b), "{logs:?}");
            let total: f32 = logs.iter().map(|log| log.exp()).sum();
            assert!((total - 1.0).abs() < 1e-5, "{total}");
        }
        let first = divergences(&case, "run", format!("--teacher-cache {cache} --steps 1"))[0];
        assert!(0.0 < first && first < before, "{keep}: {first} {before}");
        before = first;
        assert!(
            case.record("run")["teacher_cache"]["compact"].is_object()
                && case.has(&format!("{cache}/teacher/config.json"))
        );
    }
}

#[test]
fn a_swept_teacher_fills_the_same_compact_cache() {
    let case = Case::of_layers(3, 17 * 8);
    let words = "--keep-logits 5 --temperature 1 --student student";
    fill(&case, "whole", words).succeeds();
    let [_, said] = fill(&case, "swept", [words, &format!("--memory {}", least_memory(&case, words))]).says();
    assert!(said.contains("it is swept through"), "{said}");
    assert!(contents_of(&case, "whole") == contents_of(&case, "swept"));
}

/// Each refusal names what differs, before anything is written.
#[test]
fn a_compact_cache_of_other_runs_is_refused() {
    let case = case();
    fill(&case, "cache", "--keep-logits 5 --temperature 1 --student student").succeeds();
    let run = |words: &str| case.distill("run", ["--teacher-cache cache --steps 1", words]);
    let said = run("").fails(2, "was made with --temperature 1, and this run uses 2: give --temperature 1");
    assert!(said.contains("--temperature 2 --keep-logits 5 --student STUDENT --out CACHE"), "{said}");
    let manifest = case.text("cache/cache.json");
    case.write("cache/cache.json", manifest.replace("\"student_vocab\": 96", "\"student_vocab\": 95"));
    let plan = "plan --arch sim --teacher-cache cache --student student --seq-len 16 --temperature 1";
    case.run(plan).fails(2, "keeps probabilities of 95 tokens");
    run("--temperature 1")
        .fails(2, "keeps probabilities of 95 tokens, and the student chooses among 96: make a cache for it");
    case.write("cache/cache.json", &manifest);
    run("--temperature 1").succeeds();
    fill(&case, "cache", "--keep-logits 6 --temperature 1 --student student").fails(2, "is a complete teacher cache");
    fill(&case, "none", "--keep-logits 96 --student student")
        .fails(2, "96 probabilities a token are not between 1 and 95");
    fill(&case, "none", "--keep-logits 5").fails(2, "--student");
    let said = fill(&case, "none", "--temperature 1").fails(2, "Give --keep-logits, or leave --temperature out");
    assert!(!said.contains("--from"), "{said}");
    assert!(!case.has("none"));
}

/// Rows of which some tokens count, filled by two GPUs as by one, and read by adapters and by an int8 student that go
/// on.
#[test]
fn masked_rows_fill_a_compact_cache_for_every_student() {
    skip_if!(is_on_gpu());
    let case = case_of_masked_rows();
    let words = "--keep-logits 5 --temperature 1 --student student --eval-data rows.jsonl";
    fill(&case, "one", words).succeeds();
    fill(&case, "cache", [words, "--gpus 2"]).succeeds();
    assert!(contents_of(&case, "one") == contents_of(&case, "cache"));
    for options in ["--lora-rank 4 --beta 0.5", "--precision int8 --guard-every 1"] {
        let run = |out: &str, more: &str| {
            let cache = "--teacher-cache cache --temperature 1 --eval-data rows.jsonl";
            case.distill(out, [cache, options, more]).succeeds();
        };
        run("whole", "--steps 4 --checkpoint-every 2 --overwrite");
        run("parts", "--steps 2 --checkpoint-every 2 --overwrite");
        run("parts", "--steps 4 --checkpoint-every 2 --resume");
        assert!(case.results("whole") == case.results("parts"), "{options}");
        let held_out = |out: &str| case.metrics(out).into_iter().rev().find_map(|step| step.held_out);
        assert!(held_out("whole").is_some() && held_out("whole") == held_out("parts"), "{options}");
    }
}
