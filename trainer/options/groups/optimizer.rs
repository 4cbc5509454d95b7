//! What the optimizer does.

use clap::{Args, value_parser};
use serde::Serialize;

use super::values::{MOST_STEPS, learning_rate, not_negative};
use crate::options::schedule::Schedule;

/// What the optimizer does.
#[derive(Args, Clone, Copy, Debug, Serialize)]
pub struct OptimizerOptions {
    /// Peak learning rate
    #[arg(long, value_name = "X", default_value = "1e-4", value_parser = learning_rate)]
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
    /// The learning rate of a step, from 0, of a run of so many.
    pub fn lr_of(&self, step: u64, steps: u64) -> f64 {
        self.schedule.lr(self.lr, step, self.warmup, steps)
    }

    /// What people should know of a warm-up that a run of so many steps does not end.
    pub fn warmup_note(&self, steps: u64) -> Option<String> {
        let Self { warmup, lr, .. } = self;
        (*warmup > steps).then(|| {
            format!(
                "--warmup {warmup} is above --steps {steps}: the learning rate ends at {:.2e} and never comes to --lr {lr:e}; give a \
                 warm-up below the number of steps",
                lr * steps as f64 / *warmup as f64
            )
        })
    }
}
