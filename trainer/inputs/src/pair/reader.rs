//! Reads the data of a run, or of a measurement that is to see what a run sees.

use super::Pair;
use super::chat::chat;
use crate::base::notes::note;
use crate::base::roles::Models;
use crate::chat::{Chat, ChatVariables};
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::data::Reader;

/// Returns the reader of a run's data, of which some may be chats; `pair` is none where nobody teaches.
///
/// # Errors
/// [`CheckpointError`] of a file that does not read, or a template that does not parse.
pub fn reader(
    models: &Models<&Checkpoint>,
    pair: Option<&Pair>,
    variables: ChatVariables,
    has_chat: bool,
) -> Result<Reader, CheckpointError> {
    let found = models.student_first().find_map(|model| model.tokenizer().transpose()).transpose()?;
    found.iter().flat_map(|tokenizer| &tokenizer.notes).for_each(note);
    let chat = if has_chat { chat(models, pair, variables)? } else { Chat::default() };
    Ok(Reader {
        tokenizer: found.cloned(),
        chat,
        eos: models.student_first().find_map(|model| model.eos_token().transpose()).transpose()?,
        vocab: models.student.config().vocab,
    })
}
