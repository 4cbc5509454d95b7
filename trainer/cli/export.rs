//! `precast export`

use std::path::PathBuf;

use clap::Args;
use precast_system::say;

use crate::inputs::checkpoint::gguf::Encoding;
use crate::options::groups::values::model;
use crate::programs::export;
use crate::run::failure::Failure;

#[derive(Args)]
pub struct Arguments {
    /// Model with a tokenizer: Hugging Face directory, .gguf or .apr
    #[arg(long, value_name = "PATH", value_parser = model())]
    model: PathBuf,
    /// Add this adapter to the model, as `precast merge` does
    #[arg(long, value_name = "DIR")]
    adapter: Option<PathBuf>,
    /// File to write, which must not be there
    #[arg(long, value_name = "FILE.gguf")]
    out: PathBuf,
    /// How matrices are stored; vectors are f32, and in q8_0 rows that are no whole blocks of 32 are f16
    #[arg(long, default_value = "bf16", value_name = "F")]
    format: FileFormat,
}

/// A format of matrices, as llama.cpp's converter names it.
#[derive(Clone, Copy, clap::ValueEnum)]
enum FileFormat {
    F32,
    Bf16,
    #[value(name = "q8_0")]
    Q8_0,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { model, adapter, out, format } = arguments;
    let encoding = match format {
        FileFormat::F32 => Encoding::F32,
        FileFormat::Bf16 => Encoding::Bf16,
        FileFormat::Q8_0 => Encoding::Q8_0,
    };
    say!("{}", export::export(model, adapter.as_deref(), out, encoding)?);
    say!("{}", out.display());
    Ok(())
}
