//! Summary of a chip's evidence: 130 KB that show whether another chip computes the same bits.

use std::collections::BTreeMap;

use precast_core::Digest;

use super::record::{Check, Evidence, KernelSummary, Launch, Results, Whole};

/// Hexadecimal digits of digests in a summary: as many as an entry symbol has.
pub const DIGITS: usize = 16;

/// Evidence of a fault, which a summary cannot show.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("it holds a fault, which a summary cannot show: {0}")]
pub struct Faulty(pub String);

/// Shortens a digest to `DIGITS`.
pub fn short(digest: &str) -> &str {
    digest.get(..DIGITS).unwrap_or(digest)
}

impl Launch {
    /// Summarizes a launch without a fault.
    pub fn of(check: &Check) -> Self {
        let parts = check.outputs.iter().flat_map(|output| {
            let sums = output.sketch.sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
            [output.operand.as_bytes().to_vec(), output.sha256.as_bytes().to_vec(), sums]
        });
        let parts: Vec<Vec<u8>> = parts.collect();
        let digest = Digest::of_parts("precast.launch", parts.iter().map(Vec::as_slice)).to_string();
        let norm = check.outputs.iter().map(|output| output.sketch.norm.powi(2)).sum::<f64>().sqrt();
        Self(check.sample, short(&digest).to_owned(), format!("{norm:.3e}").parse().expect("a number"))
    }
}

impl Evidence {
    /// Shortens results of kernels.
    ///
    /// # Errors
    /// [`Faulty`] if a launch or a training run failed: such evidence is kept whole.
    pub fn summary(mut self) -> Result<Self, Faulty> {
        let Results::Whole(Whole { loads, checks, .. }) = &self.results else { return Ok(self) };
        let faults = checks.iter().map(|check| &check.fault).chain(self.golden.iter().map(|run| &run.fault));
        if let Some(fault) = faults.flatten().next() {
            return Err(Faulty(fault.clone()));
        }
        let empty = |source: &str| KernelSummary { source: short(source).to_owned(), launches: Vec::new() };
        let mut kernels: BTreeMap<String, KernelSummary> =
            loads.iter().map(|load| (load.kernel.clone(), empty(&load.source))).collect();
        for check in checks {
            let kernel = kernels.get_mut(&check.kernel);
            let kernel = kernel.ok_or_else(|| Faulty(format!("{} was not loaded", check.kernel)))?;
            kernel.launches.push(Launch::of(check));
        }
        self.results = Results::Summary { kernels };
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::{Output, Sketch};

    fn check(sum: f64, sha256: &str) -> Check {
        let sketch = Sketch { norm: 3.0, not_finite: 0, sums: vec![sum; 32] };
        let output = Output { operand: "y".to_owned(), sha256: sha256.to_owned(), sketch };
        let outputs =
            vec![output.clone(), Output { sketch: Sketch { norm: 4.00004, ..output.sketch.clone() }, ..output }];
        Check { kernel: "add{}[threads=256]".to_owned(), sample: 7, fault: None, outputs }
    }

    #[test]
    fn a_launch_has_the_digest_of_all_its_outputs_and_their_norm() {
        let launch = Launch::of(&check(1.0, "ab"));
        assert_eq!((launch.0, launch.1.len(), launch.2), (7, DIGITS, 5.0));
        for other in [check(1.0 + 1e-15, "ab"), check(1.0, "ac")] {
            assert_ne!(Launch::of(&other).1, launch.1);
        }
    }
}
