//! Reads the data of a run, or of a measurement that is to see what a run sees.

use crate::base::notes::note;
use crate::base::roles::Models;
use crate::inputs::chat::Chat;
use crate::inputs::checkpoint::Checkpoint;
use crate::inputs::data::Reader;
use crate::inputs::pair::{self, Pair};
use crate::options::TextOptions;
use crate::programs::failure::Failure;

/// Returns the reader of a run's data, of which some may be chats.
pub fn reader(
    models: Models<&Checkpoint>,
    pair: Option<&Pair>,
    text: &TextOptions,
    has_chat: bool,
) -> Result<Reader, Failure> {
    let found = models.student_first().find_map(|model| model.tokenizer().transpose()).transpose()?;
    found.iter().flat_map(|tokenizer| &tokenizer.notes).for_each(note);
    let chat = if has_chat { pair::chat(models, pair, text.chat_date)? } else { Chat::default() };
    Ok(Reader {
        tokenizer: found.cloned(),
        chat,
        eos: models.student_first().find_map(|model| model.eos_token().transpose()).transpose()?,
        vocab: models.student.config().vocab,
    })
}
