//! Inputs of a run besides the weights that it trains, and their digests.

use std::sync::Arc;

use precast_fatbins::Digest;
use precast_plan::Objective;

use super::digests::ModelDigests;
use crate::base::notes::note;
use crate::base::roles::Models;
use crate::base::stop::Stop;
use crate::device::run_models::RunModels;
use crate::inputs::adapter::Adapter;
use crate::inputs::chat::ChatTemplate;
use crate::inputs::checkpoint::{Checkpoint, CheckpointError};
use crate::inputs::data::{Batches, Corpus, Dataset, Files, Order, Packing, Reader, Stream};
use crate::inputs::pair;
use crate::options::{OrderOptions, RunConfig, ShapeOptions};
use crate::programs::failure::Failure;
use crate::run::identity::Data;

/// Checks that the teacher can teach the student, and begins to read the training data with the tokenizer of the student, or of
/// the teacher where the student has none; the chat template is that of the same model.
pub fn read_data(
    config: &RunConfig,
    RunModels { models, adapter, .. }: &RunModels<Checkpoint>,
) -> Result<Data, Failure> {
    let (student, adapter) = (&models.student, adapter.as_ref());
    let notes = match &models.teacher {
        Some(teacher) => {
            check_gradients(config, (teacher, student), adapter)?;
            // An adapter learns what its base does not know of the data.
            if !config.allow_identical && adapter.is_none() {
                pair::check_distinct(teacher, student)?;
            }
            pair::check(teacher, student)?
        }
        None => Vec::new(),
    };
    let notes: Vec<String> = notes.into_iter().chain(adapter.map(Adapter::notes).unwrap_or_default()).collect();
    let (reader, files) = reader(config, models)?;
    let held_out = held_out(config, models, &reader, &files)?;
    let has_tokenizer = reader.tokenizer.clone();
    let eos = reader.eos;
    let stream = Stream::start(Arc::new(Corpus::new(files, config.shape.seq_len, Packing::Stream, reader)?));
    let corpus = &stream.corpus;
    let summary = stream.read_ahead()?;
    notes.iter().chain(&corpus.notes()).chain(&config.optimizer.warmup_note(config.steps)).for_each(note);
    summary.and_then(|summary| summary.note(corpus.chunk)).into_iter().for_each(note);
    // Ids need neither.
    let used = has_tokenizer.filter(|_| corpus.has_text()).map(|tokenizer| tokenizer.text());
    let used = used.transpose().map_err(|reason| CheckpointError::of(models.student.path(), reason))?;
    let eos = eos.filter(|_| corpus.has_text());
    Ok(Data { tokenizer: used.map(|text| Digest::of(text.as_bytes())), eos, stream, held_out })
}

/// The data that are held out, packed as training data are.
fn held_out(
    config: &RunConfig,
    models: &Models<Checkpoint>,
    reader: &Reader,
    trained_on: &Files,
) -> Result<Option<Dataset>, Failure> {
    if config.eval_data.is_empty() {
        return Ok(None);
    }
    let files = Files::open(&config.eval_data, config.text.data_field.as_deref())?;
    if let Some(shared) = files.shared(trained_on) {
        note(format_args!(
            "--eval-data {} is in --data too: its loss is that of rows that are trained on, and says nothing of others; hold out a file of \
             its own",
            shared.display()
        ));
    }
    let mut reader = reader.clone();
    if files.has_chat() && reader.chat.is_none() {
        reader.chat = chat(config, models)?;
    }
    let data = Dataset::of(&Corpus::new(files, config.shape.seq_len, Packing::Stream, reader)?)?;
    data.notes.iter().map(|one| format!("held out {one}")).for_each(note);
    Ok(Some(data))
}

/// The template of the model whose tokenizer reads the data.
fn chat(config: &RunConfig, models: &Models<Checkpoint>) -> Result<Option<Arc<ChatTemplate>>, CheckpointError> {
    for model in models.student_first() {
        if model.tokenizer()?.is_some() {
            return model.chat_template(config.text.chat_date);
        }
    }
    Ok(None)
}

/// Returns the reader of a run's data, and its files.
fn reader(config: &RunConfig, models: &Models<Checkpoint>) -> Result<(Reader, Files), Failure> {
    let found = models.student_first().find_map(|model| model.tokenizer().transpose()).transpose()?;
    found.iter().flat_map(|tokenizer| &tokenizer.notes).for_each(note);
    let files = Files::open(&config.data, config.text.data_field.as_deref())?;
    let chat = if files.has_chat() { chat(config, models)? } else { None };
    let reader = Reader {
        tokenizer: found.cloned(),
        chat,
        eos: models.student_first().find_map(Checkpoint::eos_token),
        vocab: models.student.config().vocab,
    };
    Ok((reader, files))
}

/// The steps of a run.
pub fn batches(stream: Stream, config: &RunConfig) -> Batches {
    let (ShapeOptions { batch_size, seq_len }, OrderOptions { seed, shuffle, shuffle_window }) =
        (config.shape, config.order);
    let order = if shuffle { Order::Shuffled { seed, window: shuffle_window } } else { Order::File };
    Batches::new(stream, batch_size, seq_len, order)
}

/// Refuses a run in which every gradient is exactly 0.
fn check_gradients(
    config: &RunConfig,
    (teacher, student): (&Checkpoint, &Checkpoint),
    adapter: Option<&Adapter>,
) -> Result<(), Failure> {
    let Objective::Distill { alpha: 1.0, .. } = config.objective else { return Ok(()) };
    let Some(adapter) = adapter else { return Ok(()) };
    if !adapter.adds_nothing()? || !pair::identical(teacher, student)? {
        return Ok(());
    }
    Err(Failure::usage(
        "--alpha 1: the teacher is the student's own base and its adapter adds nothing yet, so both predict the same and every \
         gradient is exactly 0. Give --alpha below 1, so that the data count too, another --teacher, or an --adapter that \
         has been trained",
    ))
}

/// True if teacher and student are one model: the same configuration, and weights of the same bytes. Waits for their
/// digests only where nothing else tells.
pub fn same_files(models: &Models<Checkpoint>, digests: &mut ModelDigests, stop: &Stop) -> Result<bool, Failure> {
    let (Some(teacher), student) = (&models.teacher, &models.student) else { return Ok(false) };
    let sizes = |model: &Checkpoint| -> Vec<Option<u64>> {
        model.weight_files().iter().map(|path| Some(std::fs::metadata(path).ok()?.len())).collect()
    };
    if teacher.config() != student.config() || sizes(teacher) != sizes(student) {
        return Ok(false);
    }
    if pair::same_path(teacher.path(), student.path()) {
        return Ok(true);
    }
    let digests = digests.weights.wait(stop)?;
    Ok(digests.teacher == Some(digests.student))
}
