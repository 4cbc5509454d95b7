//! Notes on files of data that train all the same.

use std::collections::HashMap;

use itertools::Itertools;
use minijinja::Value;
use precast_system::count;

use super::Chunking;
use super::corpus::Corpus;
use super::files::is_named_held_out;
use super::opened::{Holds, Opened};
use super::rows::{Content, listed};
use super::source::Source;
use crate::chat::TurnEnd;
use crate::tokenizer::Tokenizer;

/// Files, and rows of each, whose turns are looked at.
const FIRST_FILES: usize = 16;
const FIRST_ROWS: usize = 64;

impl Corpus {
    /// What people should know of the files, whatever a pass over them comes to.
    pub fn notes(&self) -> Vec<String> {
        let notes = [self.left_out(), self.unread(), self.unread_of_turns(), self.twice(), self.dropped()];
        notes.into_iter().flatten().map(|note| format!("data: {note}")).collect()
    }

    /// Names the first file of a directory that is trained on with others, and is called as held-out data are.
    pub fn trains_on_held_out(&self) -> Option<String> {
        let of_directories =
            || self.files.iter().filter_map(|Opened { file, .. }| Some((file.directory.as_ref()?, &file.path)));
        let (directory, path) = of_directories().find(|(directory, path)| {
            let mut others = of_directories().filter(|(other, _)| other == directory);
            is_named_held_out(path) && others.any(|(_, other)| !is_named_held_out(other))
        })?;
        Some(format!(
            "data: {} is trained on, as all files of {} are: --eval-data holds one out that --data does not name",
            path.display(),
            directory.display()
        ))
    }

    /// Names the files of directories that are not read.
    fn left_out(&self) -> Option<String> {
        let names: Vec<String> = self.left_out.iter().map(|path| path.display().to_string()).collect();
        let names = (!names.is_empty()).then(|| names.join(", "))?;
        Some(format!("left out as no data, by name: {names}; to have one read, name it itself"))
    }

    /// Names the first file that is there twice, and counts them.
    fn twice(&self) -> Option<String> {
        let mut seen = HashMap::new();
        let again = self.files.iter().filter_map(|Opened { file, .. }| {
            seen.insert(file.inode, &file.path).map(|before| (before.display(), file.path.display()))
        });
        let again: Vec<_> = again.collect();
        let (first, second) = again.first()?;
        let what = match first.to_string() == second.to_string() {
            true => format!("{first} is given twice"),
            false => format!("{first} and {second} are one file"),
        };
        let more = match again.len() - 1 {
            0 => String::new(),
            more => format!(", and {} more", count(more, "file")),
        };
        Some(format!("{what}{more}: a pass has its rows as often; leave it out where that is not meant"))
    }

    /// Counts the tokens at the ends of `.bin` files that are not trained on.
    fn dropped(&self) -> Option<String> {
        let ends = self.files.iter().filter(|one| one.holds == Holds::Ids && self.chunking == Chunking::Stream);
        let tails = ends.map(|Opened { file, .. }| (file.bytes / 4 % self.chunk as u64, file.path.display()));
        let tails: Vec<_> = tails.filter(|(tokens, _)| *tokens > 0).collect();
        let (_, first) = tails.first()?;
        let of = match tails.len() {
            1 => first.to_string(),
            files => count(files, "file"),
        };
        let tokens = count(tails.iter().map(|(tokens, _)| *tokens as usize).sum(), "token");
        Some(format!(
            "left out: {tokens} at the end of {of}, for want of a whole chunk of seq_len + 1 = {}; join .bin files, \
            or give rows of \
             input_ids, of any length",
            self.chunk
        ))
    }

    /// Names the columns that nothing reads, each once.
    fn unread(&self) -> Option<String> {
        let columns = self.files.iter().filter_map(|one| one.holds.columns());
        let names: Vec<String> = columns.flat_map(|columns| &columns.unread).unique().cloned().collect();
        (!names.is_empty()).then(|| format!("nothing reads these columns: {}", listed(&names)))
    }

    /// Names the keys of turns that nothing reads, each once.
    fn unread_of_turns(&self) -> Option<String> {
        let template = self.reader.chat.template()?;
        let keys = self.first_turns().flat_map(|turn| {
            let names: Vec<Value> = turn.try_iter().into_iter().flatten().collect();
            names.into_iter().filter(move |name| turn.get_item(name).is_ok_and(|value| !value.is_none()))
        });
        let unread = keys.map(|name| name.to_string()).unique().filter(|name| !template.reads(name));
        let unread: Vec<String> = unread.collect();
        (!unread.is_empty()).then(|| format!("nothing reads these keys of messages: {}", listed(&unread)))
    }

    /// The token that ends an assistant's turn, and the tokenizer, where rows are of messages.
    pub fn turn_end(&self) -> Option<(TurnEnd, &Tokenizer)> {
        let (template, tokenizer) = (self.reader.chat.template()?, self.reader.tokenizer.as_deref()?);
        self.first_turns().next()?;
        Some((TurnEnd::of(template, tokenizer)?, tokenizer))
    }

    /// The messages of the first rows of the first files, as far as they read.
    fn first_turns(&self) -> impl Iterator<Item = Value> {
        let rows = self.files.iter().take(FIRST_FILES).filter_map(|Opened { file, holds, .. }| {
            let rows = Source::open(file, holds.columns()?).ok()?.map_while(Result::ok).take(FIRST_ROWS);
            Some(rows.filter_map(|row| row.content().ok()))
        });
        rows.flatten()
            .map(|(content, _)| content)
            .flat_map(Content::messages)
            .flat_map(|list| list.try_iter().into_iter().flatten().collect_vec())
    }
}
