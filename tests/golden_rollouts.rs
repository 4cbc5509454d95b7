//! Steps of students that learn from what they write, against float64: `golden/make.py`, which was given the tokens
//! that they drew.

use precast::device::session::Session;
use precast::inputs::data::{Chunk, MicroBatch};
use precast::run::samples_file::SampleLine;
use precast_kernels::abi::step_metrics;
use precast_plan::Objective;

use crate::golden::{Golden, Reference, cases, differences, largest, named_gradients};
use crate::golden_steps::RESULT;
use crate::support::prelude::*;

/// One of each divergence; in the second the student writes half of the sequences, and the others have masks.
fn of_rollouts() -> impl Iterator<Item = Golden> {
    cases().into_iter().filter(|golden| golden.settings.options.is_some())
}

/// Of losses, norms and gradients, relative.
const GATE: f64 = 2e-5;

/// Has the student of a case draw again.
const REMADE: &str = "tests/golden/make.py made tests/fixtures/golden/";

#[test]
fn a_student_draws_and_learns_what_float64_says() {
    skip_if!(skipped(!is_sim(), "logits whose last bits differ may draw other tokens"));
    for golden in of_rollouts() {
        let (name, case) = (&golden.name, &golden.case);
        let records = golden.run("--precision fp32 --samples-every 1");
        let stored = golden.steps().concat();
        let drawn = case.text("out/samples.jsonl");
        assert_eq!(drawn.lines().count(), if name == "rollouts-jsd" { 71 } else { stored.len() }, "{name}");
        for line in drawn.lines() {
            let SampleLine { sequence, prompt_ids, completion_ids, .. } = serde_json::from_str(line).unwrap();
            let ids = [prompt_ids, completion_ids].concat();
            assert_eq!(ids, stored[sequence as usize].ids, "sequence {sequence}; if that is meant, {REMADE}{name}");
        }
        let worst = differences(&records, &golden.trajectory(""));
        assert!(largest(worst) <= GATE, "{name}: {worst:?}");
        assert!(golden.result().expect("what it comes to") <= RESULT, "{name}: its weights");
        eprintln!("{name}: the tokens drawn, and steps within {:.1e}", largest(worst));
    }
}

/// On any device: what was drawn, as an on-policy run lays it out.
#[test]
fn steps_and_gradients_of_drawn_tokens_are_those_of_float64() {
    for golden in of_rollouts() {
        let name = &golden.name;
        let mut replay = Replay::of(&golden);
        let (steps, kept) = (golden.steps(), golden.kept("step0.safetensors").expect("the first step"));
        assert_eq!(steps.len(), 20);
        let mut estimate = Estimate::default();
        for (step, (rows, reference)) in steps.iter().zip(golden.trajectory("")).enumerate() {
            let teacher_nll = replay.gradients(rows);
            if step == 0 {
                for (tensor, found) in named_gradients(&mut replay.session) {
                    let distance = kept.distance(&tensor, &found);
                    assert!(distance <= GATE, "{name}, {tensor}: {distance:e}");
                }
            }
            let ticket = replay.session.update(step as u64, reference.lr).unwrap();
            let step_metrics { kd_loss, ce_loss, grad_norm, .. } = replay.session.metrics(ticket).unwrap().0;
            let found = [kd_loss, ce_loss, grad_norm].map(f64::from);
            let expected = [reference.kd_loss, reference.ce_loss, reference.grad_norm];
            let is_within = |(found, expected): (&f64, &f64)| (found / expected - 1.0).abs() <= GATE;
            assert!(found.iter().zip(&expected).all(is_within), "{name}, step {}: {found:?} {expected:?}", step + 1);
            estimate.add(&reference, teacher_nll - found[1], found[0]);
        }
        if name == "rollouts-reverse" {
            estimate.check();
        }
    }
}

/// A session in which steps train on rows as an on-policy run does: end to end.
struct Replay {
    session: Session,
    shape: (u32, u32),
}

impl Replay {
    fn of(golden: &Golden) -> Self {
        let settings = &golden.settings;
        let mut config = golden.config(|options| {
            (options.optimizer.weight_decay, options.optimizer.clip) = (settings.wd, settings.clip);
            (options.on_policy.on_policy, options.on_policy.completions.max_tokens) = (Some(1.0), Some(settings.S / 2));
        });
        let (alpha, temperature) = (settings.alpha.unwrap(), settings.T.unwrap());
        config.objective = Objective::Distill { alpha, temperature, beta: settings.beta.unwrap() };
        Self { session: session(&config), shape: (settings.B, settings.S) }
    }

    /// Computes the gradients of a step; returns the mean of -log t over its tokens.
    fn gradients(&mut self, rows: &[Chunk]) -> f64 {
        let scale = 1.0 / rows.iter().map(Chunk::counted).sum::<usize>() as f32;
        let packed: Vec<MicroBatch> = self.micro_batches(rows);
        let teacher_nll = self.session.teacher_loss(&packed, scale).unwrap();
        for (number, batch) in packed.iter().enumerate() {
            self.session.micro(batch, scale, number).unwrap();
        }
        f64::from(teacher_nll)
    }

    /// Lays the rows out that full ones would leave room for: there are several micro-batches, each with padding.
    fn micro_batches(&self, rows: &[Chunk]) -> Vec<MicroBatch> {
        let shape = (self.shape.0 as usize, self.shape.1 as usize);
        rows.chunks(shape.0).map(|rows| MicroBatch::packed(rows, shape)).collect()
    }
}

/// Sums over all tokens that were drawn.
#[derive(Default)]
struct Estimate {
    tokens: f64,
    /// Of log s - log t.
    log_ratio: f64,
    kd_loss: f64,
    /// That of `log_ratio`, by float64.
    variance: f64,
}

impl Estimate {
    fn add(&mut self, reference: &Reference, log_ratio: f64, kd_loss: f64) {
        let tokens = reference.tokens.unwrap() as f64;
        self.tokens += tokens;
        self.log_ratio += tokens * log_ratio;
        self.kd_loss += tokens * kd_loss;
        self.variance += (tokens * reference.log_ratio_error.unwrap_or_default()).powi(2);
    }

    /// Tokens drawn from the student estimate KL(s || t) without bias.
    fn check(&self) {
        let off = (self.log_ratio - self.kd_loss) / self.variance.sqrt();
        assert!(off.abs() <= 1.0 && self.tokens > 2000.0, "{} tokens: {off} standard errors", self.tokens);
    }
}
