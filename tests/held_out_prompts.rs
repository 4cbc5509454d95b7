//! Held-out prompts, which the student completes to be scored: the same bits however and wherever it does.

use precast::run::sample::SampleRecord;
use precast::run::step::HeldOutRecord;

use crate::on_policy::case;
use crate::support::Texts;
use crate::support::prelude::*;

/// A run of four steps on rows of ids.
fn run(case: &Case, (out, held_out): (&str, &str), arguments: impl Texts) -> Command {
    let steps = "--data prompts.jsonl --seq-len 24 --grad-accum 4 --lr 1e-2 --steps 4 --eval-every 2";
    let loss = "--beta 1 --alpha 1 --temperature 1 --eval-data";
    case.distill(out, [&[steps, loss, held_out], &arguments.each()[..]].concat())
}

/// The tokens are the data's, or the student's.
const HOW: [(&str, &str); 2] = [("data", "--precision bf16"), ("own", "--on-policy --precision fp32")];

/// Seven prompts of one to five words.
fn prompts(case: &Case) {
    let words: Vec<String> = (10..96).map(|number| format!("w{number}")).collect();
    for model in ["teacher", "student"] {
        case.write(&format!("{model}/tokenizer.json"), tokenizer(&words.join(" ")).to_string());
    }
    let row = |at: usize| json!({"prompt": words[at * 11..at * 11 + 1 + at * 3 % 5].join(" ")}).to_string() + "\n";
    case.write("held-out.jsonl", (0..7).map(row).collect::<String>());
}

fn scores(case: &Case, out: &str) -> Vec<HeldOutRecord> {
    case.metrics(out).into_iter().filter_map(|record| record.held_out).collect()
}

#[test]
fn completions_are_scored_alike_in_any_slots_parts_and_ranks() {
    let case = case();
    prompts(&case);
    // Of 96 tokens, so many that some of the completions end by themselves on any device.
    case.write("student/generation_config.json", json!({"eos_token_id": (5..17).collect::<Vec<u32>>()}).to_string());
    for (name, how) in HOW {
        let out = |more: &str| format!("{name}-{more}");
        let with = |more: &str, arguments: &str| {
            let of_all = "--seed 3 --max-tokens 9 --replicas 4 --final both --checkpoint-every 2";
            run(&case, (&out(more), "held-out.jsonl"), [how, of_all, arguments]).succeeds();
        };
        with("one", "");
        with("few", "--rollout-slots 2");
        with("parts", "--steps 2");
        with("parts", "--resume");
        let mut others = vec!["few", "parts"];
        if !is_on_gpu() {
            with("2", "--gpus 2");
            with("4", "--gpus 4");
            others.extend(["2", "4"]);
        }
        let one = case.results(out("one"));
        for other in others {
            assert!(case.results(out(other)) == one, "{name}, {other}");
        }
        let scores = scores(&case, &out("one"));
        // Seven completions of nine tokens at most, some of which end by themselves.
        assert!(scores.len() == 2 && scores.iter().all(|score| (7..63).contains(&score.eval_tokens)), "{scores:?}");
        assert_ne!(scores[0].eval_kd_loss, scores[1].eval_kd_loss);
    }
    // Longer ones do not compare with these: the best step is one of those after them.
    let longer = "--seed 3 --precision bf16 --max-tokens 10 --replicas 4 --steps 6 --resume";
    let [_, stderr] = run(&case, ("data-one", "held-out.jsonl"), longer).says();
    let said = "--eval-data has other tokens than before: the best checkpoint is that of the steps after 4";
    assert!(stderr.contains(said), "{stderr}");
}

/// A run says of completions what it says of the same tokens as data, to the last bit, and trains the same. Losses are
/// added in another order: of these models, tokens and this seed the sums have the same bits, of others not all have.
#[test]
fn the_loss_of_completions_is_that_of_the_same_tokens() {
    skip_if!(is_on_gpu());
    let case = case();
    token_file(case.dir.path(), "held-out.bin", 25 * 3, 96);
    for (name, how) in HOW {
        run(&case, (name, "held-out.bin"), [how, "--seed 1 --max-tokens 9 --prompt-tokens 5"]).succeeds();
        let row = |SampleRecord { prompt, completion, reference, .. }: SampleRecord| {
            let ids = |text: &str| text.split(' ').map(|id| id.parse().unwrap()).collect::<Vec<u32>>();
            let (prompt, completion) = (ids(&prompt), ids(&completion));
            assert_eq!((prompt.len(), reference.as_str()), (5, ""));
            masked_row(&[prompt, completion].concat(), |at| at >= 5)
        };
        let samples = list(&case.record(name)["samples"]);
        case.write("written.jsonl", samples.into_iter().map(row).collect::<String>());
        let again = format!("{name}-again");
        let tokens = if name == "own" { "--seed 1 --max-tokens 9" } else { "--seed 1" };
        run(&case, (&again, "written.jsonl"), [how, tokens]).succeeds();
        let [completed, read] = [name, &again].map(|out| scores(&case, out).pop().unwrap());
        assert_eq!(completed, read, "{name}");
        assert!(case.weights(name) == case.weights(&again), "{name}: an evaluation changes steps");
    }
}

#[test]
fn a_token_that_cannot_be_drawn_is_named_by_its_place() {
    let mut case = case();
    prompts(&case);
    case.student = with_tensor(&case, "student", "broken", "model.layers.0.input_layernorm.weight", first_is_huge);
    // Prompts of one token both.
    for (name, how, place) in [("own", "--on-policy", "step 1"), ("data", "--eval-every 1", "--eval-data")] {
        let said = format!("error: {place}: sequence 0 at position 1: a logit is not finite");
        run(&case, (name, "held-out.jsonl"), [how, "--max-tokens 9 --precision bf16"]).fails(1, said);
    }
}
