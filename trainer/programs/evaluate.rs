//! `precast eval`: the negative log likelihood of text under a model.

use std::path::PathBuf;

use clap::Args;
use precast_fatbins::Digest;
use precast_plan::Recipe;

use crate::base::notes::note;
use crate::device::frozen::Forward;
use crate::inputs::chat::Chat;
use crate::inputs::checkpoint::Checkpoint;
use crate::inputs::data::{Chunk, Chunking, Corpus, Dataset, Files, MicroBatch, Packing, Places, Reader};
use crate::options::TextOptions;
use crate::options::groups::values::count;
use crate::run::failure::Failure;
use crate::run::perplexity::Score;

/// What to score.
#[derive(Args, Clone, Debug)]
pub struct Evaluation {
    #[command(flatten)]
    pub forward: Forward,
    /// Data: .txt, .jsonl, .csv, .parquet or .bin, or directories of them; repeatable
    #[arg(long, value_name = "PATH", num_args = 1.., required = true)]
    pub data: Vec<PathBuf>,
    #[command(flatten)]
    pub text: TextOptions,
    /// Sequences at a time
    #[arg(long, value_name = "B", default_value_t = 8, value_parser = count(Recipe::MOST_TOKENS))]
    pub batch_size: u32,
    /// Longest context [default: 1024; the cache's, with --teacher-cache]
    #[arg(long, value_name = "S", value_parser = count(Recipe::MOST_TOKENS))]
    pub seq_len: Option<u32>,
}

/// Longest context where none is asked for.
const SEQ_LEN: u32 = 1024;

/// Scores documents by themselves: every token after the first of a chunk, given those before it in the chunk.
///
/// # Errors
/// [`Failure`]. `progress` is told how many of how many batches are done.
pub fn evaluate(request: &Evaluation, mut progress: impl FnMut(usize, usize)) -> Result<Score, Failure> {
    let opened = request.forward.read()?;
    let Text { dataset, batch, longest } = Text::read(request, &opened.model)?;
    let chunks = &dataset.chunks;

    let (plan, mut sealed) = request.forward.open(&opened, &request.data, (batch, longest))?;
    let (mut total, mut tokens) = (0.0f64, 0u64);
    let batches = batches(chunks, batch, longest);
    let all = batches.len();
    for (index, micro) in batches.enumerate() {
        sealed.score([plan.ids, plan.targets], plan.sequences, &micro)?;
        let nll: Vec<f32> = bytemuck::pod_collect_to_vec(&sealed.read(plan.nll)?);
        // Token by token: the sum is the same however they are batched.
        nll.iter().for_each(|nll| total += f64::from(*nll));
        tokens += u64::from(micro.counted);
        progress(index + 1, all);
    }
    Ok(Score::new(total, tokens, opened.model.config().vocab, ids_sha256(&dataset)))
}

/// Text to score, and the shape of its batches.
pub(crate) struct Text {
    pub dataset: Dataset,
    /// Sequences at a time.
    pub batch: u32,
    /// Tokens of each.
    pub longest: u32,
}

impl Text {
    /// Reads documents by themselves, with the model's tokenizer; batches are no larger than they ask for.
    pub fn read(request: &Evaluation, model: &Checkpoint) -> Result<Self, Failure> {
        let config = model.config();
        let tokenizer = model.tokenizer()?;
        tokenizer.iter().flat_map(|tokenizer| &tokenizer.notes).for_each(note);
        let files = Files::open(&request.data, request.text.data_field.as_deref())?;
        let template = if files.has_chat() { model.chat_template(request.text.chat.variables())? } else { None };
        let chat = template.map_or_else(|| Chat::Lacking(Chat::lacked_by(model.path())), Chat::Template);
        let reader = Reader { tokenizer: tokenizer.cloned(), chat, eos: None, vocab: config.vocab };
        let seq_len = request.seq_len.unwrap_or(SEQ_LEN).min(config.max_positions);
        let dataset = Dataset::of(&Corpus::new(files, seq_len, Chunking::PerDocument, reader)?)?;
        dataset.notes.iter().for_each(note);
        let chunks = &dataset.chunks;
        let longest = chunks.iter().map(|chunk| chunk.targets().len()).max().unwrap_or(1) as u32;
        let batch = request.batch_size.min(chunks.len() as u32);
        Ok(Self { dataset, batch, longest })
    }
}

/// Lays chunks out end to end, in batches of as many places as `batch` of the longest take.
pub(crate) fn batches(chunks: &[Chunk], batch: u32, longest: u32) -> impl ExactSizeIterator<Item = MicroBatch> {
    let places = Places::new(batch, longest, Packing::Rows);
    places.divide(chunks).into_iter().map(move |rows| MicroBatch::laid_out(&chunks[rows], places))
}

/// Digest of the text as the model reads it.
pub(crate) fn ids_sha256(dataset: &Dataset) -> Digest {
    Digest::of_parts("precast.ids", dataset.chunks.iter().flat_map(Chunk::parts))
}
