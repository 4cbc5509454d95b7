//! `precast bench step`: start-up, steps and every kernel of one.

use std::fmt;

use precast_plan::Gemm;
use precast_plan::chips::Peak;
use precast_plan::estimate::{floor_seconds, of_step, step_flops};
use serde::Serialize;

use super::compare::StepComparison;
use super::groups;
use super::kernel_record::KernelRecord;
use super::open::{Bench, Reader, of_models, recorded};
use super::record::{Measured, Record};
use super::rows;
use super::sweep::Sweep;
use super::timing::{median, sample};
use crate::base::startup_times::Startup;
use crate::device::session::Session;
use crate::options::RunConfig;
use crate::run::failure::Failure;
use crate::run::report::Bar;

/// A step of a configuration.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StepResult {
    config: RunConfig,
    /// The version of cuBLASLt, where that computes the products.
    #[serde(skip_serializing_if = "Option::is_none")]
    cublas: Option<String>,
    /// Comparison with the same step by the bundle's kernels alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    beside_bundle: Option<StepComparison>,
    pub step: StepTimes,
    /// Steps of other shapes, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Sweep>,
}

/// A step: the median of many.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StepTimes {
    pub step_ms: f64,
    /// Tokens it trains on.
    pub tokens: u64,
    /// Tokens over time.
    pub tokens_per_s: f64,
    /// Tokens of rows of data over the time of all steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_tokens_per_s: Option<f64>,
    /// Share of the places that no row of data takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub padding_share: Option<f64>,
    /// Arithmetic of its products, FLOP.
    pub flops: u64,
    /// The least time that arithmetic can take on this device.
    pub floor_ms: Option<f64>,
    /// That, as a share of the step: of the speed of light.
    pub share_of_floor: Option<f64>,
    pub launches: u64,
    /// Bytes that it reads of a cache, on the average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden_bytes: Option<u64>,
    /// All of its kernels, one after the other.
    pub kernels_ms: f64,
    /// The step less its kernels: the device idle between launches. Below 0 where launches overlap.
    pub between_ms: f64,
}

/// Measures start-up, steps, and every kernel of a step; where cuBLASLt computes the products, those of the bundle's
/// kernels too.
///
/// # Errors
/// [`Failure`] of the models or the device.
pub(crate) fn bench(config: &RunConfig, mut startup: Startup, reader: Reader) -> Result<Record<StepResult>, Failure> {
    startup.end("arguments");
    let mut record = measure(config, startup, reader)?;
    if let Some(version) = record.measured.cublas.clone() {
        let mut by_bundle = config.clone();
        by_bundle.arithmetic.gemm = Gemm::Bundle;
        let bundle = measure(&by_bundle, Startup::default(), Reader::Program)?;
        record.measured.beside_bundle = Some(StepComparison::new(version, timed(&record), timed(&bundle)));
    }
    Ok(record)
}

fn timed(record: &Record<StepResult>) -> (f64, u64, &[KernelRecord]) {
    (record.measured.step.step_ms, record.modules_loaded, &record.kernels)
}

fn measure(config: &RunConfig, mut startup: Startup, reader: Reader) -> Result<Record<StepResult>, Failure> {
    let (config, data) = &rows::steps(config)?;
    let Bench { mut session, mut steps, of_plan: groups } =
        Bench::open_on((config, data), &mut startup, reader, groups::add_step)?;
    let seconds = steps.time(&mut session, config.steps())?;
    // Two steps come before those that are timed: that of the start-up, and one that the first of them follows.
    let timed = data.iter().cycle().skip(2).take(if data.is_empty() { 0 } else { seconds.len() });
    let (tokens, places) = timed.fold((0, 0), |sum, step| (sum.0 + step.predicting(), sum.1 + step.places()));
    let of_rows = (places > 0).then(|| (tokens as f64, tokens as f64 / places as f64, seconds.iter().sum::<f64>()));
    let step_s = median(seconds);
    let of_step: Vec<(String, u64)> = of_step(&session.plan.plan, config.division.grad_accum)
        .into_iter()
        .map(|(phase, times)| (phase.to_owned(), times.into()))
        .collect();
    let times = |phase: &str| of_step.iter().find(|(name, _)| name == phase).map_or(1, |(_, times)| *times);
    let step = (times, step_s, session.device().peak());
    let kernels = KernelRecord::measure(&mut session, &groups, step, |session| Ok(steps.one(session)?), sample)?;
    let measured = StepResult {
        config: recorded(config, &session),
        cublas: session.cublas().map(|cublas| cublas.version.to_string()),
        beside_bundle: None,
        step: StepTimes {
            row_tokens_per_s: of_rows.map(|(tokens, _, all_s)| tokens / all_s),
            padding_share: of_rows.map(|(_, fill, _)| 1.0 - fill),
            ..StepTimes::new(config, &session, step_s, of_rows.is_none(), &kernels)
        },
        sweep: None,
    };
    Ok(Record::new(measured, (&session.plan.plan, &session), kernels, &startup))
}

impl StepTimes {
    /// Adds up a step's kernels. A floor is known of full rows alone: attention of others is less.
    fn new(config: &RunConfig, session: &Session, step_s: f64, is_full: bool, kernels: &[KernelRecord]) -> Self {
        let (plan, accum) = (&session.plan.plan, u64::from(config.division.grad_accum));
        let kernels_ms: f64 = kernels.iter().map(|kernel| kernel.step_ms).sum();
        let tokens = accum * u64::from(config.shape.batch_size) * u64::from(config.shape.seq_len);
        let limit = session.device().peak().filter(|_| is_full);
        let floor_s = limit.map(|limit| floor_seconds(plan, config.division.grad_accum, &limit));
        Self {
            step_ms: step_s * 1e3,
            tokens,
            tokens_per_s: tokens as f64 / step_s,
            row_tokens_per_s: None,
            padding_share: None,
            flops: step_flops(plan, config.division.grad_accum),
            floor_ms: floor_s.map(|floor_s| floor_s * 1e3),
            share_of_floor: floor_s.map(|floor_s| floor_s / step_s),
            launches: kernels.iter().map(|kernel| kernel.launches).sum(),
            hidden_bytes: session
                .hidden
                .iter()
                .flatten()
                .next()
                .map(|hidden| accum * hidden.read.bytes / hidden.read.batches),
            kernels_ms,
            between_ms: step_s * 1e3 - kernels_ms,
        }
    }
}

impl Measured for StepResult {
    fn summary(&self, limit: Option<Peak>) -> Vec<(&'static str, String)> {
        let StepTimes { step_ms, tokens, tokens_per_s, hidden_bytes, kernels_ms, launches, .. } = self.step;
        let config = &self.config;
        let shape =
            format!("{} x {} x {} tokens", config.division.grad_accum, config.shape.batch_size, config.shape.seq_len);
        let mut rows = of_models(config.models());
        rows.push(("step", format!("{step_ms:.2} ms, median of {}", config.steps())));
        let precision = config.arithmetic.precision;
        rows.push(("tokens", format!("{tokens} ({shape}, {precision}), {tokens_per_s:.0} a second")));
        if let Some((rate, padding)) = self.step.row_tokens_per_s.zip(self.step.padding_share) {
            rows.push(("in rows", format!("{rate:.0} tokens a second, {:.1} % padding", 100.0 * padding)));
        }
        if let (Some(floor_ms), Some(share), Some(limit)) = (self.step.floor_ms, self.step.share_of_floor, limit) {
            let flops = self.step.flops as f64 / 1e12;
            let floor = format!("{:.1} % of floor: {flops:.2} TFLOP take {floor_ms:.2} ms", 100.0 * share);
            rows.push(("speed of light", format!("{floor} by the figures of {}", limit.device)));
        }
        if let Some(bytes) = hidden_bytes {
            let rate = bytes as f64 / step_ms / 1e3;
            rows.push(("cache", format!("{bytes} bytes a step are read of the cache, {rate:.1} MB/s")));
        }
        rows.push(("kernels", format!("{kernels_ms:.2} ms in {launches} launches, one after the other")));
        rows.push(match self.step.between_ms {
            idle if idle >= 0.0 => ("between launches", format!("{idle:.2} ms")),
            overlap => ("launches overlap", format!("by {:.2} ms", -overlap)),
        });
        rows
    }

    fn behind(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.beside_bundle.iter().try_for_each(|comparison| writeln!(f, "\n{comparison}"))?;
        self.sweep.iter().try_for_each(|sweep| writeln!(f, "\n{sweep}"))
    }

    fn last_bar(&self) -> Option<Bar> {
        let idle = self.step.between_ms;
        let note = format!("{idle:.2} ms");
        Some(Bar { name: "between launches".to_owned(), value: idle.max(0.0), part: 0.0, note })
    }

    fn svg(&self) -> String {
        self.sweep.as_ref().map(Sweep::svg).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use precast_kernels::Arch;
    use precast_plan::estimate::{flops, seconds};
    use precast_plan::training::{MICRO, UPDATE};

    use super::super::tests::plan;
    use super::*;

    #[test]
    fn no_step_is_faster_than_its_floor() {
        let (plan, limit) = (plan(Arch::Sm90a), Peak::of(Arch::Sm90a).unwrap());
        let roofline = 2.0 * seconds(&plan, MICRO, &limit) + seconds(&plan, UPDATE, &limit);
        let floor = floor_seconds(&plan, 2, &limit);
        assert!(0.0 < floor && floor <= roofline, "{floor} {roofline}");
        let products = (2 * flops(&plan, MICRO) + flops(&plan, UPDATE)) as f64;
        assert!((floor - products / limit.bf16_flops).abs() < 1e-3 * floor);
    }
}
