//! The first rows of files as they are trained on, for people to look at.

use std::io::Read;
use std::path::Path;

use super::corpus::{Corpus, Holds, Opened, Source, Tokens, text_of};
use super::rows::check_ids;
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
        for Opened { file, holds } in &self.files {
            let mut count = 0;
            let mut emit = |row, read: Result<Chunk, DataError>| {
                count += 1;
                let read = read.map(|mut chunk| {
                    let tokens = chunk.ids.len();
                    chunk.truncate(self.chunk);
                    (chunk, tokens)
                });
                emit(FirstRow { file: &file.path, row, read });
            };
            match holds {
                Holds::Rows(None) => {}
                Holds::Rows(Some(columns)) => {
                    let mut source = Source::open(file, columns)?;
                    for _ in 0..most {
                        let Some((number, raw)) = source.next(&file.path)? else { break };
                        emit(number, self.row(file, columns, (number, raw)).map(|Tokens { chunk, .. }| chunk));
                    }
                }
                Holds::Document => emit(1, self.document(&file.path, &text_of(file)?).map(Chunk::plain)),
                Holds::Ids => {
                    let mut bytes = Vec::new();
                    let read = file.open()?.take((most * self.chunk * 4) as u64).read_to_end(&mut bytes);
                    read.map_err(DataError::io(&file.path))?;
                    let words =
                        bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
                    let ids: Vec<u32> = words.collect();
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
