//! Results of a benchmark, as data.

use precast_plan::estimate::floor_seconds;
use precast_plan::training::{MICRO, UPDATE};
use precast_plan::{chips::Peak, estimate::flops};
use serde::Serialize;
use serde_json::Value;

use super::groups::Group;
use super::sweep::Sweep;
use crate::base::startup_times::{Startup, StartupRecord};
use crate::device::session::Session;
use crate::options::RunConfig;
use crate::run::record::{MemoryRecord, of_device};

/// `bench.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// Version of this program.
    pub version: &'static str,
    /// Configuration of the run.
    pub config: RunConfig,
    pub device: Value,
    /// Digest of the bundle whose kernels ran.
    pub bundle: String,
    /// The version of cuBLASLt, where that computes the products.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cublas: Option<String>,
    /// Comparison with the same step by the bundle's kernels alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside_bundle: Option<StepComparison>,
    /// Modules loaded of it.
    pub modules_loaded: u64,
    /// Returns the highest rates of the device; none for the simulated GPU.
    pub limit: Option<Peak>,
    pub step: StepRecord,
    /// Its kernels, those that take longest first.
    pub kernels: Vec<KernelRecord>,
    /// Memory by category, planned and taken.
    pub memory: MemoryRecord,
    /// Process start to the end of the first step, by phase.
    pub startup: StartupRecord,
    /// Steps of other shapes, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Sweep>,
}

/// A step whose products cuBLASLt computes, beside the same step by the bundle's kernels alone.
#[derive(Clone, Debug, Serialize)]
pub struct StepComparison {
    /// Version of cuBLASLt.
    pub version: String,
    pub cublas_step_ms: f64,
    pub bundle_step_ms: f64,
    /// Modules loaded with cuBLASLt and without it.
    pub modules_loaded: [u64; 2],
    /// Every product of the step, those that take longest first.
    pub products: Vec<ProductTimes>,
}

/// One product, computed by either.
#[derive(Clone, Debug, Serialize)]
pub struct ProductTimes {
    pub key: String,
    /// m x n x k.
    pub problem: String,
    pub purpose: String,
    /// A step.
    pub launches: u64,
    pub cublas_us: f64,
    /// None where the bundle has no launch of it alone.
    pub bundle_us: Option<f64>,
    /// The kernel of the bundle: where it is `gemm.swiglu`, SwiGLU is part of its time alone.
    pub bundle_kernel: Option<String>,
}

/// A step: the median of many.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StepRecord {
    pub step_ms: f64,
    /// Tokens it trains on.
    pub tokens: u64,
    /// Tokens over time.
    pub tokens_per_s: f64,
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

impl Record {
    /// From the seconds of a step, and of one launch of each group.
    pub(super) fn new(
        config: &RunConfig,
        session: &Session,
        startup: &Startup,
        step_s: f64,
        groups: &[Group],
        launch_s: &[f64],
    ) -> Self {
        let (plan, limit) = (&session.plan.plan, session.device().peak());
        let accum = u64::from(config.division.grad_accum);
        let times = |phase: &str| if phase == MICRO { accum } else { 1 };
        let mut kernels: Vec<KernelRecord> = groups
            .iter()
            .zip(launch_s)
            .map(|(group, seconds)| KernelRecord::new(group, *seconds, times(&group.phase), step_s, limit))
            .collect();
        kernels.sort_by(|a, b| b.step_ms.total_cmp(&a.step_ms));
        let kernels_ms: f64 = kernels.iter().map(|kernel| kernel.step_ms).sum();
        let tokens = accum * u64::from(config.shape.batch_size) * u64::from(config.shape.seq_len);
        let floor_s = limit.map(|limit| floor_seconds(plan, config.division.grad_accum, &limit));
        let step = StepRecord {
            step_ms: step_s * 1e3,
            tokens,
            tokens_per_s: tokens as f64 / step_s,
            flops: accum * flops(plan, MICRO) + flops(plan, UPDATE),
            floor_ms: floor_s.map(|floor_s| floor_s * 1e3),
            share_of_floor: floor_s.map(|floor_s| floor_s / step_s),
            launches: kernels.iter().map(|kernel| kernel.launches).sum(),
            hidden_bytes: session.hidden.as_ref().map(|hidden| accum * hidden.read.bytes / hidden.read.batches),
            kernels_ms,
            between_ms: step_s * 1e3 - kernels_ms,
        };
        Self {
            version: env!("CARGO_PKG_VERSION"),
            config: RunConfig {
                teacher_format: config.teacher_format.map(|_| session.teacher_format),
                ..config.clone()
            },
            device: of_device(session.device()),
            bundle: session.bundle.to_string(),
            cublas: session.cublas().map(|cublas| cublas.version.to_string()),
            beside_bundle: None,
            modules_loaded: session.loads(),
            limit,
            step,
            kernels,
            memory: MemoryRecord::of(session),
            startup: startup.record(),
            sweep: None,
        }
    }
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
}

#[cfg(test)]
mod tests {
    use precast_kernels::Arch;
    use precast_plan::estimate::seconds;

    use super::super::groups::{STEP, add};
    use super::super::tests::plan;
    use super::*;

    #[test]
    fn a_kernel_at_its_limit_has_all_of_it() {
        let limit = Peak::of(Arch::Sm90a).unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9 * b;
        for group in add(&mut plan(Arch::Sm90a), &STEP) {
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
