//! Counts of a pass over data.

use std::fmt;

use precast_kernels::abi::MASKED_TOKEN;
use precast_system::count;
use serde::Serialize;

use super::Chunk;

/// Counts of a pass over data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Rows and documents.
    pub rows: u64,
    pub chunks: u64,
    /// Tokens of the chunks.
    pub tokens: u64,
    /// Tokens of those that do not count.
    pub masked: u64,
    /// Rows that are longer than a chunk and were truncated.
    pub cut: u64,
    /// Rows with nothing that counts in their chunk: they are not learnt from.
    pub rows_passed_over: u64,
    /// Those of them that have something behind what is left of them, as a chat whose assistant speaks late.
    pub cut_before_counted: u64,
    /// Tokens of the shortest sequence, its target apart, that would reach the nearest of it; none where there is none.
    #[serde(skip)]
    pub reaches_counted: Option<u64>,
    /// Rows that are not learnt from, of messages none of which is the assistant's.
    #[serde(skip)]
    pub without_assistant: u64,
    /// Texts and completions that are empty.
    pub empty: u64,
    /// Prompts that leave no room for a completion: they are skipped.
    #[serde(skip_serializing_if = "is_none")]
    pub without_room: u64,
    /// Tokens of the longest prompt.
    #[serde(skip)]
    pub longest_prompt: u64,
    /// Rows of tables without what is null inside of their tools and tool calls.
    #[serde(skip_serializing_if = "is_none")]
    pub without_nulls: u64,
    /// Documents that are longer than a chunk and were divided into several rows.
    #[serde(skip_serializing_if = "is_none")]
    pub divided: u64,
    /// Places of the chunks' own sequences that hold no token.
    #[serde(skip)]
    pub padding: u64,
    /// Places of micro-batches that the chunks fill in file order: of the last one those that are taken.
    #[serde(skip)]
    pub places: u64,
    /// Places of them that stay empty because a micro-batch takes no more rows.
    #[serde(skip)]
    pub beyond_rows: u64,
    /// Tokens of the longest chunk.
    #[serde(skip)]
    pub longest: u64,
}

/// A number that is left out of a record.
fn is_none(number: &u64) -> bool {
    *number == 0
}

impl Summary {
    /// Adds a chunk, with places of padding.
    pub(super) fn add(&mut self, chunk: &Chunk, padding: usize) {
        let tokens = chunk.ids.len() as u64;
        self.chunks += 1;
        self.tokens += tokens;
        self.padding += padding as u64;
        self.longest = self.longest.max(tokens);
        let masked = |labels: &Vec<u32>| labels.iter().filter(|label| **label == MASKED_TOKEN).count() as u64;
        self.masked += chunk.labels.as_ref().map_or(0, masked);
    }

    /// Of this and what comes after it.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            rows: self.rows + other.rows,
            chunks: self.chunks + other.chunks,
            tokens: self.tokens + other.tokens,
            masked: self.masked + other.masked,
            cut: self.cut + other.cut,
            rows_passed_over: self.rows_passed_over + other.rows_passed_over,
            cut_before_counted: self.cut_before_counted + other.cut_before_counted,
            reaches_counted: self.reaches_counted.into_iter().chain(other.reaches_counted).min(),
            without_assistant: self.without_assistant + other.without_assistant,
            empty: self.empty + other.empty,
            without_room: self.without_room + other.without_room,
            longest_prompt: self.longest_prompt.max(other.longest_prompt),
            without_nulls: self.without_nulls + other.without_nulls,
            divided: self.divided + other.divided,
            padding: self.padding + other.padding,
            places: self.places + other.places,
            beyond_rows: self.beyond_rows + other.beyond_rows,
            longest: self.longest.max(other.longest),
        }
    }

    /// Share of the places that hold a token, which predicts the next; none where there are no places.
    pub fn fill(&self) -> Option<f64> {
        (self.places > 0).then(|| self.predicting() / self.places as f64)
    }

    /// Tokens that predict the next.
    pub(super) fn predicting(&self) -> f64 {
        self.tokens.saturating_sub(self.chunks) as f64
    }

    /// True if there are rows and all of them are empty texts.
    pub(super) fn is_empty(&self) -> bool {
        self.rows > 0 && self.empty == self.rows
    }

    /// What people should know of it: rows that are not learnt from, or only their beginnings are.
    pub fn note(&self, chunk: usize) -> Option<String> {
        let Self { rows, cut, rows_passed_over: over, cut_before_counted: before, without_assistant, empty, .. } =
            *self;
        let reaches = self.reaches_counted.map(|reaches| {
            format!("{before} of them are truncated before one that does: --seq-len {reaches} reaches the nearest")
        });
        let silent = (without_assistant > 0)
            .then(|| format!("{without_assistant} of them have no message whose role is assistant"));
        let why: Vec<String> = reaches.into_iter().chain(silent).collect();
        let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) };
        let over = format!(
            "{over} of {rows} rows have no token that counts among their first seq_len + 1 = {chunk}: skipped{why}"
        );
        let cut = format!("{cut} of {rows} rows are longer than seq_len + 1 = {chunk}: truncated");
        let divided =
            format!("{} of {rows} documents are longer than seq_len + 1 = {chunk}: divided into pieces", self.divided);
        let empty = format!("{empty} of {rows} rows are empty texts");
        let without_room = format!(
            "{} prompts leave no room for a completion of --max-tokens in --seq-len, the longest of {} tokens: skipped",
            self.without_room, self.longest_prompt
        );
        let nulls = format!(
            "{} of {rows} rows have fields that are null inside of tools or tool calls: left out, as Arrow fills \
            them in; a .jsonl \
             file keeps those that are meant",
            self.without_nulls
        );
        let (share, mean) =
            (self.padding as f64 / (self.padding + self.tokens) as f64, self.tokens / self.chunks.max(1));
        let shorter = match self.longest.checked_sub(1).filter(|_| self.longest < chunk as u64) {
            Some(seq_len) => format!("; --seq-len {seq_len} truncates none"),
            None => String::new(),
        };
        let padding = format!(
            "{:.0} % of what is computed is padding: sequences have {mean} tokens in the mean and {} at most, of \
            seq_len + 1 = {chunk}{shorter}",
            100.0 * share,
            self.longest,
        );
        let mostly_padding = u64::from(self.padding > self.tokens);
        let beyond_rows = format!(
            "{:.0} % of the places stay empty: a micro-batch takes as many rows as a sixteenth of its places or \
            --batch-size at most, and rows have {mean} tokens in the mean",
            100.0 * self.beyond_rows as f64 / self.places.max(1) as f64
        );
        // Less is not worth a line.
        let few_rows = u64::from(100 * self.beyond_rows > self.places);
        let all = [
            (self.rows_passed_over, over),
            (self.cut, cut),
            (self.divided, divided),
            (self.empty, empty),
            (self.without_room, without_room),
            (self.without_nulls, nulls),
            (mostly_padding, padding),
            (few_rows, beyond_rows),
        ];
        let said = all.into_iter().filter(|(number, _)| *number > 0);
        let said: Vec<String> = said.map(|(_, text)| text).collect();
        (!said.is_empty()).then(|| format!("data: {}", said.join("; ")))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, chunks, tokens, masked, cut, rows_passed_over, .. } = *self;
        let [rows, chunks] = [(rows, "row"), (chunks, "sequence")].map(|(number, what)| count(number as usize, what));
        write!(
            f,
            "{rows}, {chunks}, {tokens} tokens, {masked} masked; {cut} rows truncated, {rows_passed_over} skipped"
        )
    }
}
