//! Options of the optimizer.

use clap::{Args, value_parser};
use serde::Serialize;

use super::values::{MOST_STEPS, above_zero, not_negative};
use crate::options::schedule::Schedule;

/// Options of the optimizer.
#[derive(Args, Clone, Copy, Debug, Serialize)]
#[command(next_help_heading = "Optimizer")]
pub struct OptimizerOptions {
    /// Peak learning rate
    #[arg(long, value_name = "X", default_value = "1e-4", value_parser = above_zero)]
    pub lr: f64,
    /// Steps over which the learning rate rises
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = value_parser!(u64).range(0..=MOST_STEPS))]
    pub warmup: u64,
    /// Learning rate after warm-up: constant or cosine
    #[arg(long, value_name = "SHAPE", default_value_t = Schedule::Constant)]
    pub schedule: Schedule,
    /// Decoupled weight decay of matrices
    #[arg(long, value_name = "X", default_value = "0.01", value_parser = not_negative)]
    pub weight_decay: f32,
    /// Largest gradient norm; 0 for none
    #[arg(long, value_name = "X", default_value = "1", value_parser = not_negative)]
    pub clip: f32,
}

impl OptimizerOptions {
    /// The learning rate of a step, from 0, of a run of so many, the first `warmup` of which rise linearly:
    /// `peak (i + 1) / w`, then `peak`, or `peak / 2 (1 + cos(pi (i - w) / (N - w)))`.
    pub fn lr_of(&self, step: u64, steps: u64) -> f64 {
        let Self { lr: peak, warmup, schedule, .. } = *self;
        if step < warmup {
            return peak * (step + 1) as f64 / warmup as f64;
        }
        match schedule {
            Schedule::Constant => peak,
            Schedule::Cosine => {
                let share = (step - warmup) as f64 / (steps.saturating_sub(warmup)).max(1) as f64;
                peak / 2.0 * (1.0 + (std::f64::consts::PI * share).cos())
            }
        }
    }

    /// Returns a note on a warm-up that a run of so many steps does not end.
    pub fn warmup_note(&self, steps: u64) -> Option<String> {
        let Self { warmup, lr, .. } = self;
        (*warmup > steps).then(|| {
            format!(
                "--warmup {warmup} is above --steps {steps}: the learning rate ends at {:.2e} and never comes to \
                --lr {lr:e}; give a \
                 warm-up below the number of steps",
                lr * steps as f64 / *warmup as f64
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_rises_and_cosine_falls() {
        let of = |schedule, warmup| OptimizerOptions { lr: 1.0, warmup, schedule, weight_decay: 0.0, clip: 0.0 };
        let lr = |schedule, step| of(schedule, 4).lr_of(step, 12);
        assert_eq!([0, 1, 2, 3].map(|step| lr(Schedule::Cosine, step)), [0.25, 0.5, 0.75, 1.0]);
        assert_eq!(lr(Schedule::Cosine, 4), 1.0);
        assert!((lr(Schedule::Cosine, 8) - 0.5).abs() < 1e-15);
        assert!(lr(Schedule::Cosine, 11) > 0.0 && lr(Schedule::Cosine, 11) < 0.05);
        assert_eq!(lr(Schedule::Constant, 11), 1.0);
        assert_eq!(of(Schedule::Cosine, 0).lr_of(0, 10), 1.0);
    }
}
