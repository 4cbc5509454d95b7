//! Files of data, and how they are read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use itertools::Itertools;
use precast_fatbins::Digest;
use precast_system::{count, files};
use rayon::prelude::*;

use super::files::DataFile;
use super::opened::{
    CHAT_RULE, DOCUMENTS_RULE, Files, Holds, LIKELY_RULE, Opened, STREAM_RULE, TEACHER_PROMPTS_RULE, TEACHERS_RULE,
};
use super::rows::{Kind, PROMPTS};
use super::{Chunking, DataError, Packing, Places, Portion, PromptRule, Reader, Summary};
use crate::chat::Chat;
use crate::tokenizer::Tokenizer;

/// Files of data, and how they are read.
pub struct Corpus {
    pub(super) files: Vec<Opened>,
    /// Names of the teachers by their numbers, where they have any.
    pub teachers: Vec<String>,
    /// Portions of the files, each of which is read by itself.
    pub portions: Vec<Portion>,
    /// Files of directories that are about the others.
    pub(super) left_out: Vec<PathBuf>,
    /// Tokens of a chunk: `seq_len + 1`.
    pub chunk: usize,
    /// Places that rows take in micro-batches.
    pub places: Places,
    pub(super) chunking: Chunking,
    pub(super) reader: Reader,
}

impl Corpus {
    /// How files are read.
    ///
    /// # Errors
    /// [`DataError`] of a file that `reader` cannot read.
    pub fn new(files: Files, seq_len: u32, chunking: Chunking, reader: Reader) -> Result<Self, DataError> {
        for Opened { file, holds, .. } in &files.list {
            if holds.is_text() && reader.tokenizer.is_none() {
                return Err(DataError::no_tokenizer(&file.path));
            }
            if let Chunking::Prompts(PromptRule { of_stream: None, .. }) = chunking
                && (matches!(holds, Holds::Ids | Holds::Document) || holds.kind() == Some(Kind::Text))
            {
                let reason =
                    "has no prompts: give --prompt-tokens N, which makes one of the first N tokens of each sequence";
                return Err(DataError::file(&file.path, reason));
            }
            if chunking == Chunking::Stream && holds.kind() == Some(Kind::Prompt) {
                return Err(DataError::of(&file.path, PROMPTS));
            }
            if let (Some(kind), Chat::Lacking(lacks)) = (holds.kind().filter(|kind| kind.is_chat()), &reader.chat) {
                return Err(no_template(&file.path, kind, lacks));
            }
        }
        let Files { list: files, teachers, portions, left_out } = files;
        let places = Places::new(1, seq_len, Packing::None);
        Ok(Self { files, teachers, portions, left_out, chunk: seq_len as usize + 1, places, chunking, reader })
    }

    /// Has its rows take such places.
    #[must_use]
    pub fn filling(self, places: Places) -> Self {
        Self { places, ..self }
    }

    /// How files become chunks: a run that was begun by another rule is another run.
    pub fn chunking_rules(&self) -> String {
        let rule = |one: &Opened| match one.holds.rule() {
            STREAM_RULE if self.chunking == Chunking::PerDocument => DOCUMENTS_RULE,
            rule => rule,
        };
        let mut rules: BTreeSet<String> = self.files.iter().map(|one| rule(one).to_owned()).collect();
        if let Some(chat) = self.reader.chat.template().filter(|_| rules.remove(CHAT_RULE)) {
            rules.insert(format!("{CHAT_RULE} {}", chat.digest));
        }
        let fields = self.files.iter().filter_map(|one| one.holds.columns()?.field.as_ref());
        rules.extend(fields.map(|field| format!("column {field}")));
        if self.files.iter().any(|one| one.holds.columns().is_some_and(|columns| columns.likely.is_some())) {
            rules.insert(LIKELY_RULE.to_owned());
        }
        if self.has_teacher_prompts() {
            rules.insert(TEACHER_PROMPTS_RULE.to_owned());
        }
        if !self.teachers.is_empty() {
            let of =
                |one: &Opened| one.teacher.map_or_else(|| "rows".to_owned(), |of| self.teachers[of as usize].clone());
            let of_files = self.files.iter().map(of).dedup_with_count().map(|(count, of)| format!("{count} {of}"));
            rules.insert(format!("{TEACHERS_RULE} {}: {}", self.teachers.join(" "), of_files.format(" ")));
        }
        // Which files are whose decides what comes when.
        let shared = self.portions.iter().filter(|portion| portion.name.is_some());
        let shares = shared.map(|Portion { share, files: (first, end), .. }| {
            format!("{} of {}", *share as f32, count(end - first, "file"))
        });
        rules.into_iter().chain(shares).join(", ")
    }

    /// True if rows of a file have prompts that a teacher reads in place of the student's.
    pub fn has_teacher_prompts(&self) -> bool {
        self.files.iter().any(Opened::has_teacher_prompts)
    }

    /// True if any of it goes through a tokenizer.
    pub fn has_text(&self) -> bool {
        self.files.iter().any(|one| one.holds.is_text())
    }

    /// Names the token that ends documents and completions that are text; none of data that have neither.
    pub fn ends(&self) -> Option<String> {
        let is_ended = |holds: &Holds| match holds.kind() {
            Some(kind) => matches!(kind, Kind::Text | Kind::Completion | Kind::Instruction),
            None => *holds == Holds::Document,
        };
        let token = |id: u32| self.reader.tokenizer.as_ref().and_then(|tokenizer| tokenizer.token(id));
        let end = match self.reader.eos {
            Some(id) => format!("`{}` ({id})", token(id).unwrap_or_default()),
            None => "nothing: no file of the model names an eos_token".to_owned(),
        };
        self.files.iter().any(|one| is_ended(&one.holds)).then(|| format!("documents and completions with {end}"))
    }

    /// What the files are, in words.
    pub fn what(&self) -> String {
        let all = || self.files.iter().map(|one| one.holds.what());
        let files = all().counts();
        all().unique().map(|what| format!("{} of {what}", count(files[&what], "file"))).join(", ")
    }

    /// Why there is nothing to learn from in a file that came to this.
    pub(super) fn nothing(&self, file: &DataFile, holds: &Holds, of_file: &Summary) -> DataError {
        let (chunk, rows) = (self.chunk, of_file.rows);
        let reason = match of_file.reaches_counted {
            _ if of_file.without_room > 0
                && let Chunking::Prompts(PromptRule { room, .. }) = self.chunking =>
            {
                let longest = of_file.longest_prompt;
                format!(
                    "every prompt is too long: the longest has {longest} tokens, and --seq-len less --max-tokens \
                    leaves room for {room}"
                )
            }
            _ if *holds == Holds::Ids && chunk > 1 => {
                let tokens = file.bytes / 4;
                format!(
                    "{tokens} tokens do not fill one chunk of seq_len + 1 = {chunk}: give more data or a smaller \
                    --seq-len"
                )
            }
            _ if rows == 0 => "no rows in it; is it the right file?".to_owned(),
            _ if of_file.is_empty() && rows == 1 => "its text is empty; is it the right file?".to_owned(),
            _ if of_file.is_empty() => {
                format!("all {rows} texts in it are empty; is it the right file? --data-field names another column")
            }
            Some(reaches) => {
                let rows = of_file.cut_before_counted;
                let are = if rows == 1 { "is" } else { "are" };
                format!(
                    "no token to predict: {} {are} truncated to seq_len + 1 = {chunk} tokens before the first one \
                    that counts, as where the \
                     assistant speaks after a long prompt: --seq-len {reaches} reaches the nearest",
                    count(rows as usize, "row")
                )
            }
            None if of_file.without_assistant > 0 => format!(
                "no token to predict: {} of {rows} rows have no message whose role is assistant, and nothing else \
                counts",
                of_file.without_assistant
            ),
            None => "no token to predict: a sequence needs at least two, and one that is not masked".to_owned(),
        };
        DataError::of(&file.path, reason)
    }

    /// Digest of the files: hashing gigabytes takes a while.
    ///
    /// # Errors
    /// [`DataError`] where a file cannot be read, or is not as it was at the start.
    pub fn digest(&self) -> Result<Digest, DataError> {
        let each = self.files.par_iter().map(|Opened { file, .. }| {
            let digest = files::digest(&file.path).map_err(DataError::io(&file.path))?;
            file.open().map(|_| digest)
        });
        let digests = each.collect::<Result<Vec<Digest>, DataError>>()?;
        Ok(Digest::of_parts("precast.data", digests.iter().map(|digest| &digest.0[..])))
    }

    pub(super) fn tokenizer(&self, path: &Path) -> Result<&Tokenizer, DataError> {
        self.reader.tokenizer.as_deref().ok_or_else(|| DataError::no_tokenizer(path))
    }
}

/// The error for messages, and no template to render them by, with the sentence that says which model lacks it.
pub(super) fn no_template(path: &Path, kind: Kind, lacks: &str) -> DataError {
    let remedy = "put a chat_template.jinja beside a config.json, or give rows of text or input_ids";
    DataError::file(path, format_args!("has {kind}, and {lacks}: {remedy}"))
}
