//! Rows of files with the likeliest tokens of their positions.

use precast_kernels::abi::MASKED_TOKEN;

use super::files::Form;
use super::likely::LikelyTokens;
use super::opened::{Files, Holds, Opened};
use super::source::Source;
use super::tokens::Tokens;
use super::{Chunk, Corpus, DataError};

/// The names of columns that hold them, for messages.
const COLUMNS: &str = "`top_ids` and `top_logprobs`, or `prompt_logprobs`";

impl Files {
    /// Reads likely tokens, too, of the files that have them. Then positions without any do not count.
    #[must_use]
    pub fn with_likely(mut self) -> Self {
        for Opened { file, holds } in &mut self.list {
            if let (Holds::Rows(Some(columns)), Form::Lines | Form::Table) = (holds, &file.form) {
                columns.with_likely();
            }
        }
        self
    }
}

/// A row with its likely tokens.
pub struct LikelyRow {
    pub chunk: Chunk,
    likely: Vec<LikelyTokens>,
}

impl LikelyRow {
    /// Returns those of each position that counts, in order, with their natural log-probabilities.
    pub fn counted(&self) -> impl Iterator<Item = &[(u32, f32)]> {
        let positions = self.chunk.targets().iter().zip(self.likely.iter().skip(1));
        positions.filter(|(target, _)| **target != MASKED_TOKEN).filter_map(|(_, likely)| likely.as_deref())
    }
}

impl Corpus {
    /// Calls `take` for each row of which a token counts, in file order, truncated as runs read it.
    ///
    /// # Errors
    /// [`DataError`] of a file without likely tokens, and of the first row that is wrong; and those of `take`.
    pub fn likely_rows<E: From<DataError>>(&self, mut take: impl FnMut(LikelyRow) -> Result<(), E>) -> Result<(), E> {
        for Opened { file, holds } in &self.files {
            let Some(columns) = holds.columns().filter(|columns| columns.likely.is_some()) else {
                let what = format!("has {}, and no columns {COLUMNS}", holds.what());
                let remedy = "beside input_ids, messages, or prompt and completion: `precast cache --from` reads those \
                    of .jsonl and .parquet files";
                return Err(DataError::file(&file.path, format_args!("{what}, {remedy}")).into());
            };
            let mut source = Source::open(file, columns)?;
            loop {
                let group = source.group(|row| self.read(row));
                if group.is_empty() {
                    break;
                }
                for tokens in group {
                    let Tokens { mut chunk, likely, .. } = tokens?;
                    chunk.truncate(self.chunk);
                    if chunk.counted() > 0 {
                        take(LikelyRow { chunk, likely })?;
                    }
                }
            }
        }
        Ok(())
    }
}
