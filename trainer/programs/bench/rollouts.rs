//! `precast bench on-policy`: steps of a student on what it writes, as its run takes them.
//!
//! Prompts are random and nothing ends a text, so that every completion is as long as it may be. The weights stay as
//! they are.

use std::sync::Arc;
use std::time::Instant;

use precast_kernels::abi::MASKED_TOKEN;
use precast_plan::chips::Peak;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use super::open::{Reader, of_models, recorded, session};
use super::record::{Measured, Record};
use crate::base::startup_times::Startup;
use crate::device::session::Session;
use crate::inputs::data::Chunk;
use crate::options::{Completions, RunConfig, UsageError};
use crate::programs::distill::{EnqueuedStep, RolloutStep};
use crate::run::failure::Failure;
use crate::run::rollout::RolloutSums;

/// A step of an on-policy run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RolloutResult {
    config: RunConfig,
    /// Completions that are written at a time.
    slots: u32,
    prompt_tokens: u32,
    step: Times,
}

/// A step: of many, the one whose time is the median.
#[derive(Clone, Copy, Debug, Serialize)]
struct Times {
    step_ms: f64,
    /// Time of writing the completions, prompts included.
    write_ms: f64,
    /// All else: teacher, forward, backward and update.
    train_ms: f64,
    /// Positions of the sequences, those of prompts included.
    positions: u64,
    /// Positions over the time of the step.
    positions_per_s: f64,
    /// Tokens drawn.
    new_tokens: u64,
    /// Tokens drawn over the time of the step.
    new_tokens_per_s: f64,
    /// Share of the positions of the micro-batches that hold no token.
    padding_share: f64,
    /// Tokens of all steps that training scored otherwise: 0.
    mismatch: u64,
}

/// Measures steps of an on-policy run.
///
/// # Errors
/// [`Failure`] of the models or the device, and of a token that training scores otherwise than it was drawn.
///
/// # Panics
/// If the run is not on-policy.
pub(crate) fn bench_rollouts(
    config: &RunConfig,
    mut startup: Startup,
    reader: Reader,
) -> Result<Record<RolloutResult>, Failure> {
    startup.end("arguments");
    let Completions { prompt_tokens, max_tokens, .. } = config.completions.expect("an on-policy run");
    let seq_len = config.shape.seq_len;
    let room = seq_len - max_tokens;
    let prompt_tokens = prompt_tokens.unwrap_or(room);
    if prompt_tokens > room {
        return Err(UsageError(format!(
            "--prompt-tokens {prompt_tokens} and --max-tokens {max_tokens} are more than --seq-len {seq_len}: give \
            fewer, or a longer \
             --seq-len"
        ))
        .into());
    }
    let (mut session, vocab, ()) = session(config, &mut startup, reader, |_| ())?;
    let rows = rows(config.rows_a_step(), (prompt_tokens, max_tokens), vocab);
    let mut one = |number| step(&mut session, config, &rows, number);
    one(0)?;
    startup.end("first step");
    let mut all = (1..=config.steps()).map(one).collect::<Result<Vec<Times>, Failure>>()?;
    all.sort_by(|a, b| a.step_ms.total_cmp(&b.step_ms));
    let measured = RolloutResult {
        config: recorded(config, &session),
        slots: session.plan.decoding.expect("an on-policy plan decodes").slots.count,
        prompt_tokens,
        step: all[all.len() / 2],
    };
    Ok(Record::new(measured, (&session.plan.plan, &session), Vec::new(), &startup))
}

/// Makes the rows of a step, the same for all: random tokens of a prompt and of a completion, which stands where the
/// student writes none.
fn rows(count: u64, (prompt, completion): (u32, u32), vocab: u32) -> Vec<Arc<Chunk>> {
    let mut rng = Pcg64Mcg::seed_from_u64(0);
    let row = |_| {
        let ids: Vec<u32> = (0..prompt + completion).map(|_| rng.random_range(0..vocab)).collect();
        let masked = std::iter::repeat_n(MASKED_TOKEN, prompt as usize);
        let labels = masked.chain(ids[prompt as usize..].iter().copied()).collect();
        Arc::new(Chunk { ids, labels: Some(labels), ..Chunk::default() })
    };
    (0..count).map(row).collect()
}

/// Takes a step, by its number from 0, whose learning rate is 0.
fn step(session: &mut Session, config: &RunConfig, rows: &[Arc<Chunk>], number: u64) -> Result<Times, Failure> {
    let began = Instant::now();
    let written = RolloutStep::write(session, config, &[], (number, rows))?;
    let sums = RolloutSums::of(&written.sums);
    let EnqueuedStep { ticket, mismatch, .. } = written.train(session, config, (sums.counted, 0.0), false)?;
    let (_, ended) = session.metrics(ticket)?;
    mismatch.refuse(number + 1)?;
    let seconds = (ended - began).as_secs_f64();
    Ok(Times {
        step_ms: seconds * 1e3,
        write_ms: sums.seconds * 1e3,
        train_ms: (seconds - sums.seconds) * 1e3,
        positions: sums.inputs,
        positions_per_s: sums.inputs as f64 / seconds,
        new_tokens: sums.drawn,
        new_tokens_per_s: sums.drawn as f64 / seconds,
        padding_share: 1.0 - sums.inputs as f64 / sums.positions as f64,
        mismatch: mismatch.count,
    })
}

impl Measured for RolloutResult {
    fn summary(&self, _limit: Option<Peak>) -> Vec<(&'static str, String)> {
        let Times { step_ms, write_ms, train_ms, positions, positions_per_s, new_tokens, new_tokens_per_s, .. } =
            self.step;
        let Self { config, slots, prompt_tokens, .. } = self;
        let (seq_len, precision) = (config.shape.seq_len, config.arithmetic.precision);
        let max_tokens = config.completions.map_or(0, |completions| completions.max_tokens);
        let mut rows = of_models(config.models());
        let sequences = config.sequences_a_step();
        rows.extend([
            ("sequences", format!("{sequences} of {prompt_tokens} + {max_tokens} tokens, {precision}")),
            ("step", format!("{step_ms:.2} ms, median of {}", config.steps())),
            ("writing", format!("{write_ms:.2} ms: {new_tokens} new tokens in {slots} slots of {seq_len} tokens")),
            (
                "training",
                format!("{train_ms:.2} ms: {positions} positions, padding {:.1} %", 100.0 * self.step.padding_share),
            ),
            (
                "end to end",
                format!("{positions_per_s:.0} positions a second, {new_tokens_per_s:.0} new tokens a second"),
            ),
            ("mismatch", self.step.mismatch.to_string()),
        ]);
        rows
    }
}
