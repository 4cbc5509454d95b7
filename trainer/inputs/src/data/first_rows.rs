//! The first rows of files as they are trained on, for people to look at.

use std::path::Path;

use super::corpus::Corpus;
use super::opened::{Holds, Opened};
use super::rows::check_ids;
use super::source::Source;
use super::{Chunk, DataError, Summary};

/// A row of a file, counted from 1; of a file without rows a sequence.
pub struct FirstRow<'f> {
    pub file: &'f Path,
    pub row: u64,
    /// Tokens, those apart that it is truncated by, and how many there were before.
    pub read: Result<(Chunk, usize), DataError>,
}

impl Corpus {
    /// Reads so many rows of each file. `emit` is given each, also those that cannot be used.
    ///
    /// # Errors
    /// [`DataError`] of a file that cannot be read.
    pub fn first_rows(&self, most: usize, emit: &mut dyn FnMut(FirstRow<'_>)) -> Result<(), DataError> {
        for Opened { file, holds, .. } in &self.files {
            let mut count = 0;
            let mut emit = |row, read: Result<Chunk, DataError>| {
                count += 1;
                let read = read.map(|mut chunk| {
                    let tokens = chunk.ids.len();
                    chunk.cut(self.chunk);
                    (chunk, tokens)
                });
                emit(FirstRow { file: &file.path, row, read });
            };
            match holds {
                Holds::Rows(None) => {}
                Holds::Rows(Some(columns)) => {
                    for row in Source::open(file, columns)?.take(most) {
                        let row = row?;
                        emit(row.place.number, self.row(row).map(|tokens| tokens.chunk));
                    }
                }
                Holds::Document => emit(1, self.document(&file.path, &file.text()?).map(Chunk::plain)),
                Holds::Ids => {
                    let ids = file.ids((most * self.chunk) as u64)?;
                    for (number, ids) in (1..).zip(ids.chunks_exact(self.chunk)) {
                        let all = check_ids(ids.iter().map(|id| i64::from(*id)), self.reader.vocab);
                        emit(number, all.map(|()| Chunk::plain(ids)).map_err(|why| DataError::of(&file.path, why)));
                    }
                }
            }
            // What was named is meant to have some.
            if count == 0 && file.directory.is_none() {
                return Err(self.nothing(file, holds, &Summary::default()));
            }
        }
        Ok(())
    }
}
