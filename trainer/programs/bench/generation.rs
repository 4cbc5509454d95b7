//! `precast bench generate`: steps of decoding, by the number of rows, and a whole generation.
//!
//! Prompts are random and nothing ends a text, so that every slot is filled to its end. The plan is that of `precast
//! generate`, with a phase more for each group of launches of the largest step.

use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, value_parser};
use precast_plan::chips::Peak;
use precast_plan::decoding::{BUCKETS, MOST_SLOTS, bucket, decode_phase};
use precast_plan::estimate::decode_seconds;
use precast_plan::{GenerationPlan, Precision, Sampling, Slots};
use precast_system::say;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use super::groups;
use super::kernel_record::KernelRecord;
use super::open::Reader;
use super::random_steps::RANDOM_SEEDS;
use super::record::{Measured, Record};
use super::timing::{REPEATS, SAMPLES, median};
use crate::base::record_text;
use crate::base::startup_times::Startup;
use crate::device::decoding::schedule::{Decoder, Row, STEPS, Sequence};
use crate::inputs::checkpoint::Weights;
use crate::options::{UsageError, WeightFormat};
use crate::programs::generate::{DecoderRequest, DecodingOptions, DeviceDecoder, refuse_cublas};
use crate::run::failure::Failure;

/// The fewest rows that are measured.
const FEW_ROWS: u32 = 8;
/// Generations that are timed, of which the median counts.
const GENERATIONS: usize = 3;

/// A generation to measure.
#[derive(Args)]
pub struct GenerationBench {
    #[command(flatten)]
    pub decoding: DecodingOptions,
    /// Tokens of each prompt, which are random
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = value_parser!(u32).range(1..=1 << 20))]
    pub prompt_tokens: u32,
    /// Tokens of each completion, which nothing else ends
    #[arg(long, value_name = "N", default_value_t = 768, value_parser = value_parser!(u32).range(1..=1 << 20))]
    pub max_tokens: u32,
}

/// A generation and its steps.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct GenerationResult {
    #[serde(serialize_with = "record_text::path")]
    model: PathBuf,
    format: WeightFormat,
    #[serde(serialize_with = "record_text::display")]
    precision: Precision,
    slots: u32,
    prompt_tokens: u32,
    max_tokens: u32,
    generation: WholeRecord,
    /// Steps, by their rows.
    steps: Vec<DecodeRecord>,
}

/// A generation that fills every slot once, prompts included: the median of some.
#[derive(Clone, Copy, Debug, Serialize)]
struct WholeRecord {
    seconds: f64,
    new_tokens: u64,
    new_tokens_per_s: f64,
    /// Tokens of prompts, whose keys and values are stored first.
    prompt_tokens_per_s: f64,
}

/// A step of so many rows, each half-way through its slot: the median of some.
#[derive(Clone, Copy, Debug, Serialize)]
struct DecodeRecord {
    rows: u32,
    /// Rows of the phase that computes them.
    phase_rows: u32,
    step_ms: f64,
    tokens_per_s: f64,
    /// The least time that its arithmetic, or its weights, keys and values can take on this device.
    floor_ms: Option<f64>,
    /// That, as a share of the step.
    share_of_floor: Option<f64>,
}

/// Measures a generation.
///
/// # Errors
/// [`Failure`] of the model or the device.
pub(crate) fn bench_generation(
    request: &GenerationBench,
    mut startup: Startup,
    reader: Reader,
) -> Result<Record<GenerationResult>, Failure> {
    startup.end("arguments");
    let GenerationBench { decoding: DecodingOptions { forward, slots }, prompt_tokens, max_tokens } = request;
    refuse_cublas(forward.gemm)?;
    let opened = forward.read_or_random(RANDOM_SEEDS[1])?;
    startup.end("models");
    let model: &dyn Weights = &*opened.model;
    let seq_len = prompt_tokens + max_tokens;
    let positions = model.config().max_positions;
    if seq_len > positions {
        return Err(UsageError(format!(
            "--prompt-tokens {prompt_tokens} and --max-tokens {max_tokens} are {seq_len} tokens: the model takes \
            {positions}"
        ))
        .into());
    }
    let sampling = Sampling::PLAIN;
    let decoding = DecoderRequest {
        forward,
        data: &[],
        slots: *slots,
        sequences: MOST_SLOTS.into(),
        seq_len,
        stops: Vec::new(),
        sampling,
    };
    let mut groups = Vec::new();
    let extend = |plan: &mut GenerationPlan| {
        let phase = decode_phase(bucket(plan.decoding.slots.count));
        groups = groups::add(&mut plan.plan, &[&phase]);
    };
    let mut decoder = DeviceDecoder::open(&decoding, &opened, extend)?;
    startup.end("device and upload");
    if reader == Reader::Person {
        say!("{}\n", decoder.sealed.heading().model("model", &forward.model, model, forward.format));
    }
    let all = sequences(decoder.plan.decoding.slots, *prompt_tokens, model.config().vocab);
    let mut whole = || generation(&mut decoder, &all);
    whole()?;
    startup.end("first generation");
    let seconds = median((0..GENERATIONS).map(|_| whole()).collect::<Result<_, _>>()?);
    let prompts_s = median((0..GENERATIONS).map(|_| prompts(&mut decoder, &all)).collect::<Result<_, _>>()?);
    let steps = rows(decoder.plan.decoding.slots.count).into_iter().map(|rows| step(&mut decoder, rows));
    let steps = steps.collect::<Result<Vec<_>, Failure>>()?;
    let step = (|_: &str| 1, steps[steps.len() - 1].step_ms / 1e3, decoder.sealed.device().peak());
    let last = |decoder: &mut DeviceDecoder| {
        let slots = decoder.plan.decoding.slots;
        decoder.slots()?.decode(&half_way(slots, slots.count, 1), 1)?;
        Ok(())
    };
    let kernels = KernelRecord::measure(&mut decoder, &groups, step, last, |decoder, group| {
        Ok(decoder.sealed.time(&group.timed_as, REPEATS)? / group.timed_launches() as f64)
    })?;
    let DeviceDecoder { sealed, plan, .. } = &decoder;
    let count = plan.decoding.slots.count;
    let new_tokens = u64::from(count) * u64::from(*max_tokens);
    let of_prompts = u64::from(count) * u64::from(prompt_tokens - 1);
    let measured = GenerationResult {
        model: forward.model.clone(),
        format: forward.format,
        precision: forward.precision(),
        slots: count,
        prompt_tokens: *prompt_tokens,
        max_tokens: *max_tokens,
        generation: WholeRecord {
            seconds,
            new_tokens,
            new_tokens_per_s: new_tokens as f64 / seconds,
            prompt_tokens_per_s: of_prompts as f64 / prompts_s,
        },
        steps,
    };
    Ok(Record::new(measured, (&plan.plan, sealed), kernels, &startup))
}

/// Makes a sequence for each slot, of random tokens.
fn sequences(Slots { count, seq_len }: Slots, prompt_tokens: u32, vocab: u32) -> Vec<Sequence> {
    let mut rng = Pcg64Mcg::seed_from_u64(0);
    let mut prompt = || (0..prompt_tokens).map(|_| rng.random_range(0..vocab)).collect::<Vec<u32>>();
    (0..count).map(|slot| Sequence { number: slot.into(), prompt: prompt().into(), most: seq_len }).collect()
}

/// Times a generation; seconds.
fn generation(decoder: &mut DeviceDecoder, all: &[Sequence]) -> Result<f64, Failure> {
    let started = Instant::now();
    decoder.slots()?.complete(all.iter().cloned(), |_, _| Ok::<_, Failure>(()))?;
    Ok(started.elapsed().as_secs_f64())
}

/// Times the prompts of all slots; seconds.
fn prompts(decoder: &mut DeviceDecoder, all: &[Sequence]) -> Result<f64, Failure> {
    let (started, prefill) = (Instant::now(), decoder.plan.decoding.prefill);
    let rows: Vec<Row> = all.iter().zip(0..).flat_map(|(one, slot)| one.prompt_rows(slot)).collect();
    let mut slots = decoder.slots()?;
    prefill.launches(&rows, |row| row.position).into_iter().try_for_each(|rows| slots.prefill(rows))?;
    // Waits for them.
    slots.read(0, 0, 1)?;
    Ok(started.elapsed().as_secs_f64())
}

/// Lists the numbers of rows to measure: a few, those of whole phases, and all.
fn rows(slots: u32) -> Vec<u32> {
    let mut rows: Vec<u32> = [FEW_ROWS].into_iter().chain(BUCKETS).filter(|rows| *rows < slots).collect();
    rows.push(slots);
    rows
}

/// Places rows in the first slots, so that `steps` steps from there pass the middle.
fn half_way(Slots { seq_len, .. }: Slots, rows: u32, steps: u32) -> Vec<Row> {
    let position = (seq_len - 1 - steps) / 2;
    (0..rows).map(|slot| Row { slot, position, id: slot % 2, sequence: slot.into(), end: seq_len }).collect()
}

/// Times steps as a generation takes them, what is written before and read behind them included.
fn step(decoder: &mut DeviceDecoder, rows: u32) -> Result<DecodeRecord, Failure> {
    let slots = decoder.plan.decoding.slots;
    let steps = STEPS.min(slots.seq_len - 1);
    let placed = half_way(slots, rows, steps);
    decoder.slots()?.decode(&placed, steps)?;
    let samples = (0..SAMPLES).map(|_| {
        let started = Instant::now();
        decoder.slots()?.decode(&placed, steps)?;
        Ok(started.elapsed().as_secs_f64() / f64::from(steps))
    });
    let seconds = median(samples.collect::<Result<Vec<f64>, Failure>>()?);
    let limit = decoder.sealed.device().peak();
    let floor_s = limit.map(|limit| decode_seconds(&decoder.plan, (rows, slots.seq_len / 2), &limit));
    Ok(DecodeRecord {
        rows,
        phase_rows: bucket(rows),
        step_ms: seconds * 1e3,
        tokens_per_s: f64::from(rows) / seconds,
        floor_ms: floor_s.map(|floor_s| floor_s * 1e3),
        share_of_floor: floor_s.map(|floor_s| floor_s / seconds),
    })
}

impl Measured for GenerationResult {
    fn summary(&self, limit: Option<Peak>) -> Vec<(&'static str, String)> {
        let WholeRecord { seconds, new_tokens, new_tokens_per_s, prompt_tokens_per_s } = self.generation;
        let Self { slots, prompt_tokens, max_tokens, precision, .. } = self;
        let mut rows = vec![
            ("model", self.model.display().to_string()),
            ("slots", format!("{slots} of {prompt_tokens} + {max_tokens} tokens, {precision}")),
            ("generation", format!("{seconds:.3} s, median of {GENERATIONS}: {new_tokens} new tokens")),
            ("new tokens", format!("{new_tokens_per_s:.0} a second, prompts included")),
            ("prompts", format!("{prompt_tokens_per_s:.0} tokens a second")),
        ];
        let floor =
            |limit: Peak| format!("weights once, keys and values of each row, by the figures of {}", limit.device);
        rows.extend(limit.map(|limit| ("floor", floor(limit))));
        rows
    }

    fn before(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nsteps half-way through the slots, medians of {SAMPLES}")?;
        writeln!(f, "  rows  of phase    ms/step  new tokens/s  floor, ms  of floor")?;
        for DecodeRecord { rows, phase_rows, step_ms, tokens_per_s, floor_ms, share_of_floor } in &self.steps {
            let floor_ms = floor_ms.map_or("-".to_owned(), |ms| format!("{ms:.3}"));
            let share = share_of_floor.map_or("-".to_owned(), |share| format!("{:.1} %", 100.0 * share));
            writeln!(f, "{rows:>6} {phase_rows:>9} {step_ms:>10.3} {tokens_per_s:>13.0} {floor_ms:>10} {share:>9}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rows_whole_phases_and_all_slots_are_measured() {
        assert_eq!(rows(300), [8, 64, 128, 256, 300]);
        assert_eq!((rows(64), rows(8), rows(3)), (vec![8, 64], vec![8], vec![3]));
    }

    #[test]
    fn rows_end_before_their_slots_do() {
        for seq_len in [2, 3, 33, 34, 1024] {
            let steps = STEPS.min(seq_len - 1);
            let rows = half_way(Slots { count: 2, seq_len }, 2, steps);
            assert!(rows.iter().all(|row| row.position + steps < seq_len), "{seq_len}");
        }
    }
}
