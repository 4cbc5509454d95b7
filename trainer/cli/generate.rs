//! `precast generate`

use clap::{Arg, Args};
use precast_system::say;

use super::print_json;
use crate::base::verbose::Verbose;
use crate::device::frozen::Forward;
use crate::options::WeightFormat;
use crate::options::{Flags, Options, Takes, exact_precision, missing};
use crate::programs::failure::Failure;
use crate::programs::generate::{Generation, generate};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    flags: Flags<Generate>,
    /// What a user says to the model, by its chat template
    #[arg(long, value_name = "TEXT")]
    prompt: String,
    /// The prompt is the beginning of a text instead
    #[arg(long)]
    raw: bool,
    /// Tokens to generate, at most
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    max_tokens: u32,
    /// How the weights live on the device, as for eval
    #[arg(long, default_value_t = WeightFormat::Auto, value_name = "FORM")]
    format: WeightFormat,
    #[command(flatten)]
    verbose: Verbose,
    /// Print JSON: text and token ids
    #[arg(long)]
    json: bool,
}

/// What of a run it has too.
struct Generate;

impl Takes for Generate {
    const OPTIONS: Option<&'static [&'static str]> =
        Some(&["model", "adapter", "chat_date", "precision", "gemm", "device", "bundle", "trusted_key"]);

    fn adapt(option: Arg) -> Arg {
        match option.get_id().as_str() {
            "model" => option.help("The model: a Hugging Face directory, a .gguf or an .apr file").required(true),
            "adapter" => option.help("An adapter of --model: a PEFT directory, as distill and train write it"),
            "precision" => option.help("Arithmetic: fp32 or bf16").default_value("fp32").value_parser(exact_precision),
            _ => option,
        }
    }
}

pub fn run(arguments: Arguments) -> Result<(), Failure> {
    arguments.verbose.start();
    let Options { model, adapting, settings, .. } = arguments.flags.options()?;
    let generated = generate(&Generation {
        forward: Forward {
            model: model.ok_or_else(|| missing("model"))?,
            adapter: adapting.adapter,
            precision: settings.precision,
            gemm: settings.gemm,
            format: arguments.format,
            device: settings.device,
            kernels: settings.kernels,
            heading: !arguments.json,
        },
        prompt: arguments.prompt,
        raw: arguments.raw,
        max_tokens: arguments.max_tokens,
        chat_date: settings.chat_date,
    })?;
    if arguments.json {
        print_json(&generated);
    } else {
        say!("{}", generated.text);
    }
    Ok(())
}
