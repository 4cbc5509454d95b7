//! `precast smoke`

use clap::{Arg, Args, value_parser};
use precast_system::say;

use crate::options::measurement::{measured, measurement};
use crate::options::{Flags, Takes};
use crate::programs::failure::Failure;
use crate::programs::smoke::{LEAST_STEPS, smoke};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    flags: Flags<Smoke>,
}

/// What a short run on one batch depends on.
struct Smoke;

impl Takes for Smoke {
    const OPTIONS: Option<&'static [&'static str]> = Some(&[
        "teacher",
        "student",
        "model",
        "batch_size",
        "seq_len",
        "steps",
        "lr",
        "teacher_format",
        "lora_rank",
        "lora_alpha",
        "lora_targets",
        "lora_rslora",
        "adapter",
        "student_format",
        "recompute",
        "precision",
        "gemm",
        "seed",
        "device",
        "bundle",
        "trusted_key",
    ]);

    fn adapt(option: Arg) -> Arg {
        match option.get_id().as_str() {
            "steps" => option.default_value("50").value_parser(value_parser!(u64).range(LEAST_STEPS..)),
            "lr" => {
                let help =
                    "Peak learning rate [default: 1 / the student's hidden size, of an adapter 1 / (8 x rank x scale)]";
                option.help(help).hide_default_value(true)
            }
            "seed" => option.help("Seed of the batch, of random weights and of a new adapter"),
            _ => measured(option),
        }
    }
}

pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let mut options = arguments.flags.options()?;
    options.settings.warmup = LEAST_STEPS / 2;
    let lr = options.given.contains_key("lr").then_some(options.settings.lr);
    let record = smoke(measurement(options)?, lr)?;
    // A line for programs: everything else goes to standard error.
    say!("{}", serde_json::to_string(&record).expect("plain data serialises"));
    record.reason.map_or(Ok(()), |reason| Err(Failure::Failed(format!("smoke: {reason}"))))
}
