//! Rows of data that steps are measured on: their time depends on the rows' lengths.

use std::path::Path;
use std::sync::Arc;

use crate::device::run_models::RunModels;
use crate::inputs::chat::Chat;
use crate::inputs::data::{Batches, Chunking, Corpus, Files, Order, Places, Reader, Step, Streams};
use crate::inputs::random::read_or_random;
use crate::options::RunConfig;
use crate::programs::distill::read_data;
use crate::run::failure::Failure;

/// Steps that differ, at most: later ones repeat them.
const MOST_STEPS: u64 = 64;

/// Reads the first steps of a configuration's data, in the order of the files. Returns them with the configuration, in
/// which their packing is known; none without data.
///
/// # Errors
/// [`Failure`] of models and data that cannot be read: a bare `config.json` reads rows of ids alone.
pub(super) fn steps(config: &RunConfig) -> Result<(RunConfig, Vec<Step>), Failure> {
    if config.data.is_empty() {
        return Ok((config.clone(), Vec::new()));
    }
    let streams = streams(config)?;
    let own_prompts = streams.corpus.has_teacher_prompts();
    let config = RunConfig { own_prompts, ..config.clone() }.over(streams.corpus.places.packing, 0)?;
    let mut batches = Batches::new(streams, Order::File);
    let steps = (0..config.steps().min(MOST_STEPS)).map(|_| batches.step(config.division.grad_accum));
    Ok((config.clone(), steps.collect::<Result<Vec<Step>, _>>()?))
}

fn streams(config: &RunConfig) -> Result<Streams, Failure> {
    let is_bare = |path: &Path| path.extension() == Some("json".as_ref());
    if !config.models().iter().any(|(_, path)| is_bare(path)) {
        return Ok(read_data(config, &RunModels::open(config)?)?.streams);
    }
    let request = config.data_request()?;
    let files = Files::mixed(&request.sources, None)?;
    let packing = files.packing(request.packing).map_err(Failure::usage)?;
    let chat = Chat::Lacking("a bare config.json has no chat template".to_owned());
    let vocab = read_or_random(&config.student, 0)?.config().vocab;
    let reader = Reader { tokenizer: None, chat, eos: None, vocab };
    let corpus = Corpus::new(files, config.shape.seq_len, Chunking::Stream, reader)?;
    Ok(Streams::start(Arc::new(corpus.filling(Places { packing, ..config.places() }))))
}
