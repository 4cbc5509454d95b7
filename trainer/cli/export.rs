//! `precast export`

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use precast_system::say;

use crate::inputs::checkpoint::gguf::Encoding;
use crate::options::UsageError;
use crate::options::groups::values::model;
use crate::options::ship::{File, FileBlock};
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
    /// Store matrices as f32, bf16, q8_0, q4_0 or q4_k; vectors are f32. Rows that are no whole blocks of 256
    /// are q5_0 in place of q4_k, and those that are none of 32 are f16
    #[arg(long, default_value = "bf16", value_name = "F")]
    format: FileFormat,
    /// Store embedding and head beside matrices in blocks as q8_0 or q6_k [default: q8_0 with --format q8_0,
    /// else q6_k]
    #[arg(long, value_name = "F", value_parser = FileBlock::of_head)]
    head: Option<FileBlock>,
}

/// A format of matrices, as llama.cpp's converter names it.
#[derive(Clone, Copy)]
enum FileFormat {
    F32,
    Bf16,
    Blocks(FileBlock),
}

impl FromStr for FileFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "f32" => Ok(Self::F32),
            "bf16" => Ok(Self::Bf16),
            text => FileBlock::of_layers(text)
                .map(Self::Blocks)
                .map_err(|error| error.replacen("expected ", "expected f32, bf16, ", 1)),
        }
    }
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { model, adapter, out, format, head } = arguments;
    let encoding = match format {
        FileFormat::Blocks(layers) => {
            let (layers, ends) = File::new(*layers, *head).blocks();
            Encoding::Blocks { layers, ends }
        }
        _ if head.is_some() => {
            return Err(UsageError("--head requires --format q8_0, q4_0 or q4_k".to_owned()).into());
        }
        FileFormat::F32 => Encoding::F32,
        FileFormat::Bf16 => Encoding::Bf16,
    };
    say!("{}", export::export(model, adapter.as_deref(), out, encoding)?);
    say!("{}", out.display());
    Ok(())
}
