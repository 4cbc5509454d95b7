//! Readings of the GPU in the steps of a run, by NVML: as `step_ms`, they differ from run to run, and nothing that
//! trains depends on them.

use std::fmt;

use itertools::Itertools;
use precast_runtime::{Gauge, Mean, Reading};
use serde::{Deserialize, Serialize};

use crate::base::notes::note;

/// Why clocks are not higher, by the bits of nvml.h.
const REASONS: [&str; 9] = [
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
];
/// `sw_power_cap` and `hw_power_brake_slowdown`.
const BY_POWER: u64 = 0x84;
/// `sw_thermal_slowdown` and `hw_thermal_slowdown`.
const BY_TEMPERATURE: u64 = 0x60;

/// Readings of the GPU in a line of `metrics.jsonl`, over the steps since the line before that has them. A field that
/// the chip does not support is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_clock_mhz: Option<u32>,
    /// SM clock of the rank whose clock was the lowest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowest_sm_clock_mhz: Option<u32>,
    /// The highest one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<u32>,
    /// Share of the time in which a kernel ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_busy_percent: Option<u32>,
    /// Why clocks were not higher: what was seen at any moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Vec<String>>,
}

fn rounded(mean: Mean) -> Option<u32> {
    mean.value().map(|value| value.round() as u32)
}

impl GpuRecord {
    fn of(reading: &Reading) -> Self {
        let names = |bits: u64| (0..64).filter(move |bit| bits >> bit & 1 == 1).map(name);
        Self {
            power_w: reading.power_w.value().map(|watts| (10.0 * watts).round() / 10.0),
            sm_clock_mhz: rounded(reading.sm_clock_mhz),
            slowest_sm_clock_mhz: None,
            temperature_c: reading.temperature_c,
            gpu_busy_percent: rounded(reading.busy_percent),
            throttle: reading.throttle.map(|bits| names(bits).collect()),
        }
    }

    /// Combines the records of all lines of a run.
    pub fn of_run<'a>(lines: impl Iterator<Item = &'a Self>) -> Self {
        let mut all = Reading::default();
        for gpu in lines {
            all.add(&Reading {
                power_w: Mean::of(gpu.power_w),
                sm_clock_mhz: Mean::of(gpu.sm_clock_mhz.map(f64::from)),
                busy_percent: Mean::of(gpu.gpu_busy_percent.map(f64::from)),
                temperature_c: gpu.temperature_c,
                throttle: None,
            });
        }
        Self::of(&all)
    }
}

/// The name of a reason; one that nvml.h did not have yet is its number.
fn name(bit: usize) -> String {
    REASONS.get(bit).map_or_else(|| format!("{:#x}", 1u64 << bit), |name| (*name).to_owned())
}

impl fmt::Display for GpuRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.power_w.map(|watts| format!("{watts:.0} W")),
            self.sm_clock_mhz.map(|clock| format!("SM clock {clock} MHz")),
            self.temperature_c.map(|degrees| format!("{degrees} °C")),
            self.gpu_busy_percent.map(|percent| format!("{percent} % busy")),
        ];
        f.write_str(&parts.into_iter().flatten().join(", "))
    }
}

/// In how many steps something held the GPU's clock down, of those of which that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub steps: u64,
    pub power_limited_steps: u64,
    pub thermally_limited_steps: u64,
}

impl Limits {
    fn add(&mut self, reasons: u64) {
        self.steps += 1;
        self.power_limited_steps += u64::from(reasons & BY_POWER != 0);
        self.thermally_limited_steps += u64::from(reasons & BY_TEMPERATURE != 0);
    }

    /// For people; none where nothing did.
    pub fn text(&self) -> Option<String> {
        let of = |what: &str, steps: u64| {
            let percent = 100.0 * steps as f64 / self.steps as f64;
            let percent = if percent < 0.5 { "less than 1".to_owned() } else { format!("{percent:.0}") };
            (steps > 0).then(|| format!("{what} in {percent} % of the steps"))
        };
        let parts =
            [of("power-limited", self.power_limited_steps), of("thermally limited", self.thermally_limited_steps)];
        Some(parts.into_iter().flatten().join(", ")).filter(|text| !text.is_empty())
    }
}

/// This rank's GPU over the steps.
#[derive(Default)]
pub struct Gpu {
    gauge: Option<Gauge>,
    /// When the run begins.
    first: Reading,
    /// Since the last line that says it.
    since: Reading,
    /// Means of each rank's SM clock since that line, where there are several ranks.
    clocks: Vec<Mean>,
    /// In the last step; before it the first reading. For the other ranks.
    pub sm_clock_mhz: Option<u32>,
    limits: Limits,
}

impl Gpu {
    /// Waits until the GPU is known. Where nobody says what it does, a note says why.
    pub fn open(gauge: Option<Gauge>) -> Self {
        match gauge.as_ref().map(Gauge::opened) {
            None => Self::default(),
            Some(Ok(first)) => Self { gauge, first, sm_clock_mhz: rounded(first.sm_clock_mhz), ..Self::default() },
            Some(Err(error)) => {
                note(format_args!(
                    "nobody says what the GPU does: {error}. metrics.jsonl has no power, clocks and temperatures. NVML \
                     (libnvidia-ml.so.1) comes with the driver; a container has it if NVIDIA_DRIVER_CAPABILITIES \
                     names `utility`"
                ));
                Self::default()
            }
        }
    }

    /// Returns the GPU's state when the run begins, for its heading.
    pub fn heading(&self) -> Option<String> {
        Some(GpuRecord::of(&self.first).to_string()).filter(|text| !text.is_empty())
    }

    /// A step begins: what the GPU did before, for no step, is not said.
    pub fn begin(&self) {
        if let Some(gauge) = &self.gauge {
            gauge.take();
        }
    }

    /// A step has ended.
    pub fn step(&mut self) {
        let Some(gauge) = &self.gauge else { return };
        let reading = gauge.take();
        self.sm_clock_mhz = rounded(reading.sm_clock_mhz);
        reading.throttle.into_iter().for_each(|reasons| self.limits.add(reasons));
        self.since.add(&reading);
    }

    /// Takes the SM clocks that the ranks report.
    pub fn clocks(&mut self, of_ranks: &[Option<u32>]) {
        self.clocks.resize(of_ranks.len(), Mean::default());
        for (mean, clock) in self.clocks.iter_mut().zip(of_ranks) {
            mean.add(Mean::of(clock.map(f64::from)));
        }
    }

    /// Returns the record of the steps since the last call.
    pub fn record(&mut self) -> GpuRecord {
        let clocks = std::mem::take(&mut self.clocks);
        let slowest_sm_clock_mhz = clocks.into_iter().filter_map(rounded).min();
        GpuRecord { slowest_sm_clock_mhz, ..GpuRecord::of(&std::mem::take(&mut self.since)) }
    }

    /// Over the steps so far; none where that is not known.
    pub fn limits(&self) -> Option<Limits> {
        Some(self.limits).filter(|limits| limits.steps > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_the_names_of_nvml_h() {
        let of = |throttle| GpuRecord::of(&Reading { throttle, ..Reading::default() }).throttle;
        assert_eq!(of(Some(0x184)).unwrap(), ["sw_power_cap", "hw_power_brake_slowdown", "display_clock_setting"]);
        assert_eq!(of(Some(0x201)).unwrap(), ["gpu_idle", "0x200"]);
        assert_eq!((of(Some(0)), of(None)), (Some(Vec::new()), None));
    }

    #[test]
    fn only_power_and_temperature_limit_a_step() {
        let text = |reasons: &[u64]| {
            let mut limits = Limits::default();
            reasons.iter().for_each(|reasons| limits.add(*reasons));
            limits.text()
        };
        assert_eq!(text(&[0x4, 0x80, 0x0]).unwrap(), "power-limited in 67 % of the steps");
        let both = "power-limited in 50 % of the steps, thermally limited in 50 % of the steps";
        assert_eq!(text(&[0x24, 0x0]).unwrap(), both);
        assert_eq!(text(&[0x40]).unwrap(), "thermally limited in 100 % of the steps");
        let rare: Vec<u64> = (0..1000).map(|step| 4 * u64::from(step == 0)).collect();
        assert_eq!(text(&rare).unwrap(), "power-limited in less than 1 % of the steps");
        assert_eq!([text(&[0x1, 0x2, 0x8, 0x10, 0x100]), text(&[])], [None, None]);
    }

    #[test]
    fn the_slowest_rank_is_that_with_the_lowest_mean() {
        let mut gpu = Gpu::default();
        gpu.clocks(&[Some(1900), Some(1000), None]);
        gpu.clocks(&[Some(1500), Some(1980), None]);
        assert_eq!(gpu.record().slowest_sm_clock_mhz, Some(1490));
        assert_eq!(gpu.record(), GpuRecord::default());
    }
}
