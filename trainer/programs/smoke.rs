//! `precast smoke`: a short training run on one batch that can be learnt, twice.
//!
//! The models, kernels, memory and seal are those of a real run. The batch is a fixed cycle of tokens, each of which
//! says what comes next, so that a student of any size learns it within a few steps, by heart if nothing else.

use std::collections::BTreeSet;
use std::time::Instant;

use precast_fatbins::Digest;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use crate::base::record_text::finite;
use crate::device::run_models::RunModels;
use crate::device::session::Session;
use crate::inputs::adapter::Adapter;
use crate::inputs::checkpoint::Weights;
use crate::inputs::data::MicroBatch;
use crate::options::{RunConfig, ShapeOptions};
use crate::programs::bench::median;
use crate::run::failure::Failure;

/// Steps whose losses make a mean, at the start and at the end.
const MEAN_OF: usize = 5;
/// Steps without which the two means are of the same steps.
pub const LEAST_STEPS: u64 = 2 * MEAN_OF as u64;
/// Upper bound of the last mean, as a share of the first.
const MOST_RATIO: f64 = 0.8;
/// Upper bound of a layer's projections with adapters, seven, as a power of two: it divides a rate exactly.
const PROJECTIONS: f64 = 8.0;
/// Tokens of the cycle, of a large vocabulary.
const CYCLE: u32 = 256;

/// Result of a run. `ok` is true where there is no `reason`.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// True if everything is as it must be.
    pub ok: bool,
    /// First fault that was found.
    pub reason: Option<String>,
    /// The device's name.
    pub device: String,
    /// The architecture of its kernels.
    pub arch: String,
    /// Digest of the bundle.
    pub bundle: String,
    /// Number of modules loaded.
    pub kernels: u64,
    pub precision: String,
    /// The library that computes products.
    pub gemm: String,
    /// Form of the teacher's weights on the device; none without a teacher.
    pub teacher_format: Option<String>,
    /// Adapter that is trained in place of the student; none where that trains.
    pub adapter: Option<String>,
    /// Form of such a student's weights on the device.
    pub student_format: Option<String>,
    /// Tokens of a step.
    pub tokens: u64,
    /// Peak learning rate.
    pub lr: f64,
    /// Loss of each step; none where it is not finite.
    pub losses: Vec<Option<f64>>,
    /// The mean of the last five losses over that of the first five.
    pub ratio: Option<f64>,
    /// Modules that the driver loaded after the seal, in both runs.
    pub loads_after_seal: u64,
    /// True if the second run has the same losses and final weights, bit for bit.
    pub bits_equal: bool,
    /// Median time of a step.
    pub step_ms: f64,
}

/// One training run.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    losses: Vec<f64>,
    /// Digest of the master weights after the last step.
    weights: Digest,
    skipped: u64,
    loads_after_seal: u64,
    step_ms: Vec<f64>,
}

/// The learning rate that moves any student's logits alike: a step changes each by about `lr` times the width of what
/// trains, which of an adapter is its rank times its scale. Those of the projections of a layer add up.
fn learning_rate(student: &dyn Weights, adapter: Option<&Adapter>) -> f64 {
    let of_adapters = |adapter: &Adapter| {
        let adapters = adapter.layout.adapters();
        let widths = adapters.iter().map(|(_, one)| f64::from(one.scale) * f64::from(one.rank));
        PROJECTIONS * widths.fold(0.0, f64::max)
    };
    1.0 / adapter.map_or_else(|| f64::from(student.config().hidden), of_adapters)
}

/// Trains twice, one run after the other, and says what came of it.
///
/// # Errors
/// [`Failure`] where a run cannot start or the device fails; what the runs show is in the record.
pub fn smoke(mut config: RunConfig, lr: Option<f64>) -> Result<Record, Failure> {
    let seed = config.order.seed;
    let seeds = [1, 2].map(|role| seed.wrapping_add(role));
    let models = RunModels::open_or_random(&config, seeds)?;
    let adapter = models.adapter.as_ref();
    config.optimizer.lr = lr.unwrap_or_else(|| learning_rate(models.student(), adapter));
    let batch = batch(config.shape, seed, models.student().config().vocab);
    let mut session = Session::of(&models, &config)?;
    let (device, arch) = (session.device().name.clone(), session.plan.plan.arch.to_string());
    let (bundle, kernels) = (session.bundle.to_string(), session.loads());
    let teacher_format = config.teacher_format.map(|_| session.teacher_format.to_string());
    let first = train(&config, &mut session, &batch)?;
    // One driver at a time.
    drop(session);
    let second = train(&config, &mut Session::of(&models, &config)?, &batch)?;
    let reason = fault(&first, &second);
    Ok(Record {
        ok: reason.is_none(),
        reason,
        device,
        arch,
        bundle,
        kernels,
        precision: config.arithmetic.precision.to_string(),
        gemm: config.arithmetic.gemm.to_string(),
        teacher_format,
        adapter: adapter.map(ToString::to_string),
        student_format: adapter.map(|_| models.shapes().student_format(&config).to_string()),
        tokens: u64::from(batch.counted),
        lr: config.optimizer.lr,
        losses: first.losses.iter().map(|loss| finite(*loss)).collect(),
        ratio: finite(ratio(&first.losses)),
        loads_after_seal: first.loads_after_seal + second.loads_after_seal,
        bits_equal: same_bits(&first, &second),
        step_ms: median(first.step_ms),
    })
}

/// The batch of every step: rows of one cycle, from places of their own.
fn batch(ShapeOptions { batch_size, seq_len }: ShapeOptions, seed: u64, vocab: u32) -> MicroBatch {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let length = (vocab / 8).clamp(2, CYCLE).min(vocab) as usize;
    let mut seen = BTreeSet::new();
    let cycle: Vec<u32> =
        std::iter::repeat_with(|| rng.random_range(0..vocab)).filter(|id| seen.insert(*id)).take(length).collect();
    let rows: Vec<Vec<u32>> = (0..batch_size)
        .map(|_| {
            let start = rng.random_range(0..length);
            cycle.iter().cycle().skip(start).take(seq_len as usize + 1).copied().collect()
        })
        .collect();
    MicroBatch::new(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>(), seq_len as usize)
}

fn train(config: &RunConfig, session: &mut Session, batch: &MicroBatch) -> Result<Run, Failure> {
    let (mut losses, mut ends, mut skipped) = (Vec::new(), vec![Instant::now()], 0);
    let mut arrive = |session: &mut Session, ticket| -> Result<(), Failure> {
        let (metrics, at) = session.metrics(ticket)?;
        losses.push(config.loss(&metrics));
        skipped += u64::from(metrics.skipped != 0);
        ends.push(at);
        Ok(())
    };
    let mut pending = None;
    for step in 0..config.steps() {
        session.micro(batch, (1.0 / f64::from(batch.counted)) as f32, 0)?;
        let lr = config.optimizer.lr_of(step, config.steps());
        // The metrics of a step are read while the next one runs.
        if let Some(previous) = pending.replace(session.update(step, lr)?) {
            arrive(session, previous)?;
        }
    }
    if let Some(last) = pending {
        arrive(session, last)?;
    }
    let weights = weights(session)?;
    let step_ms = ends.windows(2).map(|pair| 1e3 * (pair[1] - pair[0]).as_secs_f64()).collect();
    Ok(Run { losses, weights, skipped, loads_after_seal: session.loads_after_seal(), step_ms })
}

/// Digest of the master weights of what trains, a parameter at a time.
fn weights(session: &mut Session) -> Result<Digest, Failure> {
    let of_adapter = session.adapter_parameters();
    let digests: Result<Vec<Digest>, Failure> = if of_adapter.is_empty() {
        let parameters = session.plan.student.weights.parameters.list.clone();
        parameters.iter().map(|parameter| Ok(Digest::of(&session.master(parameter)?))).collect()
    } else {
        let matrices = of_adapter.iter();
        matrices.map(|matrix| Ok(Digest::of(bytemuck::cast_slice(&session.adapter_master(matrix)?)))).collect()
    };
    let digests = digests?;
    Ok(Digest::of_parts("precast.weights", digests.iter().map(|digest| &digest.0[..])))
}

/// The mean of the last losses over that of the first.
fn ratio(losses: &[f64]) -> f64 {
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    mean(&losses[losses.len() - MEAN_OF..]) / mean(&losses[..MEAN_OF])
}

fn same_bits(first: &Run, second: &Run) -> bool {
    let bits = |run: &Run| run.losses.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>();
    bits(first) == bits(second) && first.weights == second.weights
}

/// Returns the first fault of two runs of the same; none where all is as it must be.
fn fault(first: &Run, second: &Run) -> Option<String> {
    let late = first.loads_after_seal + second.loads_after_seal;
    let not_finite = first.losses.iter().position(|loss| !loss.is_finite());
    let ratio = ratio(&first.losses);
    if let Some(step) = not_finite {
        return Some(format!("the loss of step {} is not finite", step + 1));
    }
    if first.skipped > 0 {
        return Some(format!("{} steps had a gradient that is not finite", first.skipped));
    }
    if late > 0 {
        return Some(format!("{late} modules were loaded after the seal"));
    }
    if !same_bits(first, second) {
        let differing = first.losses.iter().zip(&second.losses).position(|(a, b)| a.to_bits() != b.to_bits());
        let from =
            differing.map_or("in the final weights alone".to_owned(), |step| format!("from step {} on", step + 1));
        return Some(format!("a second run of the same has other bits, {from}"));
    }
    // Also where a loss of 0 makes no ratio.
    let fell = ratio <= MOST_RATIO;
    (!fell).then(|| format!("the last losses are {ratio:.3} of the first, at most {MOST_RATIO} was expected"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(losses: &[f64]) -> Run {
        Run { losses: losses.to_vec(), weights: Digest::of(b""), skipped: 0, loads_after_seal: 0, step_ms: vec![1.0] }
    }

    fn falling(last: f64) -> Run {
        run(&[[10.0; 5], [last; 5]].concat())
    }

    #[test]
    fn everything_that_is_wrong_is_a_reason() {
        let good = falling(8.0);
        assert_eq!(fault(&good, &good), None);
        let reason = |first: &Run, second: &Run| fault(first, second).unwrap();
        assert!(reason(&falling(8.1), &falling(8.1)).contains("0.810 of the first"));
        assert!(reason(&falling(f64::NAN), &falling(f64::NAN)).contains("step 6 is not finite"));
        assert!(reason(&run(&[0.0; 10]), &run(&[0.0; 10])).contains("of the first"));
        assert!(reason(&Run { skipped: 1, ..good.clone() }, &good).contains("1 steps"));
        assert!(reason(&good, &Run { loads_after_seal: 1, ..good.clone() }).contains("after the seal"));
        assert!(reason(&good, &falling(7.999_999)).contains("other bits, from step 6 on"));
        let weights = Run { weights: Digest::of(b"other"), ..good.clone() };
        assert!(reason(&good, &weights).contains("in the final weights alone"));
    }

    #[test]
    fn each_token_of_the_batch_says_which_comes_next() {
        let shape = ShapeOptions { batch_size: 4, seq_len: 300 };
        for (vocab, expected) in [(49152, 256), (96, 12), (3, 2)] {
            let batch = batch(shape, 0, vocab);
            let next: std::collections::BTreeMap<u32, u32> =
                batch.ids.iter().copied().zip(batch.targets.iter().copied()).collect();
            assert!(batch.ids.iter().zip(&batch.targets).all(|(id, target)| next[id] == *target && *id < vocab));
            assert_eq!((next.len(), batch.counted), (expected, 1200), "{vocab}");
        }
    }
}
