//! Completes one prompt, or many.

use std::path::Path;

use precast_fatbins::Digest;
use precast_plan::Sampling;
use precast_system::progress::{Progress, Unit};
use precast_system::say;
use precast_system::terminal::tell;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::file::{self, Completion, CompletionsFile};
use super::sequences::Sequences;
use super::{DecoderRequest, DeviceDecoder, Generation};
use crate::base::notes::note;
use crate::device::decoding::schedule::{Drawn, Sequence};
use crate::device::frozen::Opened;
use crate::inputs::adapter::Adapter;
use crate::inputs::checkpoint::{self, CheckpointError};
use crate::inputs::data::DataError;
use crate::options::WeightFormat;
use crate::run::failure::Failure;

/// Result of a generation from one prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Generated {
    pub prompt_ids: Vec<u32>,
    /// With the token that ends it, if one does.
    pub ids: Vec<u32>,
    /// Without special tokens.
    pub text: String,
}

/// Goes on from `--prompt`.
///
/// # Errors
/// [`Failure`].
pub fn answer(request: &Generation) -> Result<Generated, Failure> {
    request.check()?;
    let opened = request.forward.read()?;
    let sequences = Sequences::of_prompt(request, &opened.model)?;
    opened.model.note_of_endless().iter().for_each(note);
    let mut decoder = open(request, &opened, &sequences)?;
    if request.forward.heading {
        tell("");
    }
    let mut generated = None;
    write_all(request, &mut decoder, sequences, |sequence, ids, text| {
        generated = Some(Generated { prompt_ids: sequence.prompt.to_vec(), ids, text });
        Ok(())
    })?;
    Ok(generated.expect("one sequence has one completion"))
}

/// Goes on from each prompt of `--data`, and appends the completions to `--out`.
///
/// # Errors
/// [`Failure`]; completions written before it stay, and `--resume` continues behind them.
pub fn complete(request: &Generation, out: &Path) -> Result<(), Failure> {
    request.check()?;
    let opened = request.forward.read()?;
    let model = &opened.model;
    file::check_place(out, request.resume, &request.data)?;
    let sequences = Sequences::of_data(request, model)?;
    model.note_of_endless().iter().for_each(note);
    let mut decoder = open(request, &opened, &sequences)?;
    let header = header(request, &opened, &sequences, &decoder)?;
    let (mut file, done) = match request.resume {
        true => CompletionsFile::resume(out, &header)?,
        false => (CompletionsFile::create(out, &header)?, 0),
    };
    let count = sequences.all.len();
    if done > 0 {
        say!("{done} of {count} completions are there");
    }
    let progress = Progress::start("completions", Unit::Things("completions"));
    progress.set(done as u64, count as u64);
    let left = Sequences { all: sequences.all[done..].to_vec(), ..sequences };
    write_all(request, &mut decoder, left, |sequence, ids, text| {
        file.push(&Completion::new(&sequence.prompt, &ids, text))?;
        progress.set(sequence.number + 1, count as u64);
        Ok(())
    })?;
    drop(progress);
    say!("completions: {} ({count})", out.display());
    Ok(())
}

fn open(request: &Generation, opened: &Opened, sequences: &Sequences) -> Result<DeviceDecoder, Failure> {
    let decoding = DecoderRequest {
        forward: &request.forward,
        data: &request.data,
        slots: request.slots,
        sequences: sequences.all.len() as u64,
        seq_len: sequences.seq_len,
        stops: opened.model.eos_tokens(),
        sampling: request.sampling(),
    };
    DeviceDecoder::open(&decoding, opened, |_| ())
}

/// Writes all sequences; `done` is given each with its completion, as ids and as text.
fn write_all(
    request: &Generation,
    decoder: &mut DeviceDecoder,
    Sequences { all, tokenizer, .. }: Sequences,
    mut done: impl FnMut(Sequence, Vec<u32>, String) -> Result<(), Failure>,
) -> Result<(), Failure> {
    decoder.slots()?.complete(all, |sequence, Drawn { ids, .. }| {
        let text = tokenizer.as_ref().map(|tokenizer| tokenizer.decode(&ids)).transpose();
        let text = text.map_err(DataError::tokenizer(&request.forward.model))?;
        done(sequence, ids, text.unwrap_or_default())
    })
}

/// Everything that completions follow from, by name.
fn header(
    request: &Generation,
    opened: &Opened,
    sequences: &Sequences,
    decoder: &DeviceDecoder,
) -> Result<Map<String, Value>, Failure> {
    let model = &opened.model;
    let tokenizer = sequences.tokenizer.as_ref().map(|tokenizer| tokenizer.text()).transpose();
    let tokenizer = tokenizer.map_err(|reason| CheckpointError::of(model.path(), reason))?;
    let Sampling { temperature, top_k, top_p, seed } = request.sampling();
    let prompts =
        sequences.all.iter().flat_map(|one| [bytemuck::cast_slice(&one.prompt), bytemuck::bytes_of(&one.most)]);
    let prompts = Digest::of_parts("precast.prompts", prompts);
    // The simulated GPU has none.
    let kernels = decoder.sealed.device().compute_capability.map(|_| decoder.sealed.bundle);
    let values = json!({
        "model": checkpoint::digest(&model.weight_files())?.to_string(),
        "config": Digest::of(model.json.to_string().as_bytes()).to_string(),
        "adapter": opened.adapter.as_ref().and_then(Adapter::digest).map(|digest| digest.to_string()),
        "stops": model.eos_tokens(),
        "tokenizer": tokenizer.map(|text| Digest::of(text.as_bytes()).to_string()),
        "kernels": kernels.map(|digest| digest.to_string()),
        "precision": request.forward.precision().to_string(),
        "rounded": request.forward.format == WeightFormat::Int8,
        "sampling_temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
        "group_size": request.group_size,
        "prompts": prompts.to_string(),
    });
    match values {
        Value::Object(values) => Ok(values),
        _ => unreachable!("an object"),
    }
}
