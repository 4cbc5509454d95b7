//! Decoding by a pool of keys and values: the bits of the forward pass.

use precast::device::frozen::Forward;
use precast::options::{DeviceOptions, Kernels, WeightFormat};
use precast::programs::decode_check::{
    CheckedRow, CheckedSequence, Compared, DecodeCheck, DecodeChecker, check_decoding, decoded, prompts, sequences,
};
use precast_kernels::Block;
use precast_plan::{Formats, Gemm, Precision};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::gguf;
use crate::golden::cases;
use crate::support::prelude::*;

/// A model in a form, and how it computes.
pub fn forward(model: &Path, precision: Precision) -> Forward {
    let kernels = Kernels { bundle: bundle(), ..Kernels::default() };
    Forward {
        model: model.to_owned(),
        adapter: None,
        format: WeightFormat::Auto,
        precision: Some(precision),
        gemm: Gemm::Bundle,
        target: DeviceOptions { device: device().parse().unwrap(), kernels },
        teacher: None,
        heading: false,
    }
}

/// Every kind of base: dense, with an adapter, in 8 bits, in blocks.
fn bases(dir: &Path, lora: &Case) -> Vec<Forward> {
    let tiny = random_model(dir, "tiny", 3, &tiny_config(&[]));
    let config = shape(&model_config("blocks"));
    let stored = gguf::write(dir, "model.gguf", &config, &Formats::uniform(&config, Block::Q4_K), 5);
    let mut all: Vec<Forward> = [Precision::Fp32, Precision::Bf16]
        .into_iter()
        .flat_map(|precision| {
            let adapted = Forward { adapter: Some(lora.path("golden/adapter")), ..forward(&lora.student, precision) };
            let stored = Forward { format: WeightFormat::Stored, ..forward(&stored, precision) };
            [forward(&tiny, precision), adapted, stored]
        })
        .collect();
    all.push(Forward { format: WeightFormat::Int8, ..forward(&lora.student, Precision::Bf16) });
    all
}

/// A case whose student has an adapter, for [`bases`].
fn adapted() -> Case {
    Case::golden("made-lora")
}

fn request(forward: Forward, rows: u32, seq_len: u32) -> DecodeCheck {
    DecodeCheck { forward, rows, seq_len: Some(seq_len), tokens: 1, seed: 1 }
}

#[test]
fn a_decoded_row_has_the_bits_of_the_forward_pass() {
    let (dir, lora) = (tempfile::tempdir().unwrap(), adapted());
    let golden = ["made-qwen3", "made-llama3"].map(Case::golden);
    let golden = golden.iter().flat_map(|of| [Precision::Fp32, Precision::Bf16].map(|it| forward(&of.student, it)));
    for forward in bases(dir.path(), &lora).into_iter().chain(golden) {
        let found = check_decoding(&request(forward.clone(), 5, 40)).unwrap();
        assert!(found.tokens > 40 && found.compared > 40 * 90, "{forward:?}: {found:?}");
        assert_eq!((found.differing, found.first), (0, None), "{forward:?}");
    }
}

/// Prompts of more than a chunk of the gated delta rule, and rows on both sides of its ends.
#[test]
fn a_decoded_row_of_the_gated_delta_rule_has_the_bits_of_the_forward_pass() {
    let golden = Case::golden("made-qwen35");
    for (precision, format) in [
        (Precision::Fp32, WeightFormat::Auto),
        (Precision::Bf16, WeightFormat::Auto),
        (Precision::Bf16, WeightFormat::Int8),
    ] {
        let forward = Forward { format, ..forward(&golden.student, precision) };
        let found = check_decoding(&request(forward.clone(), 3, 200)).unwrap();
        assert!(found.tokens > 350, "{forward:?}: {found:?}");
        assert_eq!((found.differing, found.first), (0, None), "{forward:?}");
    }
}

/// Sequences end, and fewer rows are left: phases of other sizes, by other tiles.
#[test]
fn rows_have_the_same_bits_in_every_bucket() {
    let dir = tempfile::tempdir().unwrap();
    let tiny = random_model(dir.path(), "tiny", 3, &tiny_config(&[]));
    let found = check_decoding(&request(forward(&tiny, Precision::Bf16), 140, 12)).unwrap();
    assert!(found.tokens > 400 && found.differing == 0, "{found:?}");
}

/// Sequences that are decoded on a device, faults and all.
struct Tampered {
    checker: DecodeChecker,
    round: Vec<CheckedSequence>,
}

impl Tampered {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tiny = random_model(dir.path(), "tiny", 3, &tiny_config(&[]));
        let request = request(forward(&tiny, Precision::Bf16), 5, 24);
        let mut checker = DecodeChecker::open(&request, &request.forward.read().unwrap()).unwrap();
        let round = sequences(checker.plan.slots, 96, &mut Pcg64Mcg::seed_from_u64(5));
        assert!(round[1].prompt > 2 && round[2].prompt > 2, "prompts to swap rows of: {round:?}");
        checker.score(&round).unwrap();
        Self { checker, round }
    }

    /// Decodes by rows that a fault changes.
    fn decode(mut self, prompt: fn(&mut [CheckedRow]), step: fn(&mut [CheckedRow], usize)) -> Result<Compared, String> {
        let rng = &mut Pcg64Mcg::seed_from_u64(5);
        for mut rows in prompts(&self.round, self.checker.plan.prefill, rng) {
            prompt(&mut rows);
            self.checker.prefill(&rows).unwrap();
        }
        for (number, mut rows) in decoded(&self.round).enumerate() {
            step(&mut rows, number);
            self.checker.decode(&rows).unwrap();
        }
        self.checker.compared(&self.round, 0).map_err(|fault| fault.to_string())
    }

    /// Asserts that a fault shows, in the first token that one of its sequences decodes.
    fn shows(self, of: &[u64], prompt: fn(&mut [CheckedRow]), step: fn(&mut [CheckedRow], usize)) {
        let firsts: Vec<(u64, u32)> = of.iter().map(|one| (*one, self.round[*one as usize].prompt)).collect();
        let found = self.decode(prompt, step).unwrap();
        let first = found.first.expect("a fault that shows");
        assert!(firsts.contains(&(first.sequence, first.position)), "{found:?}, and not at {firsts:?}");
        assert!(found.check().unwrap_err().0.contains(&format!("sequence {} at position", first.sequence)));
    }
}

#[test]
fn a_key_in_another_slot_shows_in_the_first_token() {
    let swap = |rows: &mut [CheckedRow]| {
        let swapped: Vec<usize> = (0..rows.len()).filter(|row| rows[*row].position == 1).take(2).collect();
        let [a, b] = swapped[..] else { panic!("two sequences have a second token") };
        (rows[a].slot, rows[b].slot) = (rows[b].slot, rows[a].slot);
    };
    Tampered::new().shows(&[1, 2, 3, 4], swap, |_, _| ());
}

#[test]
fn a_position_one_off_shows_in_the_first_token() {
    let tampered = Tampered::new();
    let position = tampered.round[1].prompt;
    let fault = tampered
        .decode(
            |_| (),
            |rows, step| {
                if step == 0 {
                    rows[1].position += 1;
                }
            },
        )
        .unwrap_err();
    assert_eq!(fault, format!("0 of 128 logits of sequence 1 at position {position} were compared"));
}

#[test]
fn a_weight_that_is_stale_shows_in_the_first_token() {
    let mut tampered = Tampered::new();
    let norm = tampered.checker.plan.model.weights.norm.gamma.tensor;
    let mut bytes = tampered.checker.sealed.read(norm).unwrap();
    bytes[1] ^= 1;
    tampered.checker.sealed.write(norm, &bytes).unwrap();
    tampered.shows(&[0], |_| (), |_, _| ());
}

/// Each token is compared with the likeliest by the logits of the whole sequence: equal bits alone do not make the
/// choice right.
#[test]
fn greedy_completions_are_what_recomputing_gives() {
    let case = Case::empty();
    let prompts = (1..4u32).map(|row| (0..2 * row).map(|at| 7 * row + 3 * at).collect::<Vec<_>>());
    case.write(
        "prompts.jsonl",
        prompts
            .map(|ids| {
                format!(
                    "{}
",
                    json!({ "input_ids": ids })
                )
            })
            .collect::<String>(),
    );
    let (all, lora) = (cases(), adapted());
    let models = all.iter().flat_map(|golden| golden.teacher().into_iter().chain([&*golden.case.student]));
    let golden = models.map(|model| forward(model, Precision::Fp32));
    for (number, forward) in golden.chain(bases(case.dir.path(), &lora)).enumerate() {
        let out = format!("{number}.jsonl");
        let how = format!("--format {} --precision {} --out {out}", forward.format, forward.precision());
        let greedy = "generate --sampling-temperature 0 --max-tokens 6 --data prompts.jsonl";
        let mut generate = case.run([greedy, &how]);
        generate.arg("--model").arg(&forward.model);
        if let Some(adapter) = &forward.adapter {
            generate.arg("--adapter").arg(adapter);
        }
        generate.succeeds();
        let rows = case.text(&out);
        assert_eq!(rows.lines().count(), 3);
        for row in rows.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            let ids: Vec<u32> = list(&row["input_ids"]);
            let prompt = list::<i64>(&row["labels"]).iter().take_while(|label| **label == -100).count();
            let likeliest = likeliest(&forward, &ids);
            assert!(ids.len() > prompt, "{forward:?}: {row}");
            assert_eq!(ids[prompt..], likeliest[prompt - 1..ids.len() - 1], "{forward:?}: {row}");
        }
    }
}

/// The likeliest token after each of a sequence, by the forward pass; of equal ones the first.
fn likeliest(forward: &Forward, ids: &[u32]) -> Vec<u32> {
    let request = request(forward.clone(), 1, ids.len() as u32);
    let mut checker = DecodeChecker::open(&request, &forward.read().unwrap()).unwrap();
    checker.score(&[CheckedSequence { slot: 0, ids: ids.to_vec(), prompt: 0 }]).unwrap();
    let bytes = checker.sealed.read(checker.plan.expected).unwrap();
    let logits = match forward.precision() {
        Precision::Fp32 => floats(&bytes),
        _ => bytes.chunks(2).map(|half| floats(&[0, 0, half[0], half[1]])[0]).collect(),
    };
    let first_of = |row: &[f32]| (0..row.len()).rev().max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap() as u32;
    logits.chunks(logits.len() / ids.len()).map(first_of).collect()
}

#[test]
fn the_program_says_what_it_compared() {
    let case = Case::empty();
    case.model("tiny", 3, &[]);
    let selftest = |more: &str| case.run(["selftest --rows 3 --seq-len 12 --tokens 20 --model tiny", more]);
    let json = selftest("--json").json();
    let tokens = json["tokens"].as_u64().unwrap();
    // Of 96 tokens, and of columns up to whole cache lines.
    assert!(tokens >= 20 && json["compared"] == 128 * tokens, "{json}");
    assert!(json["differing"] == 0 && json["first"].is_null(), "{json}");
    let [said, heading] = selftest("").says();
    let compared = format!("{} logits compared with those of the forward pass: 0 differ\n", 128 * tokens);
    assert_eq!(said, format!("{tokens} decoded tokens, {compared}"));
    assert!(heading.contains("model    "), "{heading}");
}
