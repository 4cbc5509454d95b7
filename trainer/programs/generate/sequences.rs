//! Prompts, and the sequences that complete them.

use std::sync::Arc;

use minijinja::Value;

use super::options::Generation;
use crate::base::notes::note;
use crate::device::decoding::schedule::Sequence;
use crate::inputs::chat::{Chat, TurnEnd};
use crate::inputs::checkpoint::Checkpoint;
use crate::inputs::data::{Chunking, Corpus, DataError, Files, Prompt, Reader, beginning};
use crate::inputs::tokenizer::{SpecialTokens, Tokenizer};
use crate::run::failure::Failure;

/// Sequences to write.
pub(super) struct Sequences {
    pub all: Vec<Sequence>,
    /// Tokens of the longest, at most.
    pub seq_len: u32,
    /// None where ids are all that there is.
    pub tokenizer: Option<Arc<Tokenizer>>,
}

impl Sequences {
    /// One, of `--prompt`: as a user's message by the model's chat template, or as it is.
    pub fn of_prompt(request: &Generation, model: &Checkpoint) -> Result<Self, Failure> {
        let none = || DataError::no_tokenizer(&request.forward.model);
        let tokenizer = Arc::clone(model.tokenizer()?.ok_or_else(none)?);
        let prompt = prompt(request, model, &tokenizer)?;
        let limit = limit(request, model)?;
        let length = prompt.len() as u32;
        if length >= limit {
            let what = if request.seq_len.is_some() { "--seq-len is" } else { "the model takes" };
            let message = format!("--prompt is {length} tokens, and {what} {limit} with its answer: shorten it");
            return Err(Failure::usage(message));
        }
        let most = length.saturating_add(request.max_tokens()).min(limit);
        let all = vec![Sequence { number: 0, prompt: prompt.into(), most }];
        Ok(Self { all, seq_len: most, tokenizer: Some(tokenizer) })
    }

    /// `--group-size` of each prompt of `--data`.
    pub fn of_data(request: &Generation, model: &Checkpoint) -> Result<Self, Failure> {
        let tokenizer = model.tokenizer()?.cloned();
        tokenizer.iter().flat_map(|tokenizer| &tokenizer.notes).for_each(note);
        let files = Files::open(&request.data, request.data_field.as_deref())?;
        let template = if files.has_chat() { model.chat_template(request.chat.variables())? } else { None };
        let chat = template.map_or_else(|| Chat::Lacking(Chat::lacked_by(model.path())), Chat::Template);
        let reader = Reader { tokenizer: tokenizer.clone(), chat, eos: None, vocab: model.config().vocab };
        let corpus = Corpus::new(files, 1, Chunking::PerDocument, reader)?;
        if request.prompt_tokens.is_some() && !corpus.has_documents() {
            return Err(Failure::usage(
                "--prompt-tokens divides files without rows, .txt and .bin, and --data has none: leave it out",
            ));
        }
        corpus.notes().iter().for_each(note);
        corpus.turn_end().into_iter().for_each(|(end, tokenizer)| note_of_stops(model, &end, tokenizer));
        let prompts = corpus.prompts(request.prompt_tokens, &model.eos_tokens())?;
        let limit = limit(request, model)?;
        let most = |prompt: &Prompt| {
            let length = prompt.ids.len() as u32;
            if length >= limit {
                let what = if request.seq_len.is_some() { "--seq-len is" } else { "the model's positions are" };
                let reason = format!("a prompt of {length} tokens leaves no room for a completion: {what} {limit}");
                return Err(corpus.unfit(prompt, reason));
            }
            Ok(length.saturating_add(request.max_tokens()).min(limit))
        };
        let mut all = Vec::new();
        for prompt in &prompts {
            let most = most(prompt)?;
            let ids: Arc<[u32]> = prompt.ids.as_slice().into();
            for _ in 0..request.group_size {
                all.push(Sequence { number: all.len() as u64, prompt: Arc::clone(&ids), most });
            }
        }
        let seq_len = all.iter().map(|one| one.most).max().unwrap_or(1);
        Ok(Self { all, seq_len, tokenizer })
    }
}

/// Says where the model does not stop at what ends an answer.
fn note_of_stops(model: &Checkpoint, end: &TurnEnd, tokenizer: &Tokenizer) {
    end.note_of_stops(&model.eos_tokens(), tokenizer, None).iter().for_each(note);
}

/// The most tokens of a prompt with its completion.
fn limit(request: &Generation, model: &Checkpoint) -> Result<u32, Failure> {
    let positions = model.config().max_positions;
    match request.seq_len {
        Some(asked) if asked > positions => {
            Err(Failure::usage(format!("--seq-len {asked}: the model takes {positions} positions: lower it")))
        }
        asked => Ok(asked.unwrap_or(positions)),
    }
}

/// The ids of the prompt.
fn prompt(request: &Generation, model: &Checkpoint, tokenizer: &Tokenizer) -> Result<Vec<u32>, Failure> {
    let text = request.prompt.as_deref().unwrap_or_default();
    let template = if request.raw { None } else { model.chat_template(request.chat.variables())? };
    let path = &request.forward.model;
    let ids = match template {
        Some(template) => {
            TurnEnd::of(&template, tokenizer).iter().for_each(|end| note_of_stops(model, end, tokenizer));
            let message = Value::from_pairs([("role", "user"), ("content", text)]);
            let unfit = |fault| Failure::usage(format!("--prompt: {fault}; --raw takes it as it is"));
            tokenizer.encode(&template.prompt(&Value::from(vec![message]), None).map_err(unfit)?, SpecialTokens::Omit)
        }
        None => {
            if !request.raw {
                note(format_args!("{}: the prompt is the beginning of a text", Chat::lacked_by(path)));
            }
            beginning(tokenizer, text, &model.eos_tokens())
        }
    };
    let ids = ids.map_err(DataError::tokenizer(path))?;
    let vocab = model.config().vocab;
    match ids.iter().enumerate().find(|(_, id)| **id >= vocab) {
        Some((index, id)) => Err(DataError::vocabulary(path, index as u64, *id, vocab).into()),
        None if ids.is_empty() => Err(Failure::usage("--prompt has no token to go on from")),
        None => Ok(ids),
    }
}
