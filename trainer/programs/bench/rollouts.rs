//! `precast bench --on-policy`: steps of a student on what it writes, as its run takes them.
//!
//! Prompts are random and nothing ends a text, so that every completion is as long as it may be. The weights stay as they are.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use precast_kernels::abi::MASKED_TOKEN;
use precast_plan::MemoryTable;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use serde_json::Value;

use super::Reader;
use super::report::{startup_text, write};
use crate::base::startup_times::{Startup, StartupRecord};
use crate::device::session::Session;
use crate::inputs::data::Chunk;
use crate::options::{Completions, RunConfig, UsageError};
use crate::programs::distill::{RolloutStep, Trained};
use crate::programs::failure::Failure;
use crate::run::record::{MemoryRecord, of_device};
use crate::run::report::{flatten, page, table};
use crate::run::rollout::RolloutSums;

/// `bench.json` of an on-policy run.
#[derive(Clone, Debug, Serialize)]
pub struct RolloutBenchRecord {
    /// Version of this program.
    version: &'static str,
    config: RunConfig,
    /// Completions that are written at a time.
    slots: u32,
    prompt_tokens: u32,
    device: Value,
    /// Digest of the bundle whose kernels ran.
    bundle: String,
    modules_loaded: u64,
    step: Times,
    memory: MemoryRecord,
    startup: StartupRecord,
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
pub fn bench_rollouts(config: &RunConfig, mut startup: Startup, reader: Reader) -> Result<RolloutBenchRecord, Failure> {
    startup.end("arguments");
    let Completions { prompt_tokens, max_tokens, .. } = config.completions.expect("an on-policy run");
    let seq_len = config.shape.seq_len;
    let room = seq_len - max_tokens;
    let prompt_tokens = prompt_tokens.unwrap_or(room);
    if prompt_tokens > room {
        return Err(UsageError(format!(
            "--prompt-tokens {prompt_tokens} and --max-tokens {max_tokens} are more than --seq-len {seq_len}: give fewer, or a longer \
             --seq-len"
        ))
        .into());
    }
    let (mut session, vocab, ()) = super::session(config, &mut startup, reader, |_| ())?;
    let rows = rows(config, (prompt_tokens, max_tokens), vocab);
    let mut one = |number| step(&mut session, config, &rows, number);
    one(0)?;
    startup.end("first step");
    let mut all = (1..=config.steps()).map(one).collect::<Result<Vec<Times>, Failure>>()?;
    all.sort_by(|a, b| a.step_ms.total_cmp(&b.step_ms));
    Ok(RolloutBenchRecord {
        version: env!("CARGO_PKG_VERSION"),
        config: RunConfig { teacher_format: config.teacher_format.map(|_| session.teacher_format), ..config.clone() },
        slots: session.plan.decoding.expect("an on-policy plan decodes").slots.count,
        prompt_tokens,
        device: of_device(session.device()),
        bundle: session.bundle.to_string(),
        modules_loaded: session.loads(),
        step: all[all.len() / 2],
        memory: MemoryRecord { planned: MemoryTable::of(&session.plan.plan), taken_bytes: session.taken_bytes },
        startup: startup.record(),
    })
}

/// Makes the rows of a step, the same for all: random tokens of a prompt and of a completion, which stands where the student
/// writes none.
fn rows(config: &RunConfig, (prompt, completion): (u32, u32), vocab: u32) -> Vec<Arc<Chunk>> {
    let mut rng = Pcg64Mcg::seed_from_u64(0);
    let row = |_| {
        let ids: Vec<u32> = (0..prompt + completion).map(|_| rng.random_range(0..vocab)).collect();
        let masked = std::iter::repeat_n(MASKED_TOKEN, prompt as usize);
        let labels = masked.chain(ids[prompt as usize..].iter().copied()).collect();
        Arc::new(Chunk { ids, labels: Some(labels) })
    };
    (0..config.rows_a_step()).map(row).collect()
}

/// Takes a step, by its number from 0, whose learning rate is 0.
fn step(session: &mut Session, config: &RunConfig, rows: &[Arc<Chunk>], number: u64) -> Result<Times, Failure> {
    let began = Instant::now();
    let written = RolloutStep::write(session, config, &[], (number, rows))?;
    let sums = RolloutSums::of(&written.sums);
    let Trained { ticket, mismatch, .. } = written.train(session, config, (sums.counted, 0.0), false)?;
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
        padding_share: sums.record(mismatch.count).padding_share,
        mismatch: mismatch.count,
    })
}

impl RolloutBenchRecord {
    /// Writes `bench.json` and `report.html`, in place of those of an earlier benchmark.
    ///
    /// # Errors
    /// [`Failure::Run`] where something else is there, [`Failure::Io`].
    pub fn write(&self, out: &Path) -> Result<(), Failure> {
        let run = serde_json::to_value(self).expect("plain data serializes");
        let body = format!("{}<h2>Run</h2>{}", table(&self.summary()), table(&flatten("", &run)));
        write(out, self, &page("precast bench", &body))
    }

    /// Lists the few numbers that people look for first.
    fn summary(&self) -> Vec<(String, String)> {
        let Times { step_ms, write_ms, train_ms, positions, positions_per_s, new_tokens, new_tokens_per_s, .. } =
            self.step;
        let Self { config, slots, prompt_tokens, .. } = self;
        let (seq_len, precision) = (config.shape.seq_len, config.arithmetic.precision);
        let max_tokens = config.completions.map_or(0, |completions| completions.max_tokens);
        let mut rows = vec![("device", self.device["name"].as_str().unwrap_or("?").to_owned())];
        rows.extend(config.models().iter().map(|(role, path)| (role.name(), path.display().to_string())));
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
        rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

impl fmt::Display for RolloutBenchRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.summary() {
            writeln!(f, "{name:<17} {value}")?;
        }
        writeln!(f, "\nmemory\n{}", self.memory.planned)?;
        startup_text(&self.startup, f)
    }
}
