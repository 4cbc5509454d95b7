//! Lower bounds on the time of a launch, from the highest rates of a device.

use crate::chips::Peak;
use crate::dtype::Dtype;
use crate::plan::Launch;

impl Peak {
    /// Returns a lower bound on a launch's time, seconds: arithmetic at the peak rate or bytes at the peak bandwidth,
    /// whichever is slower.
    pub fn seconds(&self, launch: &Launch) -> f64 {
        self.arithmetic_seconds(launch).max(launch.bytes() as f64 / self.bytes_per_s)
    }

    /// Returns a lower bound on the time of a launch's arithmetic, seconds.
    pub fn arithmetic_seconds(&self, launch: &Launch) -> f64 {
        let operands = launch.key.kernel().operands(&launch.params);
        let has = |dtype| operands.iter().any(|operand| operand.format == dtype);
        let rate = match (has(Dtype::I8), has(Dtype::Bf16)) {
            (true, _) => self.int8_flops,
            (false, true) => self.bf16_flops,
            (false, false) => self.fp32_flops,
        };
        launch.flops() as f64 / rate
    }
}
