//! Kernels of a step, as `bench.json` and people read them.

use std::fmt;

use precast_plan::chips::Peak;
use serde::Serialize;

use super::groups::Group;
use super::timing::{SAMPLES, median};
use crate::run::failure::Failure;
use crate::run::report::Bar;

/// Launches of one kernel with one shape.
#[derive(Clone, Debug, Serialize)]
pub struct KernelRecord {
    /// Key and variant, or cublas.
    pub kernel: String,
    /// Operation that it computes.
    #[serde(skip)]
    pub key: String,
    /// In which shape, for a product: m x n x k.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// CTAs of a launch along x, y and z; none by cuBLASLt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grid: Option<[u32; 3]>,
    /// Purpose of the launches.
    pub purpose: String,
    /// The phase they are in.
    pub phase: String,
    /// Launches a step.
    pub launches: u64,
    /// Time of one.
    pub launch_us: f64,
    /// Time of all of a step.
    pub step_ms: f64,
    /// That, as a share of the step.
    pub share: f64,
    /// Arithmetic over time, where there is any.
    pub tflop_per_s: Option<f64>,
    /// Bytes of the operands over time, each read once and written once.
    pub tb_per_s: f64,
    /// The least time by the device's limits, as a share of the time.
    pub share_of_limit: Option<f64>,
    /// True if arithmetic, not memory, sets that limit.
    pub bound_by_arithmetic: bool,
}

impl KernelRecord {
    /// From the seconds of one launch and how often a step runs the phase.
    pub(super) fn new(group: &Group, seconds: f64, times: u64, step_s: f64, limit: Option<Peak>) -> Self {
        let launch = &group.launches[0];
        let launches = times * group.launches.len() as u64;
        let (flops, bytes) = (launch.flops(), launch.bytes());
        let all_s = seconds * launches as f64;
        Self {
            kernel: group.code(),
            key: launch.key.to_string(),
            problem: group.problem(),
            grid: group.grid(),
            purpose: group.purpose(),
            phase: group.phase.clone(),
            launches,
            launch_us: seconds * 1e6,
            step_ms: all_s * 1e3,
            share: all_s / step_s,
            tflop_per_s: (flops > 0).then_some(flops as f64 / seconds / 1e12),
            tb_per_s: bytes as f64 / seconds / 1e12,
            share_of_limit: limit.map(|limit| limit.seconds(launch) / seconds),
            bound_by_arithmetic: match limit {
                Some(limit) => limit.arithmetic_seconds(launch) * limit.bytes_per_s > bytes as f64,
                None => flops > 0,
            },
        }
    }

    /// Returns the rate that bounds it, as people read it.
    pub(super) fn rate(&self) -> String {
        match self.tflop_per_s {
            Some(rate) if self.bound_by_arithmetic => format!("{rate:.1} TFLOP/s"),
            _ => format!("{:.2} TB/s", self.tb_per_s),
        }
    }

    /// Measures groups of launches of a step of so many seconds: `prepare` has a step leave behind what each of them
    /// works on, and
    /// `sample` takes the time of one launch, seconds.
    pub(super) fn measure<C>(
        device: &mut C,
        groups: &[Group],
        (times, step_s, limit): (impl Fn(&str) -> u64, f64, Option<Peak>),
        mut prepare: impl FnMut(&mut C) -> Result<(), Failure>,
        sample: impl Fn(&mut C, &Group) -> Result<f64, Failure>,
    ) -> Result<Vec<Self>, Failure> {
        let kernels = groups.iter().map(|group| {
            prepare(device)?;
            let seconds = median((0..SAMPLES).map(|_| sample(device, group)).collect::<Result<_, Failure>>()?);
            Ok(Self::new(group, seconds, times(&group.phase), step_s, limit))
        });
        let mut kernels = kernels.collect::<Result<Vec<Self>, Failure>>()?;
        kernels.sort_by(|a, b| b.step_ms.total_cmp(&a.step_ms));
        Ok(kernels)
    }

    /// Draws it.
    pub(super) fn bar(&self) -> Bar {
        Bar {
            name: format!("{}  {}", shortened(&self.purpose, 34), self.kernel.split('{').next().unwrap_or("")),
            value: self.step_ms,
            part: self.share_of_limit.unwrap_or(0.0) * self.step_ms,
            note: format!("{:.2} ms, {}", self.step_ms, self.rate()),
        }
    }
}

/// Legend of a bar's part and of the bar.
pub(super) const PARTS: [&str; 2] = ["the least by the device's limits", "measured"];

/// Writes kernels of a step as a table, in their order.
pub(super) fn kernels_text(kernels: &[KernelRecord], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "\nlaunches  us/launch   ms/step   share           rate  of limit  {:<44}  kernel", "for")?;
    for kernel in kernels {
        let share_of_limit = kernel.share_of_limit.map_or("-".to_owned(), |share| format!("{:.1} %", 100.0 * share));
        writeln!(
            f,
            "{:>8} {:>10.2} {:>9.3} {:>5.1} % {:>14} {share_of_limit:>9}  {:<44}  {}",
            kernel.launches,
            kernel.launch_us,
            kernel.step_ms,
            100.0 * kernel.share,
            kernel.rate(),
            shortened(&kernel.purpose, 44),
            kernel.kernel,
        )?;
    }
    Ok(())
}

/// At most so many characters of a text.
pub(super) fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use precast_kernels::Arch;

    use super::super::groups::add_step;
    use super::super::tests::plan;
    use super::*;

    #[test]
    fn a_kernel_at_its_limit_has_all_of_it() {
        let limit = Peak::of(Arch::Sm90a).unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9 * b;
        for group in add_step(&mut plan(Arch::Sm90a)) {
            let least = limit.seconds(&group.launches[0]);
            let record = KernelRecord::new(&group, least, 3, 1.0, Some(limit));
            assert!(near(record.share_of_limit.unwrap(), 1.0));
            assert_eq!(record.launches, 3 * group.launches.len() as u64);
            assert!(near(record.share, least * record.launches as f64));
            match record.bound_by_arithmetic {
                true => assert!(near(record.tflop_per_s.unwrap() * 1e12, limit.bf16_flops), "{}", record.kernel),
                false => assert!(near(record.tb_per_s * 1e12, limit.bytes_per_s), "{}", record.kernel),
            }
        }
    }
}
