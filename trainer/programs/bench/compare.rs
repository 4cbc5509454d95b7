//! Products by cuBLASLt beside those of the bundle's kernels, on one device.

use std::fmt;

use serde::Serialize;

use super::kernel_record::{KernelRecord, shortened};

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

/// Milliseconds of a step, modules loaded for it, and its kernels.
type Timed<'a> = (f64, u64, &'a [KernelRecord]);

impl StepComparison {
    /// Compares two measurements of the same step.
    pub(super) fn new(version: String, cublas: Timed<'_>, bundle: Timed<'_>) -> Self {
        let products = cublas.2.iter().filter(|kernel| kernel.kernel.ends_with("[cublas]"));
        Self {
            version,
            cublas_step_ms: cublas.0,
            bundle_step_ms: bundle.0,
            modules_loaded: [cublas.1, bundle.1],
            products: products.map(|product| ProductTimes::new(product, bundle.2)).collect(),
        }
    }
}

impl ProductTimes {
    fn new(product: &KernelRecord, bundle: &[KernelRecord]) -> Self {
        let same = |other: &&KernelRecord| other.key == product.key && other.problem == product.problem;
        // If gate and up are not needed, the bundle computes SwiGLU with them.
        let fused = |other: &&KernelRecord| other.key.starts_with("gemm.swiglu") && other.purpose == product.purpose;
        let other = bundle.iter().find(same).or_else(|| bundle.iter().find(fused));
        Self {
            key: product.key.clone(),
            problem: product.problem.clone().unwrap_or_default(),
            purpose: product.purpose.clone(),
            launches: product.launches,
            cublas_us: product.launch_us,
            bundle_us: other.map(|other| other.launch_us),
            bundle_kernel: other.map(|other| other.kernel.clone()),
        }
    }
}

impl fmt::Display for StepComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, cublas_step_ms, bundle_step_ms, modules_loaded: [with, without], products } = self;
        writeln!(f, "cuBLASLt {version}: {cublas_step_ms:.2} ms a step, {with} modules loaded")?;
        writeln!(f, "bundle:          {bundle_step_ms:.2} ms a step, {without} modules loaded")?;
        write!(f, "launches  cublas us  bundle us   ratio  {:<22}  {:<30}  bundle's kernel", "m x n x k", "for")?;
        for product in products {
            let bundle_us = product.bundle_us.map_or("-".to_owned(), |us| format!("{us:.2}"));
            let ratio = product.bundle_us.map_or("-".to_owned(), |us| format!("{:.3}", product.cublas_us / us));
            write!(
                f,
                "\n{:>8} {:>10.2} {bundle_us:>10} {ratio:>7}  {:<22}  {:<30}  {}",
                product.launches,
                product.cublas_us,
                product.problem,
                shortened(&product.purpose, 30),
                product.bundle_kernel.as_deref().unwrap_or("none"),
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kernel: &str, problem: &str, purpose: &str, launch_us: f64) -> KernelRecord {
        KernelRecord {
            kernel: kernel.to_owned(),
            grid: None,
            key: kernel.split('[').next().unwrap().to_owned(),
            problem: (!problem.is_empty()).then(|| problem.to_owned()),
            purpose: purpose.to_owned(),
            phase: "micro".to_owned(),
            launches: 24,
            launch_us,
            step_ms: launch_us * 24e-3,
            share: 0.1,
            tflop_per_s: None,
            tb_per_s: 1.0,
            share_of_limit: None,
            bound_by_arithmetic: true,
        }
    }

    #[test]
    fn a_product_is_compared_with_the_kernel_that_computes_the_same() {
        let bundle = [
            record("gemm.fwd{x=bf16}[threads=1]", "8x4x4", "student.layers.*.qkv", 2.0),
            record("gemm.fwd{x=bf16}[threads=2]", "8x8x4", "student.layers.*.gate_up", 4.0),
            record("gemm.swiglu{x=bf16}[threads=2]", "8x16x4", "teacher.layers.*.gate_up", 9.0),
            record("swiglu.fwd{x=bf16}[threads=2]", "", "student.layers.*.swiglu", 1.0),
        ];
        let of = |problem: &str, purpose: &str| {
            let times = ProductTimes::new(&record("gemm.fwd{x=bf16}[cublas]", problem, purpose, 1.0), &bundle);
            (times.bundle_us, times.bundle_kernel)
        };
        let kernel = |index: usize| Some(bundle[index].kernel.clone());
        assert_eq!(of("8x8x4", "student.layers.*.gate_up"), (Some(4.0), kernel(1)));
        assert_eq!(of("8x32x4", "teacher.layers.*.gate_up"), (Some(9.0), kernel(2)));
        assert_eq!(of("1x1x1", "head.*.student"), (None, None));
    }
}
