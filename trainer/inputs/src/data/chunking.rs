//! The rules by which documents become chunks.

/// The rule by which documents become chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunking {
    /// For training: documents follow each other, each ended by the end-of-text token; the last chunk is
    /// padded with masked tokens.
    Stream,
    /// For evaluation, and `--packing documents`: every document by itself; its last chunk may be shorter.
    PerDocument,
    /// For students that complete prompts.
    Prompts(PromptRule),
}

/// The rule by which sequences become prompts. What counts of a chunk is the completion that its row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptRule {
    /// Tokens at the beginning of each sequence of a stream that are its prompt.
    pub of_stream: Option<u32>,
    /// Tokens of a prompt, at most.
    pub room: u32,
    /// True if rows must have completions.
    pub completed: bool,
}
