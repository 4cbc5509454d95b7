//! `precast init`

use std::path::{Path, PathBuf};

use clap::Args;
use precast_plan::{Parameters, Precision};
use precast_system::terminal::tell;
use precast_system::{count, say};

use super::output::existing;
use crate::inputs::checkpoint::Checkpoint;
use crate::options::groups::values::{exact_precision, model};
use crate::programs::init;
use crate::run::failure::Failure;

#[derive(Args)]
#[command(group(clap::ArgGroup::new("source").required(true).args(["config", "from"])))]
pub struct Arguments {
    /// A config.json, or its directory: the weights are random
    #[arg(long, value_name = "FILE|DIR", value_parser = model())]
    config: Option<PathBuf>,
    /// Seed of the random weights
    #[arg(long, default_value_t = 0, conflicts_with = "from", value_name = "N")]
    seed: u64,
    /// Copy the tokenizer of this model
    #[arg(long, conflicts_with = "from", value_name = "PATH", value_parser = model())]
    tokenizer: Option<PathBuf>,
    /// Model to take layers of: Hugging Face directory, .gguf or .apr
    #[arg(long, requires = "layers", value_name = "PATH", value_parser = model())]
    from: Option<PathBuf>,
    /// Layers to take, in order, counted from 0
    #[arg(long, value_delimiter = ',', conflicts_with = "config", value_name = "LIST")]
    layers: Vec<u32>,
    /// Element type to write
    #[arg(long, default_value = "bf16", value_name = "P", value_parser = exact_precision)]
    precision: Precision,
    /// Write model.gguf, its matrices in this mix of block formats, with random numbers in them
    #[arg(long, conflicts_with_all = ["from", "precision", "tokenizer"], value_name = "F")]
    format: Option<FileFormat>,
    /// Directory to write the model to
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Replace the model in --out, if Precast wrote it and it has not been changed since
    #[arg(long)]
    overwrite: bool,
}

/// A mix of block formats, as llama.cpp names it.
#[derive(Clone, Copy, clap::ValueEnum)]
enum FileFormat {
    #[value(name = "Q4_K_M")]
    Q4KM,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (precision, out, existing) = (arguments.precision, &arguments.out, existing(arguments.overwrite));
    if let (Some(config), Some(FileFormat::Q4KM)) = (&arguments.config, arguments.format) {
        return say_made(&init::random_gguf(config, arguments.seed, out, existing)?, None);
    }
    match (&arguments.config, &arguments.from) {
        (Some(config), _) => {
            init::random(config, arguments.tokenizer.as_deref(), arguments.seed, precision, out, existing)?;
        }
        (None, Some(teacher)) => init::from_layers(teacher, &arguments.layers, precision, out, existing)?,
        (None, None) => unreachable!("the argument group requires one"),
    }
    say_made(out, arguments.tokenizer.as_deref().or(arguments.from.as_deref()))
}

/// Prints the path of the model made; its parameters, layers and tokenizer go to standard error. `tokenizer_from` is
/// the model whose tokenizer was copied.
fn say_made(path: &Path, tokenizer_from: Option<&Path>) -> Result<(), Failure> {
    let made = Checkpoint::open(path)?;
    let (parameters, layers) = (Parameters::new(made.config()).count(), count(made.config().layers.len(), "layer"));
    let tokenizer = match tokenizer_from.filter(|_| made.tokenizer_file().is_some()) {
        Some(from) => format!("the tokenizer of {}", from.display()),
        None => "no tokenizer".to_owned(),
    };
    tell(format_args!("{parameters} parameters, {layers}, {tokenizer}"));
    say!("{}", path.display());
    Ok(())
}
