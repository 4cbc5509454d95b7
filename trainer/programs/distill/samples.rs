//! Completions of held-out prompts by what a run has trained.

use std::sync::Arc;

use precast_kernels::abi::MASKED_TOKEN;

use super::held_out::{EVAL_DATA, FIRST_NUMBER};
use crate::base::notes::note;
use crate::device::decoding::DecodingDevice;
use crate::device::decoding::schedule::{Drawn, Sequence};
use crate::device::run_models::RunModels;
use crate::device::session::Session;
use crate::device::shapes::SAMPLES;
use crate::inputs::checkpoint::Checkpoint;
use crate::inputs::data::{Chunk, DataError};
use crate::options::Completions;
use crate::run::failure::Failure;
use crate::run::sample::SampleRecord;

/// New tokens of a sample, at most.
const MOST_TOKENS: usize = 128;
/// Tokens of a prompt, at most, where a sequence has none of its own.
const PROMPT_TOKENS: usize = 64;

/// Completes the first prompts among held-out sequences, by the likeliest tokens unless others are asked for; none
/// where no sequence has room for one.
///
/// # Errors
/// [`Failure`] of the device or of the tokenizer.
pub(super) fn of_held_out(
    session: &mut Session,
    models: &RunModels<Checkpoint>,
    (chunks, completions): (&[Chunk], Option<Completions>),
    step: u64,
) -> Result<Vec<SampleRecord>, Failure> {
    let Some(decoding) = session.plan.decoding else { return Ok(Vec::new()) };
    let seq_len = decoding.slots.seq_len as usize;
    let most_tokens = completions.map_or(MOST_TOKENS, |asked| MOST_TOKENS.min(asked.max_tokens as usize));
    let prompts = chunks.iter().map(|chunk| (chunk, prompt_tokens(chunk)));
    let prompts: Vec<(&Chunk, usize)> =
        prompts.filter(|(_, tokens)| (1..seq_len).contains(tokens)).take(SAMPLES as usize).collect();
    let sequences = prompts.iter().zip(FIRST_NUMBER..).map(|((chunk, tokens), number)| Sequence {
        number,
        prompt: Arc::from(&chunk.ids[..*tokens]),
        most: seq_len.min(tokens + most_tokens) as u32,
    });
    let text = |ids: &[u32]| text(models, ids);
    let student = &models.models.student;
    let mut samples = Vec::new();
    let completed = DecodingDevice::new(session, decoding, &student.eos_tokens()).map_err(Failure::from);
    let completed = completed.and_then(|mut device| {
        device.complete(sequences, |sequence, Drawn { ids, .. }| {
            let (chunk, tokens) = prompts[(sequence.number - FIRST_NUMBER) as usize];
            let reference = text(&chunk.ids[tokens..chunk.ids.len().min(tokens + most_tokens)])?;
            samples.push(SampleRecord { step, prompt: text(&sequence.prompt)?, completion: text(&ids)?, reference });
            Ok::<_, Failure>(())
        })
    });
    match completed.map_err(|failure| failure.of_drawing(EVAL_DATA, FIRST_NUMBER)) {
        // The run has done its work without them.
        Err(error @ (Failure::Decode(_) | Failure::Fault(_))) => note(format_args!("no samples: {error}")),
        other => other?,
    }
    Ok(samples)
}

/// Returns the text of tokens, by the tokenizer of the student or its teacher; their ids where neither has one.
///
/// # Errors
/// [`Failure`] of the tokenizer.
pub(super) fn text(RunModels { models, .. }: &RunModels<Checkpoint>, ids: &[u32]) -> Result<String, Failure> {
    Ok(match models.student_first().find_map(|model| model.tokenizer().transpose()).transpose()? {
        Some(tokenizer) => tokenizer.decode(ids).map_err(DataError::tokenizer(models.student.path()))?,
        None => ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" "),
    })
}

/// Tokens of a sequence before the first that counts, all of a prompt alone; of one in which all count, the first
/// quarter.
fn prompt_tokens(chunk: &Chunk) -> usize {
    match chunk.targets().iter().position(|target| *target != MASKED_TOKEN) {
        None if chunk.labels.is_some() => chunk.ids.len(),
        Some(0) | None => (chunk.ids.len() / 4).clamp(1, PROMPT_TOKENS),
        Some(first) => first + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_ends_where_tokens_begin_to_count() {
        let ids: Vec<u32> = (0..12).collect();
        let counted = |from: usize| {
            let labels = (0..12).map(|at| if at < from { MASKED_TOKEN } else { at as u32 }).collect();
            prompt_tokens(&Chunk { ids: ids.clone(), labels: Some(labels), ..Chunk::default() })
        };
        assert_eq!([counted(5), counted(2), counted(11), counted(12)], [5, 2, 11, 12]);
        assert_eq!([counted(0), counted(1), prompt_tokens(&Chunk::plain(ids.clone()))], [3; 3]);
        assert_eq!(prompt_tokens(&Chunk::plain(vec![0; 1000])), 64);
    }
}
