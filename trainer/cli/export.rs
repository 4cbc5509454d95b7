//! `precast export`

use std::path::PathBuf;

use clap::Args;
use precast_system::say;

use crate::inputs::checkpoint::gguf::Encoding;
use crate::options::UsageError;
use crate::options::groups::values::model;
use crate::options::ship::{self, HeadBlocks, LayerBlocks};
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
    /// How matrices are stored; vectors are f32. Rows that are no whole blocks of 256 are q5_0 in q4_k, and those that
    /// are none of 32 either are f16
    #[arg(long, default_value = "bf16", value_name = "F")]
    format: FileFormat,
    /// How embedding and head are stored beside matrices in blocks [default: q8_0 of q8_0, else q6_k]
    #[arg(long, value_name = "F")]
    head: Option<HeadBlocks>,
}

/// A format of matrices, as llama.cpp's converter names it.
#[derive(Clone, Copy, clap::ValueEnum)]
#[allow(non_camel_case_types)] // ggml's own names
enum FileFormat {
    F32,
    Bf16,
    #[value(name = "q8_0")]
    Q8_0,
    #[value(name = "q4_0")]
    Q4_0,
    #[value(name = "q4_k")]
    Q4_K,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { model, adapter, out, format, head } = arguments;
    let in_blocks = |layers| {
        let (layers, ends) = ship::blocks(layers, *head);
        Encoding::Blocks { layers, ends }
    };
    let encoding = match format {
        FileFormat::F32 => Encoding::F32,
        FileFormat::Bf16 => Encoding::Bf16,
        FileFormat::Q8_0 => in_blocks(LayerBlocks::Q8_0),
        FileFormat::Q4_0 => in_blocks(LayerBlocks::Q4_0),
        FileFormat::Q4_K => in_blocks(LayerBlocks::Q4_K),
    };
    if head.is_some() && !matches!(encoding, Encoding::Blocks { .. }) {
        return Err(UsageError("--head requires --format q8_0, q4_0 or q4_k".to_owned()).into());
    }
    say!("{}", export::export(model, adapter.as_deref(), out, encoding)?);
    say!("{}", out.display());
    Ok(())
}
