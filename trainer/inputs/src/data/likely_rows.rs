//! Rows of files with the likeliest tokens of their positions.

use precast_fatbins::Digest;
use precast_kernels::abi::MASKED_TOKEN;

use super::files::Form;
use super::likely::{LikelyError, LikelyTokens};
use super::opened::{Files, Holds, Opened};
use super::source::{RowPlace, Source};
use super::tokens::Tokens;
use super::{Chunk, Corpus, DataError};

/// The names of columns that hold them, for messages.
const COLUMNS: &str = "`top_ids` and `top_logprobs`, or `prompt_logprobs`";

impl Files {
    /// Reads likely tokens, too, of the files that have them and that some teachers may teach, by their numbers. Then
    /// positions without any do not count.
    #[must_use]
    pub fn with_likely(mut self, teachers: &[u32]) -> Self {
        for one in self.list.iter_mut().filter(|one| one.may_be_of(teachers)) {
            let Opened { file, holds, .. } = one;
            if let (Holds::Rows(Some(columns)), Form::Lines | Form::Table) = (holds, &file.form) {
                columns.with_likely();
            }
        }
        self
    }
}

/// A row with its likely tokens.
pub struct LikelyRow<'c> {
    pub chunk: Chunk,
    likely: Vec<LikelyTokens>,
    place: RowPlace<'c>,
}

impl<'c> LikelyRow<'c> {
    /// Returns those of each position that counts, in order, with their natural log-probabilities.
    pub fn counted(&self) -> impl Iterator<Item = &[(u32, f32)]> {
        let positions = self.chunk.targets().iter().zip(self.likely.iter().skip(1));
        positions.filter(|(target, _)| **target != MASKED_TOKEN).filter_map(|(_, likely)| likely.as_deref())
    }

    /// Returns a digest of those, and where they stand.
    pub fn digest(&self) -> LikelyDigest<'c> {
        let bytes_of = |position: &[(u32, f32)]| {
            let mut tokens: Vec<_> = position.iter().map(|(id, log_prob)| (*id, log_prob.to_bits())).collect();
            tokens.sort_unstable();
            tokens.iter().flat_map(|(id, bits)| [id.to_le_bytes(), bits.to_le_bytes()].concat()).collect::<Vec<u8>>()
        };
        let positions: Vec<_> = self.counted().map(bytes_of).collect();
        let digest = Digest::of_parts("precast.likely-row", positions.iter().map(Vec::as_slice));
        LikelyDigest { place: self.place, digest }
    }
}

/// A digest of the likely tokens of a row, in any order of a position's, and the row's place.
#[derive(Clone, Copy)]
pub struct LikelyDigest<'c> {
    place: RowPlace<'c>,
    digest: Digest,
}

impl LikelyDigest<'_> {
    /// Refuses other likely tokens than those of an equal row before it.
    ///
    /// # Errors
    /// [`DataError`] that names both rows.
    pub fn check_equal(self, first: Self) -> Result<(), DataError> {
        if self.digest == first.digest {
            return Ok(());
        }
        Err(self.place.fault(LikelyError::OfEqualRow { first: first.place.name() }))
    }
}

/// Counts of positions behind the first of each row.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lacking {
    /// Those that do not count for lack of likely tokens alone.
    pub positions: u64,
    /// Those that count, and these.
    pub of: u64,
}

impl Corpus {
    /// Calls `take` for each row of which a token counts, in file order, truncated as runs read it. Returns how many
    /// positions of all rows lack likely tokens.
    ///
    /// # Errors
    /// [`DataError`] of a file without likely tokens, and of the first row that is wrong; and those of `take`.
    pub fn likely_rows<'c, E: From<DataError>>(
        &'c self,
        mut take: impl FnMut(LikelyRow<'c>) -> Result<(), E>,
    ) -> Result<Lacking, E> {
        let mut all = Lacking::default();
        for Opened { file, holds, .. } in &self.files {
            let Some(columns) = holds.columns().filter(|columns| columns.likely.is_some()) else {
                let what = format!("has {}, and no columns {COLUMNS}", holds.what());
                let remedy = "beside input_ids, messages, or prompt and completion: `precast cache --from` reads those \
                    of .jsonl and .parquet files";
                return Err(DataError::file(&file.path, format_args!("{what}, {remedy}")).into());
            };
            let mut source = Source::open(file, columns)?;
            loop {
                let group = source.group(|row| Ok((row.place, self.read(row)?)));
                if group.is_empty() {
                    break;
                }
                for read in group {
                    let (place, Tokens { mut chunk, likely, lacking, .. }) = read?;
                    chunk.truncate(self.chunk);
                    let lacking = lacking.into_iter().filter(|at| *at < self.chunk).count() as u64;
                    let counted = chunk.counted() as u64;
                    all.positions += lacking;
                    all.of += lacking + counted;
                    if counted > 0 {
                        take(LikelyRow { chunk, likely, place })?;
                    }
                }
            }
        }
        Ok(all)
    }
}
