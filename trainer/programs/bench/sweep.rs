//! Sweep of the work of a step: how tokens a second and memory change with it.

use std::fmt;

use precast_plan::estimate::floor_seconds;
use precast_plan::{MemoryTable, PlanError, human_bytes};
use serde::Serialize;

use super::open::{Bench, Reader};
use super::timing::median;
use crate::base::startup_times::Startup;
use crate::device::DeviceError;
use crate::options::RunConfig;
use crate::run::failure::Failure;
use crate::run::report::svg::{BLUE, GREEN, ORANGE, PURPLE, RED};
use crate::run::report::{Axis, Chart, Series};

/// Sequences in a micro-batch.
const BATCH_SIZES: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// Tokens in a sequence, and the color of its line.
const SEQ_LENS: [(u32, &str); 5] = [(512, BLUE), (1024, ORANGE), (2048, GREEN), (4096, PURPLE), (8192, RED)];
/// Steps of a point take about so long.
const POINT_S: f64 = 0.5;

/// Steps over batch sizes and sequence lengths.
#[derive(Clone, Debug, Serialize)]
pub struct Sweep {
    /// Points that were measured.
    pub points: Vec<Point>,
    /// Points that this device or these models cannot do.
    pub left_out: Vec<LeftOut>,
}

/// A step of one shape.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Point {
    /// Sequences in a micro-batch.
    pub batch_size: u32,
    /// Tokens in each.
    pub seq_len: u32,
    /// The median of several steps.
    pub step_ms: f64,
    /// Tokens over time.
    pub tokens_per_s: f64,
    /// The least time its arithmetic can take, as a share of that.
    pub share_of_floor: Option<f64>,
    /// Device memory by the plan.
    pub planned_bytes: u64,
}

/// A shape without a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct LeftOut {
    /// Sequences in a micro-batch.
    pub batch_size: u32,
    /// Tokens in each.
    pub seq_len: u32,
    pub reason: String,
}

/// Measures a step of every batch size and sequence length that fits the device and the models, a seal each.
///
/// # Errors
/// [`Failure`] of the models or the device.
pub fn sweep(config: &RunConfig) -> Result<Sweep, Failure> {
    let mut sweep = Sweep { points: Vec::new(), left_out: Vec::new() };
    for ((seq_len, _), batch_size) in SEQ_LENS.into_iter().flat_map(|s| BATCH_SIZES.map(|b| (s, b))) {
        let mut config = config.clone();
        (config.shape.batch_size, config.shape.seq_len) = (batch_size, seq_len);
        let reason = match point(&config) {
            Ok(point) => {
                sweep.points.push(point);
                continue;
            }
            Err(Failure::Device(DeviceError::Memory(unfit))) => {
                format!("needs {}, {} are free", human_bytes(unfit.takes.bytes), human_bytes(unfit.memory.free))
            }
            Err(Failure::Plan(PlanError::SequenceTooLong { role, max_positions, .. })) => {
                format!("the {role} takes sequences of {max_positions}")
            }
            Err(other) => return Err(other),
        };
        sweep.left_out.push(LeftOut { batch_size, seq_len, reason });
    }
    Ok(sweep)
}

fn point(config: &RunConfig) -> Result<Point, Failure> {
    let Bench { mut session, mut steps, .. } = Bench::open(config, &mut Startup::default(), Reader::Program, |_| ())?;
    let once = median(steps.time(&mut session, 1)?);
    let count = ((POINT_S / once) as u64).clamp(3, config.steps().max(3));
    let step_s = median(steps.time(&mut session, count)?);
    let plan = &session.plan.plan;
    let tokens =
        u64::from(config.division.grad_accum) * u64::from(config.shape.batch_size) * u64::from(config.shape.seq_len);
    Ok(Point {
        batch_size: config.shape.batch_size,
        seq_len: config.shape.seq_len,
        step_ms: step_s * 1e3,
        tokens_per_s: tokens as f64 / step_s,
        share_of_floor: session
            .device()
            .peak()
            .map(|limit| floor_seconds(plan, config.division.grad_accum, &limit) / step_s),
        planned_bytes: MemoryTable::of(plan).total_bytes,
    })
}

impl Sweep {
    /// Two charts over the batch size, a line for each sequence length.
    pub(super) fn svg(&self) -> String {
        let chart = |title, value: fn(&Point) -> f64| {
            let line = |(seq_len, color)| {
                let of_line = self.points.iter().filter(|point| point.seq_len == seq_len);
                let points = of_line.map(|point| (f64::from(point.batch_size), value(point))).collect();
                Series { name: format!("{seq_len} tokens a sequence"), color, points }
            };
            Chart { title, axis: Axis::Doublings, series: SEQ_LENS.map(line).into() }.svg()
        };
        let speed = chart("Tokens a second over sequences in a batch", |point| point.tokens_per_s);
        let gib = |point: &Point| point.planned_bytes as f64 / f64::from(1 << 30);
        speed + &chart("Planned memory, GiB, over sequences in a batch", gib)
    }
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "batch x sequence    ms/step   tokens/s  of floor  planned memory")?;
        for Point { batch_size, seq_len, step_ms, tokens_per_s, share_of_floor, planned_bytes } in &self.points {
            let share = share_of_floor.map_or("-".to_owned(), |share| format!("{:.1} %", 100.0 * share));
            let memory = human_bytes(*planned_bytes);
            write!(f, "\n{batch_size:>5} x {seq_len:<8} {step_ms:>10.2} {tokens_per_s:>10.0} {share:>9} {memory:>15}")?;
        }
        for LeftOut { batch_size, seq_len, reason } in &self.left_out {
            write!(f, "\n{batch_size:>5} x {seq_len:<8} left out: {reason}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_a_table_and_two_charts() {
        let point = |batch_size, share_of_floor| Point {
            batch_size,
            seq_len: 512,
            step_ms: 16.625,
            tokens_per_s: 30_797.0 * f64::from(batch_size),
            share_of_floor,
            planned_bytes: (12 << 30) * u64::from(batch_size),
        };
        let left_out =
            LeftOut { batch_size: 32, seq_len: 8192, reason: "needs 280.00 GiB, 139.00 GiB are free".into() };
        let sweep = Sweep { points: vec![point(1, Some(0.24)), point(2, None)], left_out: vec![left_out] };
        insta::assert_snapshot!(sweep);
        let svg = sweep.svg();
        assert_eq!((svg.matches("<svg").count(), svg.matches("<circle").count()), (2, 4));
        assert!(!svg.contains("NaN"));
    }
}
