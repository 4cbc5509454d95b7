//! Rows of token ids with labels: what counts, and what is wrong with a row.

use std::collections::BTreeSet;

use precast::inputs::data::{Chunk, MicroBatch};
use precast_kernels::abi::MASKED_TOKEN;

use crate::support::prelude::*;

/// Rows of unequal lengths, of which unequal parts count.
fn rows() -> String {
    let row = |row: u32| {
        let ids: Vec<u32> = (0..4 + 2 * row).map(|at| (7 * row + 5 * at) % 96).collect();
        masked_row(&ids, |at| at >= ids.len() / 3)
    };
    (0..11).map(row).collect()
}

const RUN: &str = "--data rows.jsonl --precision fp32 --lr 1e-2";

#[test]
fn a_masked_run_continues_to_the_same_bits() {
    let case = Case::new(0);
    case.write("rows.jsonl", rows());
    for taught in [false, true] {
        let run = |out: &str, more: &str| {
            let how = ["--data rows.jsonl --grad-accum 2 --lr 1e-2 --shuffle true --seed 3 --steps", more];
            let mut command = if taught { case.distill(out, how) } else { case.train(out, how) };
            command.succeeds();
        };
        let (whole, parts) = (format!("whole-{taught}"), format!("parts-{taught}"));
        run(&whole, "7");
        run(&parts, "4");
        run(&parts, "7 --resume");
        assert!(case.bits(&whole) == case.bits(&parts), "taught: {taught}");
        // Counts differ from step to step, and each is that of its own tokens.
        let tokens: BTreeSet<u64> = case.metrics(&whole).iter().map(|step| step.tokens).collect();
        assert!(tokens.len() > 2, "{tokens:?}");
    }
}

#[test]
fn what_counts_is_part_of_what_a_run_is() {
    let case = Case::new(0);
    case.write("rows.jsonl", rows());
    case.train("out", [RUN, "--steps 1"]).succeeds();
    let mut resume = case.train("out", [RUN, "--steps 2 --resume"]);
    case.write("rows.jsonl", rows().replacen("-100,", "0,", 1));
    resume.fails(2, "data was");
    case.write("rows.jsonl", rows());
    resume.succeeds();
}

/// Attention is causal: whatever stands behind the last token that counts changes neither its loss nor any gradient.
#[test]
fn padding_changes_nothing_that_counts() {
    let case = Case::new(0);
    let config = config_alone(&case.student, |options| options.shape.batch_size = 2);
    let short = [Chunk::plain([5, 9, 2, 11]), Chunk::plain((1..18).collect::<Vec<u32>>())];
    let padded = Chunk {
        ids: vec![5, 9, 2, 11, 77, 3, 60, 95, 4],
        labels: Some([vec![5, 9, 2, 11], vec![MASKED_TOKEN; 5]].concat()),
        ..Chunk::default()
    };
    let run = |chunks: [&Chunk; 2]| {
        let batch = MicroBatch::of(chunks, (2, 16));
        assert_eq!(batch.counted, 3 + 16);
        let mut session = session(&config);
        session.micro(&batch, 1.0 / 19.0, 0).unwrap();
        let parameters = session.plan.student.weights.parameters.list.clone();
        let of_norms = parameters.into_iter().filter(|parameter| parameter.shape.len() == 1);
        let gradients: Vec<Vec<f32>> =
            of_norms.map(|parameter| floats(&session.read(session.trained_of(&parameter).grad).unwrap())).collect();
        let ticket = session.update(0, 1e-3).unwrap();
        let (metrics, _) = session.metrics(ticket).unwrap();
        (metrics.ce_loss.to_bits(), gradients)
    };
    assert!(run([&short[0], &short[1]]) == run([&padded, &short[1]]));
}

#[test]
fn rows_with_nothing_that_counts_are_skipped_and_said() {
    let case = Case::new(0);
    let masked = masked_row(&[1, 2, 3], |_| false);
    // All that counts is behind the cut.
    let late = masked_row(&(0..30).collect::<Vec<u32>>(), |at| at > 20);
    case.write("rows.jsonl", format!("{masked}{}{late}", rows()));
    let [_, note] = case.train("out", [RUN, "--steps 1"]).says();
    assert!(note.contains("2 of 13 rows have no token that counts"), "{note}");
    let data = &case.record("out")["data"];
    assert_eq!((&data["chunks"], &data["rows_passed_over"]), (&11.into(), &2.into()));
    case.write("rows.jsonl", masked + &late);
    case.train("none", [RUN, "--steps 1"]).fails(5, "rows.jsonl: no token to predict");
}

#[test]
fn an_evaluation_scores_the_tokens_that_count() {
    let case = Case::new(0);
    let score = |counts: fn(usize) -> bool| {
        case.write("rows.jsonl", masked_row(&[9, 4, 33, 2, 8, 71, 5], counts));
        let score = case.run("eval --untrained --json --seq-len 16 --model student --data rows.jsonl").json();
        (score["nll"].as_f64().unwrap(), score["tokens"].as_u64().unwrap())
    };
    let (all, first, last) = (score(|_| true), score(|at| at < 4), score(|at| at >= 4));
    assert_eq!([all.1, first.1, last.1], [6, 3, 3]);
    let sum = 3.0 * (first.0 + last.0);
    assert!((6.0 * all.0 / sum - 1.0).abs() < 1e-6);
}
