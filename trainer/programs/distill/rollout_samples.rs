//! Completions of a step, as `samples.jsonl` has them.

use super::on_policy::{Rollout, Rollouts};
use super::samples::text;
use crate::device::decoding::schedule::Drawn;
use crate::device::run_models::RunModels;
use crate::inputs::checkpoint::Checkpoint;
use crate::ranks::Ranks;
use crate::run::failure::Failure;
use crate::run::samples_file::SampleLine;

/// Returns a line for each completion that the student wrote for a step, of all ranks in the order of their sequences.
///
/// # Errors
/// [`Failure`] of the tokenizer, and of another rank.
pub(super) fn lines(
    rollouts: &Rollouts,
    step: u64,
    models: &RunModels<Checkpoint>,
    ranks: &Ranks,
) -> Result<Vec<u8>, Failure> {
    let mut own = Vec::new();
    for Rollout { number, chunk, drawn } in &rollouts.all {
        let Some(Drawn { ids, .. }) = drawn else { continue };
        let prompt = chunk.prompt();
        let line = SampleLine {
            step,
            sequence: *number,
            prompt: text(models, prompt)?,
            completion: text(models, ids)?,
            prompt_ids: prompt.to_vec(),
            completion_ids: ids.clone(),
        };
        serde_json::to_writer(&mut own, &line).expect("a line serializes");
        own.push(b'\n');
    }
    Ok(ranks.all_gather(&own)?.concat())
}
