//! Rows end to end: each has the bits that it has alone, whatever fills a cache, whoever computes and however often a
//! run is stopped.

use crate::ranks::assert_same;
use crate::support::prelude::*;
use crate::teacher_cache::{contents_of, fill};
use crate::teacher_cache_filled::least_memory;

/// The golden case of rows, of at most as many tokens as its sequences take.
fn case() -> Case {
    let mut case = Case::golden("made-packed");
    case.data = case.path("golden/rows.jsonl");
    case
}

const SHAPE: &str = "--batch-size 2 --seq-len 64 --lr 1e-2";

/// The sum over tokens, each a sum of its row alone: one bit of one logit would show.
#[test]
fn a_row_scores_the_same_beside_any_others() {
    let case = case();
    let student = case.student.display().to_string();
    let data = case.data.display().to_string();
    let score = |precision: &str, batch: &str| {
        let line = ["eval", "--model", &student, "--data", &data, "--precision", precision, "--batch-size", batch];
        let printed = case.run([&line[..], &["--untrained", "--json"]].concat()).succeeds();
        let value: serde_json::Value = serde_json::from_str(&printed).expect("a score");
        (value["nll"].to_string(), value["perplexity"].to_string(), value["tokens"].to_string())
    };
    for precision in ["fp32", "bf16"] {
        let alone = score(precision, "1");
        assert!(["2", "5", "64"].iter().all(|batch| score(precision, batch) == alone), "{precision}: {alone:?}");
    }
}

/// A cache is of rows, wherever they were computed and are read: end to end, alone, and by a sweep of two blocks, each
/// of other sequences.
#[test]
fn a_cache_serves_rows_in_any_place() {
    let case = case();
    let words = "--precision bf16 --seq-len 64 --batch-size";
    let of = |case: &Case, out: &str, more: &str| {
        fill(case, out, [words, more]).succeeds();
        contents_of(case, out)
    };
    let cache = of(&case, "cache", "3");
    assert!(["1", "40"].iter().all(|batch| of(&case, batch, batch) == cache));
    let least = least_memory(&case, &format!("{words} 2"));
    let swept = format!("2 --memory {} --spill 1GiB", least + 2 * 64 * 2 * 128 + 4096);
    assert!(of(&case, "swept", &swept) == cache);
    for packing in ["rows", "none"] {
        let words = format!("{SHAPE} --steps 3 --checkpoint-every 0 --packing {packing}");
        case.distill("online", [&*words, "--overwrite"]).succeeds();
        case.distill("cached", ["--teacher-cache cache", &words, "--overwrite"]).succeeds();
        assert!(case.bits("online") == case.bits("cached"), "{packing}");
    }
}

/// Ranks take whole micro-batches of what is packed.
#[test]
fn rows_give_the_same_bits_on_one_two_and_four() {
    skip_if!(is_on_gpu());
    let case = case();
    let run =
        |out: &str, arguments: &str| case.distill(out, [SHAPE, "--packing rows --replicas 4 --steps 3", arguments]);
    run("one", "").succeeds();
    for count in ["2", "4"] {
        run(count, &format!("--gpus {count}")).succeeds();
        assert_same(&case.path(count), &case.path("one"), count);
    }
}

/// The row that did not fit into the last micro-batch before a checkpoint is the first of the next one.
#[test]
fn a_packed_run_continues_to_the_same_bits() {
    let case = case();
    let run = |out: &str, arguments: &str| {
        let how = [SHAPE, "--grad-accum 2 --shuffle true --seed 3 --steps", arguments];
        case.distill(out, how).succeeds();
    };
    run("whole", "6");
    for steps in ["1", "3", "4", "6"] {
        run("parts", &format!("{steps}{}", if steps == "1" { "" } else { " --resume" }));
    }
    assert!(case.bits("whole") == case.bits("parts"));
    let shares: Vec<f64> = case.metrics("whole").iter().filter_map(|step| step.padding_share).collect();
    assert!(shares.len() == 6 && shares.iter().all(|share| *share < 0.5), "{shares:?}");
}
