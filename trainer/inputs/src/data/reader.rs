//! The tokenizer and the chat template that data are read by.

use std::sync::Arc;

use crate::chat::Chat;
use crate::tokenizer::Tokenizer;

/// What reads text.
#[derive(Clone, Default)]
pub struct Reader {
    /// Turns text into ids.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// Turns messages into text.
    pub chat: Chat,
    /// Ends a document.
    pub eos: Option<u32>,
    /// Ids below this are the student's.
    pub vocab: u32,
}
