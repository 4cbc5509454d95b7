//! A pass over data: files to rows, rows to tokens on all cores, tokens to chunks, in file order.

use std::io::{BufReader, Read};

use precast_kernels::abi::MASKED_TOKEN;

use super::corpus::Corpus;
use super::files::DataFile;
use super::opened::{Holds, Opened};
use super::places::Filling;
use super::rows::Columns;
use super::source::Source;
use super::tokens::Tokens;
use super::{Chunk, Chunking, DataError, Packing, PromptRule, Summary};

/// Bytes of token ids that are read at once.
const BUFFER_BYTES: usize = 1 << 20;

impl Corpus {
    /// Reads everything once, in file order, until `emit`, which is given each chunk, returns false.
    ///
    /// # Errors
    /// [`DataError`] of the first thing that is wrong; the chunks before it have been given.
    pub fn pass_while(&self, emit: &mut dyn FnMut(Chunk) -> bool) -> Result<Summary, DataError> {
        let mut goes_on = true;
        (0..self.portions.len()).try_fold(Summary::default(), |before, portion| {
            let emit = &mut |chunk| {
                goes_on = goes_on && emit(chunk);
                goes_on
            };
            Ok(before.with(self.pass_of(portion, emit)?))
        })
    }

    /// Reads a portion once, in file order. `emit` is given each chunk, and says whether to go on.
    ///
    /// # Errors
    /// [`DataError`] of the first thing that is wrong; the chunks before it have been given.
    pub(super) fn pass_of(&self, portion: usize, emit: &mut dyn FnMut(Chunk) -> bool) -> Result<Summary, DataError> {
        let (start, end) = self.portions[portion].files;
        let none = Summary::default();
        let (carried, first) = (Vec::new(), 0);
        let filling = vec![Filling::new(self.places); self.teachers.len().max(1)];
        let (counted, goes_on, teacher) = (false, true, Some(0));
        let mut pass = Pass {
            corpus: self,
            emit,
            before: none,
            summary: none,
            filling,
            teacher,
            counted,
            goes_on,
            carried,
            first,
        };
        let (mut learnt, mut nothing) = (false, None);
        for Opened { file, holds, teacher, .. } in &self.files[start..end] {
            pass.teacher = *teacher;
            pass.before = pass.before.with(std::mem::take(&mut pass.summary));
            (pass.counted, pass.first) = (false, 0);
            match holds {
                Holds::Ids => pass.ids(file)?,
                Holds::Document => pass.document(file)?,
                Holds::Rows(columns) => pass.rows(file, columns.as_ref())?,
            }
            if !pass.goes_on {
                break;
            }
            // Where texts are empty, all that would be learnt is to end at once.
            let counts = pass.counted && !pass.summary.is_empty();
            learnt |= counts;
            // What was named is meant to be learnt from; of a directory, something.
            if !counts && (file.directory.is_none() || nothing.is_none()) {
                let error = self.nothing(file, holds, &pass.summary);
                if file.directory.is_none() {
                    return Err(error);
                }
                nothing = Some(error);
            }
        }
        match nothing {
            Some(error) if !learnt && pass.goes_on => Err(error),
            _ => Ok(pass.before.with(pass.summary)),
        }
    }
}

/// A pass under way.
struct Pass<'a> {
    corpus: &'a Corpus,
    emit: &'a mut dyn FnMut(Chunk) -> bool,
    /// Of the files before this one.
    before: Summary,
    /// Of the file.
    summary: Summary,
    /// The micro-batch of each teacher that rows of the pass fill.
    filling: Vec<Filling>,
    /// Teacher of all that the file holds; none where each row names its own.
    teacher: Option<u32>,
    /// True if anything of the file counts.
    counted: bool,
    goes_on: bool,
    /// Tokens of documents that are in no chunk yet.
    carried: Vec<u32>,
    /// Tokens of the file's documents so far.
    first: u64,
}

impl Pass<'_> {
    /// True if a completion fits behind a prompt; counts those behind which none does.
    fn has_room(&mut self, chunk: &Chunk, rule: PromptRule) -> bool {
        let taught = chunk.teacher_prompt.as_ref().map_or(0, Vec::len);
        let length = chunk.prompt().len().max(taught) as u64;
        self.summary.longest_prompt = self.summary.longest_prompt.max(length);
        let has_room = length <= rule.room.into();
        self.summary.without_room += u64::from(!has_room);
        has_room
    }

    fn give(&mut self, mut chunk: Chunk) {
        chunk.teacher = self.teacher.unwrap_or(chunk.teacher);
        if let Chunking::Prompts(rule) = self.corpus.chunking {
            rule.mark(&mut chunk);
            if rule.completed && chunk.counted() == 0 {
                self.summary.rows_passed_over += 1;
                return;
            }
            if !self.has_room(&chunk, rule) {
                return;
            }
            self.counted = true;
        }
        let takes = self.corpus.places.of_row(&chunk);
        let is_padded = self.corpus.chunking == Chunking::Stream;
        self.summary.add(&chunk, if is_padded { takes - chunk.targets().len() } else { 0 });
        let left = self.filling[chunk.teacher as usize].take(takes).unwrap_or(0);
        self.summary.places += (left + takes) as u64;
        // It would have fitted.
        self.summary.beyond_rows += if left >= takes { left as u64 } else { 0 };
        self.counted |= chunk.counted() > 0;
        self.goes_on = self.goes_on && (self.emit)(chunk);
    }

    /// A file of token ids, divided in order into whole chunks; of an evaluation the last one may be shorter.
    fn ids(&mut self, file: &DataFile) -> Result<(), DataError> {
        let (chunk, vocab) = (self.corpus.chunk, self.corpus.reader.vocab);
        let mut bytes = BufReader::with_capacity(BUFFER_BYTES, file.open()?);
        let mut left = file.bytes as usize / 4;
        let mut first = 0;
        let least = if self.corpus.chunking == Chunking::PerDocument { 2 } else { chunk };
        self.summary.rows += 1;
        while left >= least && self.goes_on {
            let mut ids = vec![0u32; chunk.min(left)];
            bytes.read_exact(bytemuck::cast_slice_mut(&mut ids)).map_err(DataError::io(&file.path))?;
            ids.iter_mut().for_each(|id| *id = u32::from_le(*id));
            check_vocabulary(file, first, &ids, vocab)?;
            first += ids.len() as u64;
            left -= ids.len();
            self.give(Chunk::plain(ids));
        }
        Ok(())
    }

    /// A file that is one document.
    fn document(&mut self, file: &DataFile) -> Result<(), DataError> {
        let text = file.text()?;
        let ids = self.corpus.document(&file.path, &text)?;
        self.summary.rows += 1;
        self.summary.empty += u64::from(text.is_empty());
        self.pack(file, &ids)?;
        self.end_stream();
        Ok(())
    }

    /// A file of rows.
    fn rows(&mut self, file: &DataFile, columns: Option<&Columns>) -> Result<(), DataError> {
        let Some(columns) = columns else { return Ok(()) };
        let (mut source, corpus) = (Source::open(file, columns)?, self.corpus);
        while self.goes_on {
            let group = source.group(|row| corpus.row(row));
            if group.is_empty() {
                break;
            }
            for tokens in group {
                self.summary.rows += 1;
                let Tokens { chunk, is_document, is_empty, lacks_assistant, lacks_nulls, .. } = tokens?;
                self.summary.empty += u64::from(is_empty);
                self.summary.without_nulls += u64::from(lacks_nulls);
                match is_document {
                    true => self.pack(file, &chunk.ids)?,
                    false => self.sequence(chunk, lacks_assistant),
                }
            }
        }
        self.end_stream();
        Ok(())
    }

    /// A row by itself, truncated to a chunk.
    fn sequence(&mut self, mut chunk: Chunk, lacks_assistant: bool) {
        if let Chunking::Prompts(rule) = self.corpus.chunking
            && !self.has_room(&chunk, rule)
        {
            return;
        }
        let most = self.corpus.chunk;
        let is_cut = chunk.places() >= most;
        // How many tokens predict the first one that counts.
        let reaches = chunk.targets().iter().position(|target| *target != MASKED_TOKEN).map(|at| at as u64 + 1);
        let taught = chunk.teacher_prompt.as_ref().map_or(0, |prompt| prompt.len() as u64);
        let reaches = reaches.map(|reaches| reaches.max(taught));
        chunk.cut(most);
        self.summary.cut += u64::from(is_cut);
        let is_prompt = matches!(self.corpus.chunking, Chunking::Prompts(_));
        match chunk.counted() {
            0 if !is_prompt => {
                self.summary.rows_passed_over += 1;
                // A template's own marks may have tokens of others count.
                self.summary.without_assistant += u64::from(lacks_assistant);
                self.summary.cut_before_counted += u64::from(reaches.is_some());
                self.summary.reaches_counted = self.summary.reaches_counted.into_iter().chain(reaches).min();
            }
            _ => self.give(chunk),
        }
    }

    /// Cuts a tokenized document into chunks. Consecutive chunks of a stream share no token: the first token of a chunk
    /// is predicted by nothing, as in `.bin` files. A chunk of one token has nothing to predict.
    fn pack(&mut self, file: &DataFile, ids: &[u32]) -> Result<(), DataError> {
        let Corpus { chunk: most, chunking, ref reader, .. } = *self.corpus;
        check_vocabulary(file, self.first, ids, reader.vocab)?;
        self.first += ids.len() as u64;
        let is_row = self.corpus.places.packing == Packing::Documents;
        self.summary.divided += u64::from(is_row && ids.len() > most);
        self.carried.extend(ids);
        let rest = self.carried.split_off(self.carried.len() / most * most);
        for chunk in std::mem::replace(&mut self.carried, rest).chunks(most).filter(|chunk| chunk.len() > 1) {
            self.give(Chunk::plain(chunk));
        }
        if chunking == Chunking::PerDocument {
            self.end_stream();
        }
        Ok(())
    }

    /// Gives what is left of a stream.
    fn end_stream(&mut self) {
        let rest = std::mem::take(&mut self.carried);
        if rest.len() > 1 {
            self.give(Chunk::plain(rest));
        }
    }
}

pub(super) fn check_vocabulary(file: &DataFile, first: u64, ids: &[u32], vocab: u32) -> Result<(), DataError> {
    let outside = ids.iter().position(|id| *id >= vocab);
    outside.map_or(Ok(()), |index| Err(DataError::vocabulary(&file.path, first + index as u64, ids[index], vocab)))
}
