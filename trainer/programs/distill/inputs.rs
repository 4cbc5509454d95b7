//! Inputs of a run besides the weights that it trains, and their digests.

use std::sync::Arc;

use precast_core::shell::quoted;
use precast_fatbins::Digest;
use precast_plan::{Objective, PlanError};

use super::digests::ModelDigests;
use crate::base::notes::note;
use crate::base::roles::Models;
use crate::base::stop::Stop;
use crate::device::run_models::RunModels;
use crate::inputs::adapter::Adapter;
use crate::inputs::checkpoint::{self, Checkpoint, CheckpointError};
use crate::inputs::data::{
    Batches, Chunking, Corpus, DataError, Dataset, Files, Order, Packing, Places, PromptRule, Reader, Streams, path_of,
};
use crate::inputs::pair::{self, Pair};
use crate::inputs::teacher_cache::TeacherCache;
use crate::options::{
    Completions, DataRequest, OrderOptions, RunConfig, ShapeOptions, TaughtBy, TeacherChoice, TeacherPrompts,
};
use crate::run::failure::Failure;
use crate::run::identity::Data;

/// Checks that the teacher can teach the student, and begins to read the training data with the tokenizer of the
/// student, or of the teacher where the student has none; the chat template is that of the same model, or of a teacher
/// with the same tokenizer.
pub fn read_data(config: &RunConfig, run_models: &RunModels<Checkpoint>) -> Result<Data, Failure> {
    let RunModels { models, adapter, caches, .. } = run_models;
    let (student, adapter) = (&models.student, adapter.as_ref());
    check_gradients(config, run_models)?;
    let mut pairs = Vec::new();
    for (number, teacher) in models.teachers.iter().enumerate() {
        let differs = || has_own_prompts(config, number);
        // An adapter learns what its base does not know of the data, and blocks are not what they are made of.
        let learns = config.allow_identical || adapter.is_some() || config.file().is_some();
        let is_student = config.teachers[number].by == TaughtBy::Student;
        if (is_student || !learns) && are_identical(run_models, number)? && !differs()? {
            return Err(match is_student {
                true => DataError::untaught(path_of(&config.data[0])).into(),
                false => pair::nothing_to_learn(teacher, student).into(),
            });
        }
        let [theirs, own] = [teacher, student].map(|model| model.config().vocab);
        if config.teachers.len() > 1 && theirs < own {
            let narrower = PlanError::TeacherNarrower { teacher: theirs, student: own };
            return Err(of_teacher(&config.teachers[number], CheckpointError::Wrong(narrower.to_string())).into());
        }
        pairs.push(pair::check(teacher, student).map_err(|error| of_teacher(&config.teachers[number], error))?);
    }
    // What reads the data of all is the student's, or else the first teacher's.
    if student.tokenizer()?.is_none() {
        for (number, other) in models.teachers.iter().enumerate().skip(1) {
            pair::check(other, &models.teachers[0]).map_err(|error| of_teacher(&config.teachers[number], error))?;
        }
    }
    let pair = pairs.into_iter().reduce(Pair::and);
    // As a cache was made of them.
    let is_of_others = |cache: &Option<Arc<TeacherCache>>| {
        cache.as_ref().is_some_and(|cache| cache.manifest().made.filled_by.is_none())
    };
    let likely = (0..).zip(caches).filter(|(_, cache)| is_of_others(cache)).map(|(number, _)| number);
    let request = DataRequest { likely: likely.collect(), ..config.data_request()? };
    read(&request, models.as_ref(), pair.as_ref(), adapter)
}

/// Names a teacher in what is wrong with it, where several have names.
fn of_teacher(teacher: &TeacherChoice, error: CheckpointError) -> CheckpointError {
    match error {
        CheckpointError::Wrong(reason) if teacher.name.is_some() => {
            CheckpointError::Wrong(format!("{}: {reason}", teacher.role()))
        }
        other => other,
    }
}

/// Reads what is held out, and begins to read the training data of models, of which the student has such an adapter.
pub fn read(
    request: &DataRequest<'_>,
    models: Models<&Checkpoint>,
    pair: Option<&Pair>,
    adapter: Option<&Adapter>,
) -> Result<Data, Failure> {
    let field = request.text.data_field.as_deref();
    let opened = |files: Files| {
        let files = files.taught_by(&request.teachers)?.with_likely(&request.likely);
        match &request.teacher_prompts {
            TeacherPrompts::Unread => Ok(files),
            TeacherPrompts::Read { cached } => files.with_teacher_prompts().without_those_of(cached),
        }
    };
    let files = opened(Files::mixed(&request.sources, field)?)?;
    let held_out_files = match &request.held_out[..] {
        [] => None,
        held_out => Some(opened(Files::mixed(held_out, field)?)?),
    };
    let has_chat = files.has_chat() || held_out_files.as_ref().is_some_and(Files::has_chat);
    let reader = pair::reader(&models, pair, request.text.chat.variables(), has_chat)?;
    // Of prompts each is by itself.
    let packing = match request.on_policy {
        None => files.packing(request.packing).map_err(Failure::usage)?,
        Some(_) => Packing::None,
    };
    let held_out = held_out((request, packing), &reader, held_out_files, &files)?;
    let has_tokenizer = reader.tokenizer.clone();
    let eos = reader.eos;
    let ShapeOptions { batch_size, seq_len } = request.shape;
    let places = Places::new(if request.on_policy.is_some() { 1 } else { batch_size }, seq_len, packing);
    let corpus = Corpus::new(files, seq_len, chunking(request, packing), reader)?.filling(places);
    let streams = Streams::start(Arc::new(corpus));
    let corpus = &streams.corpus;
    let summaries = streams.read_ahead()?;
    pair.iter().flat_map(|pair| &pair.notes).for_each(note);
    adapter.map(Adapter::notes).unwrap_or_default().iter().for_each(note);
    taken_template(models.student, adapter).iter().for_each(note);
    corpus.notes().into_iter().chain(corpus.trains_on_held_out()).for_each(note);
    summaries.and_then(|summaries| summaries.total().note(corpus.chunk)).into_iter().for_each(note);
    // Ids need neither.
    let used = has_tokenizer.filter(|_| corpus.has_text()).map(|tokenizer| tokenizer.text());
    let used = used.transpose().map_err(|reason| CheckpointError::of(models.student.path(), reason))?;
    let eos = eos.filter(|_| corpus.has_text());
    Ok(Data { tokenizer: used.map(|text| Digest::of(text.as_bytes())), eos, streams, held_out })
}

/// Says where answers that are learnt do not end.
pub fn note_of_turns(student: &Checkpoint, adapter: Option<&Adapter>, corpus: &Corpus) {
    let Some((end, tokenizer)) = corpus.turn_end() else { return };
    // An adapter's files name no such token.
    let option = || format!("--stop-token {} has the student that is written stop there", quoted(&end.text));
    let stops = end.note_of_stops(&student.eos_tokens(), tokenizer, adapter.is_none().then(option));
    stops.into_iter().chain(end.note_of_learning()).for_each(note);
}

/// Has answers of the student end by `--stop-token`, and of the one that is written with the tokenizer of its teacher.
pub fn take_stop_token(config: &RunConfig, models: &Models<Checkpoint>) -> Result<(), Failure> {
    let Some(token) = &config.output.stop_token else { return Ok(()) };
    if config.adapter.is_some() {
        return Err(Failure::usage(
            "--stop-token is written with a student, and an adapter's files name no tokens: leave it out, and add \
            the token to \
             eos_token_id in generation_config.json of the model",
        ));
    }
    let tokenizer = models.student_first().find_map(|model| model.tokenizer().transpose()).transpose()?;
    let id = tokenizer.and_then(|tokenizer| tokenizer.id(token)).filter(|id| *id < models.student.config().vocab);
    let id = id.ok_or_else(|| {
        Failure::usage(format!(
            "--stop-token {token}: the student's tokenizer has no such token: name one, as '<|im_end|>'"
        ))
    })?;
    models.student_first().for_each(|model| model.take_stop_token(id));
    Ok(())
}

/// Returns a note on a student that is read by its teacher's chat template. An adapter's files hold none.
fn taken_template(student: &Checkpoint, adapter: Option<&Adapter>) -> Option<String> {
    student.taken_template()?;
    let written = match adapter {
        None => "written with it",
        Some(_) => {
            "not written with the adapter: before you chat with that, put it beside the student, as chat_template.jinja"
        }
    };
    Some(format!("the student has no chat template: its teacher's is used, and {written}"))
}

/// The data that are held out, packed as training data are, or as prompts.
fn held_out(
    (request, packing): (&DataRequest<'_>, Packing),
    reader: &Reader,
    files: Option<Files>,
    trained_on: &Files,
) -> Result<Option<Dataset>, Failure> {
    let Some(files) = files else { return Ok(None) };
    if packing == Packing::Documents {
        files.packing(Some(packing)).map_err(Failure::usage)?;
    }
    if let Some(shared) = files.shared(trained_on) {
        note(format_args!(
            "--eval-data {} is in --data too: its loss is that of rows that are trained on, and says nothing of \
            others; hold out a file of \
             its own",
            shared.display()
        ));
    }
    let rule = request.completions.map(|completions| prompt_rule(completions, request.shape.seq_len, false));
    let chunking = match rule {
        Some(rule) if files.are_prompts(rule.of_stream)? => Chunking::Prompts(rule),
        Some(_) if request.on_policy.is_none() => {
            return Err(Failure::usage(
                "--max-tokens and other options of completions require --on-policy or prompts alone in --eval-data: \
                leave them out, or give \
                 --prompt-tokens N, which makes prompts of text and .bin files",
            ));
        }
        _ => of_documents(packing),
    };
    let ShapeOptions { batch_size, seq_len } = request.shape;
    let packing = if matches!(chunking, Chunking::Prompts(_)) { Packing::None } else { packing };
    let corpus = Corpus::new(files, seq_len, chunking, reader.clone())?;
    let data = Dataset::of(&corpus.filling(Places::new(batch_size, seq_len, packing)))?;
    data.notes.iter().map(|one| format!("held out {one}")).for_each(note);
    Ok(Some(data))
}

/// The rule by which training data become sequences, or prompts.
fn chunking(request: &DataRequest<'_>, packing: Packing) -> Chunking {
    let asked = request.on_policy.zip(request.completions);
    asked.map_or(of_documents(packing), |(on_policy, completions)| {
        Chunking::Prompts(prompt_rule(completions, request.shape.seq_len, on_policy.share < 1.0))
    })
}

fn of_documents(packing: Packing) -> Chunking {
    if packing == Packing::Documents { Chunking::PerDocument } else { Chunking::Stream }
}

fn prompt_rule(completions: Completions, seq_len: u32, completed: bool) -> PromptRule {
    PromptRule { of_stream: completions.prompt_tokens, room: completions.room(seq_len), completed }
}

/// The steps of a run.
pub fn batches(streams: Streams, config: &RunConfig) -> Batches {
    let OrderOptions { seed, shuffle, shuffle_window } = config.order;
    let order = if shuffle { Order::Shuffled { seed, window: shuffle_window } } else { Order::File };
    Batches::new(streams, order)
}

/// True if the teacher reads other prompts than the student, of the first rows of training data.
///
/// # Errors
/// [`Failure`] of a file that cannot be data.
pub fn has_teacher_prompts(config: &RunConfig) -> Result<bool, Failure> {
    let request = config.data_request()?;
    Ok(Files::mixed(&request.sources, request.text.data_field.as_deref())?.with_teacher_prompts().has_teacher_prompts())
}

/// True if a teacher, by its number, reads other prompts than the student, of the first rows of what it may teach.
fn has_own_prompts(config: &RunConfig, number: usize) -> Result<bool, Failure> {
    let request = config.data_request()?;
    let files = Files::mixed(&request.sources, request.text.data_field.as_deref())?.taught_by(&request.teachers)?;
    Ok(files.with_teacher_prompts().has_teacher_prompts_of(number as u32))
}

/// Refuses a run in which every gradient is exactly 0.
fn check_gradients(config: &RunConfig, models: &RunModels<Checkpoint>) -> Result<(), Failure> {
    let Objective::Distill { alpha: 1.0, .. } = config.objective else { return Ok(()) };
    let Some(adapter) = &models.adapter else { return Ok(()) };
    if !adapter.adds_nothing()? {
        return Ok(());
    }
    for number in 0..models.models.teachers.len() {
        if !are_identical(models, number)? || has_own_prompts(config, number)? {
            return Ok(());
        }
    }
    let below = if config.on_policy.is_some() { "" } else { "--alpha below 1, so that the data count too, " };
    Err(Failure::usage(format!(
        "--alpha 1: the teacher is the student's own base and its adapter adds nothing yet, so both predict the same \
        and every \
         gradient is exactly 0. Give {below}another --teacher, or an --adapter that has been trained"
    )))
}

/// Returns true if a teacher and its student compute the same. A teacher that is cached is known by the digest of its
/// weights.
fn are_identical(
    RunModels { models, caches, .. }: &RunModels<Checkpoint>,
    number: usize,
) -> Result<bool, CheckpointError> {
    let (teacher, student) = (&models.teachers[number], &models.student);
    match &caches[number] {
        None => pair::identical(teacher, student),
        Some(_) if teacher.config() != student.config() => Ok(false),
        Some(cache) => Ok(checkpoint::digest(&student.weight_files())? == cache.manifest().made.teacher_sha256),
    }
}

/// Finds the teachers that are the base of the adapter that trains, if one does, byte for byte.
pub fn find_same_files(
    run_models: &mut RunModels<Checkpoint>,
    digests: &mut ModelDigests,
    stop: &Stop,
) -> Result<(), Failure> {
    let RunModels { models, adapter, same_files, .. } = run_models;
    for (number, same) in same_files.iter_mut().enumerate().filter(|_| adapter.is_some()) {
        *same = is_student(models, number, digests, stop)?;
    }
    Ok(())
}

/// True if the teacher of a number and its student are one model: the same configuration, and weights of the same
/// bytes. Waits for their digests only where nothing else tells.
fn is_student(
    models: &Models<Checkpoint>,
    number: usize,
    digests: &mut ModelDigests,
    stop: &Stop,
) -> Result<bool, Failure> {
    let (teacher, student) = (&models.teachers[number], &models.student);
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
    Ok(digests.teachers[number] == digests.student)
}
