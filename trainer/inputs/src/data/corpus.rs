//! A pass over data: files to rows, rows to tokens on all cores, tokens to chunks, in file order.

use std::collections::{BTreeSet, HashSet};
use std::io::{BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use ::parquet::record::Row;
use itertools::Itertools;
use precast_fatbins::Digest;
use precast_kernels::abi::MASKED_TOKEN;
use precast_system::{count, files};
use rayon::prelude::*;

use super::files::{DataFile, Form, Found, find};
use super::jsonl::{self, Lines};
use super::parquet::{self, Table};
use super::rows::{Columns, Content, Kind, PROMPTS, Part, check_ids, sequence};
use super::summary::Summary;
use super::{Chunk, DataError, DataSource, MOST_DOCUMENT_BYTES, Packing, Portion, PromptRule, Reader, csv};
use crate::base::impostors::{Disguise, without_mark};
use crate::chat::{Chat, has_assistant};
use crate::tokenizer::{SpecialTokens, Tokenizer};

/// How text and `.bin` files become chunks under [`Packing::Stream`]: a run that was begun by another rule is another run.
const STREAM_RULE: &str = "stream 1";
/// The same of rows of token ids.
const ROWS_RULE: &str = "rows 1";
/// The same of messages, prompts and completions.
const CHAT_RULE: &str = "chat 1";

/// Rows that are read and tokenized together, and their bytes.
const GROUP_ROWS: usize = 512;
const GROUP_BYTES: usize = 1 << 20;
/// Bytes of a file that say what it is instead.
const HEAD_BYTES: u64 = 512;

/// Files of data, what each holds, its portions, and files of directories that are not read.
pub struct Files(Vec<Opened>, Vec<Portion>, Vec<PathBuf>);

/// Files of data, and how they are read.
pub struct Corpus {
    pub(super) files: Vec<Opened>,
    /// Portions of the files, each of which is read by itself.
    pub portions: Vec<Portion>,
    /// Files of directories that are about the others.
    pub(super) left_out: Vec<PathBuf>,
    /// Tokens of a chunk: `seq_len + 1`.
    pub chunk: usize,
    pub(super) packing: Packing,
    pub(super) reader: Reader,
}

pub(super) struct Opened {
    pub file: DataFile,
    pub holds: Holds,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Ids,
    Document,
    /// None where there is no row.
    Rows(Option<Columns>),
}

impl Holds {
    /// The kind of its rows; none where it has none.
    fn kind(&self) -> Option<Kind> {
        match self {
            Self::Rows(columns) => columns.as_ref().map(|columns| columns.kind),
            Self::Ids | Self::Document => None,
        }
    }

    fn what(&self) -> String {
        match self {
            Self::Ids => "token ids".to_owned(),
            Self::Document => "a document".to_owned(),
            Self::Rows(None) => "no rows".to_owned(),
            Self::Rows(Some(Columns { field: Some(field), .. })) => format!("rows of {field}"),
            Self::Rows(Some(Columns { kind, .. })) => format!("rows of {kind}"),
        }
    }

    fn rule(&self) -> &'static str {
        match self.kind() {
            None | Some(Kind::Text) => STREAM_RULE,
            Some(Kind::Labeled | Kind::Ids) => ROWS_RULE,
            Some(Kind::Messages | Kind::Conversations | Kind::Completion | Kind::Instruction | Kind::Prompt) => {
                CHAT_RULE
            }
        }
    }

    /// True if a tokenizer reads it.
    fn is_text(&self) -> bool {
        *self == Self::Document || self.kind().is_some_and(|kind| !matches!(kind, Kind::Labeled | Kind::Ids))
    }
}

/// A row as it was read.
#[derive(Clone)]
pub(super) enum Raw {
    Line(Vec<u8>),
    Row(Row),
}

impl Raw {
    /// Returns its content; and true if that is without fields that are null in a table.
    pub fn content(self, columns: &Columns) -> Result<(Content, bool), String> {
        match self {
            Self::Line(line) => {
                let read = if columns.header.is_empty() { jsonl::row } else { csv::row };
                jsonl::text(&line).and_then(|line| read(line, columns)).map(|content| (content, false))
            }
            Self::Row(row) => parquet::row(row, columns),
        }
    }
}

/// What a row comes to.
pub(super) struct Tokens {
    pub chunk: Chunk,
    /// A document, which becomes chunks of its own or of a stream; else a sequence.
    pub is_document: bool,
    /// It is a text without a character.
    pub is_empty: bool,
    /// It is messages, none of them the assistant's.
    pub lacks_assistant: bool,
    /// Fields of it that are null are left out.
    pub lacks_nulls: bool,
}

impl Tokens {
    pub fn sequence(chunk: Chunk) -> Self {
        Self { chunk, is_document: false, is_empty: false, lacks_assistant: false, lacks_nulls: false }
    }
}

impl Files {
    /// Finds files, and looks at the first row of each. `field` is a column to read in place of those that are looked for.
    ///
    /// # Errors
    /// [`DataError`] of a file that cannot be data.
    pub fn open(paths: &[PathBuf], field: Option<&str>) -> Result<Self, DataError> {
        let (files, left_out) = opened(paths, field)?;
        let whole = Portion { name: None, share: 1.0, files: (0, files.len()) };
        Self(files, vec![whole], left_out).checked()
    }

    /// Like [`Self::open`], of sources of which each has a share of the tokens, or none has.
    ///
    /// # Errors
    /// [`DataError`] of a file that cannot be data.
    pub fn mixed(sources: &[DataSource], field: Option<&str>) -> Result<Self, DataError> {
        let all: Option<f64> = sources.iter().map(|source| source.share).sum();
        let Some(all) = all else {
            return Self::open(&sources.iter().map(|source| source.path.clone()).collect::<Vec<_>>(), field);
        };
        let (mut files, mut portions, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
        for DataSource { path, share } in sources {
            let first = files.len();
            let (of_source, others) = opened(std::slice::from_ref(path), field)?;
            files.extend(of_source);
            left_out.extend(others);
            // Rounded, so that equal ratios are one share.
            let share = f64::from((share.unwrap_or_default() / all) as f32);
            portions.push(Portion { name: Some(path.clone()), share, files: (first, files.len()) });
        }
        Self(files, portions, left_out).checked()
    }

    fn checked(self) -> Result<Self, DataError> {
        self.check_directories()?;
        Ok(self)
    }

    /// A directory is of one kind: what else is in it nobody means to train on.
    fn check_directories(&self) -> Result<(), DataError> {
        let with_rows = || self.0.iter().filter(|one| one.holds != Holds::Rows(None));
        for other in with_rows() {
            let Some(directory) = &other.file.directory else { continue };
            let first = with_rows().find(|one| one.file.directory.as_ref() == Some(directory)).unwrap_or(other);
            if first.holds.what() != other.holds.what() {
                let has = |Opened { file, holds }: &Opened| {
                    let name = file.path.file_name().unwrap_or_default();
                    format!("{} has {}", name.display(), holds.what())
                };
                let (first, other) = (has(first), has(other));
                let remedy = "a directory holds rows of one kind; name each file with a --data of its own";
                return Err(DataError::of(directory, format_args!("{first}, and {other}: {remedy}")));
            }
        }
        Ok(())
    }

    /// The first file that others have too.
    pub fn shared(&self, others: &Self) -> Option<&Path> {
        let inodes: HashSet<(u64, u64)> = others.0.iter().map(|other| other.file.inode).collect();
        self.0.iter().find(|one| inodes.contains(&one.file.inode)).map(|one| &*one.file.path)
    }

    /// Returns true if the files are of prompts alone, which with `prompt_tokens` begin the sequences of streams.
    ///
    /// # Errors
    /// [`DataError`] where some are and others are not.
    pub fn are_prompts(&self, prompt_tokens: Option<u32>) -> Result<bool, DataError> {
        let is_prompts = |Opened { holds, .. }: &&Opened| match holds.kind() {
            Some(Kind::Text) => prompt_tokens.is_some(),
            Some(kind) => kind == Kind::Prompt,
            None => prompt_tokens.is_some() && *holds != Holds::Rows(None),
        };
        let Some(prompts) = self.0.iter().find(is_prompts) else { return Ok(false) };
        match self.0.iter().find(|one| one.holds != Holds::Rows(None) && !is_prompts(one)) {
            None => Ok(true),
            Some(other) => Err(DataError::file(
                &other.file.path,
                format_args!(
                    "has {} with what is behind their prompts, and {} prompts alone: losses of the two do not compare. Hold out one of them",
                    other.holds.what(),
                    prompts.file.path.display()
                ),
            )),
        }
    }

    /// True if any of it may go through a chat template.
    pub fn has_chat(&self) -> bool {
        self.0.iter().any(|one| one.holds.rule() == CHAT_RULE)
    }
}

impl Corpus {
    /// How files are read.
    ///
    /// # Errors
    /// [`DataError`] of a file that `reader` cannot read.
    pub fn new(files: Files, seq_len: u32, packing: Packing, reader: Reader) -> Result<Self, DataError> {
        for Opened { file, holds } in &files.0 {
            if holds.is_text() && reader.tokenizer.is_none() {
                return Err(DataError::no_tokenizer(&file.path));
            }
            if let Packing::Prompts(PromptRule { of_stream: None, .. }) = packing
                && (matches!(holds, Holds::Ids | Holds::Document) || holds.kind() == Some(Kind::Text))
            {
                let reason =
                    "has no prompts: give --prompt-tokens N, which makes one of the first N tokens of each sequence";
                return Err(DataError::file(&file.path, reason));
            }
            if packing == Packing::Stream && holds.kind() == Some(Kind::Prompt) {
                return Err(DataError::of(&file.path, PROMPTS));
            }
            if let (Some(kind), Chat::Lacking(lacks)) = (holds.kind().filter(|kind| kind.is_chat()), &reader.chat) {
                return Err(no_template(&file.path, kind, lacks));
            }
        }
        let Files(files, portions, left_out) = files;
        Ok(Self { files, portions, left_out, chunk: seq_len as usize + 1, packing, reader })
    }

    /// How files become chunks: a run that was begun by another rule is another run.
    pub fn packing(&self) -> String {
        let mut rules: BTreeSet<String> = self.files.iter().map(|one| one.holds.rule().to_owned()).collect();
        if let Some(chat) = self.reader.chat.template().filter(|_| rules.remove(CHAT_RULE)) {
            rules.insert(format!("{CHAT_RULE} {}", chat.digest));
        }
        let fields = self.files.iter().filter_map(|one| match &one.holds {
            Holds::Rows(Some(Columns { field: Some(field), .. })) => Some(format!("column {field}")),
            _ => None,
        });
        rules.extend(fields.collect::<BTreeSet<_>>());
        // Which files are whose decides what comes when.
        let shared = self.portions.iter().filter(|portion| portion.name.is_some());
        let shares = shared.map(|Portion { share, files: (first, end), .. }| {
            format!("{} of {}", *share as f32, count(end - first, "file"))
        });
        rules.into_iter().chain(shares).join(", ")
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

    /// Reads everything once, in file order. `emit` is given each chunk.
    ///
    /// # Errors
    /// [`DataError`] of the first thing that is wrong; the chunks before it have been given.
    pub fn pass(&self, emit: &mut dyn FnMut(Chunk)) -> Result<Summary, DataError> {
        self.pass_while(&mut |chunk| {
            emit(chunk);
            true
        })
    }

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
        let mut pass =
            Pass { corpus: self, emit, before: none, summary: none, counted: false, goes_on: true, carried, first };
        let (mut learnt, mut nothing) = (false, None);
        for Opened { file, holds } in &self.files[start..end] {
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

    /// Why there is nothing to learn from in a file that came to this.
    pub(super) fn nothing(&self, file: &DataFile, holds: &Holds, of_file: &Summary) -> DataError {
        let (chunk, rows) = (self.chunk, of_file.rows);
        let reason = match of_file.reaches_counted {
            _ if of_file.without_room > 0 => {
                let (room, longest) = (self.room(), of_file.longest_prompt);
                format!(
                    "every prompt is too long: the longest has {longest} tokens, and --seq-len less --max-tokens leaves room for {room}"
                )
            }
            _ if *holds == Holds::Ids && chunk > 1 => {
                let tokens = file.bytes / 4;
                format!(
                    "{tokens} tokens do not fill one chunk of seq_len + 1 = {chunk}: give more data or a smaller --seq-len"
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
                    "no token to predict: {} {are} truncated to seq_len + 1 = {chunk} tokens before the first one that counts, as where the \
                     assistant speaks after a long prompt: --seq-len {reaches} reaches the nearest",
                    count(rows as usize, "row")
                )
            }
            None if of_file.without_assistant > 0 => format!(
                "no token to predict: {} of {rows} rows have no message whose role is assistant, and nothing else counts",
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

    /// Tokens of a prompt, at most.
    fn room(&self) -> u32 {
        match self.packing {
            Packing::Prompts(rule) => rule.room,
            Packing::Stream | Packing::PerDocument => u32::MAX,
        }
    }

    /// Reads a row, counted from 1, as the packing has it.
    pub(super) fn row(
        &self,
        file: &DataFile,
        columns: &Columns,
        (number, raw): (u64, Raw),
    ) -> Result<Tokens, DataError> {
        match self.packing {
            Packing::Prompts(rule) if columns.kind != Kind::Text => self.prompt_row(file, columns, (number, raw), rule),
            _ => self.read(file, columns, (number, raw)),
        }
    }

    /// The tokens of a row, counted from 1.
    pub(super) fn read(
        &self,
        file: &DataFile,
        columns: &Columns,
        (number, raw): (u64, Raw),
    ) -> Result<Tokens, DataError> {
        let path = &file.path;
        let fault = |fault| at_row(file, number, fault);
        let (content, lacks_nulls) = raw.content(columns).map_err(fault)?;
        let sequence_of = |chunk, is_empty| Tokens { is_empty, lacks_nulls, ..Tokens::sequence(chunk) };
        let vocab = self.reader.vocab;
        let (messages, tools, prompt) = match content {
            Content::Ids(row) => return Ok(sequence_of(sequence(row, vocab).map_err(fault)?, false)),
            Content::Text(text) => {
                let chunk = Chunk::plain(self.document(path, &text)?);
                return Ok(Tokens { is_document: true, ..sequence_of(chunk, text.is_empty()) });
            }
            Content::Completion { prompt: Part::Text(prompt), completion: Part::Text(completion), .. } => {
                let text = format!("{prompt}{completion}");
                let tokenizer = self.tokenizer(path)?;
                let (ids, offsets) =
                    tokenizer.encode_placed(&text, SpecialTokens::Add).map_err(DataError::tokenizer(path))?;
                let mut chunk = labeled(ids, &offsets, std::slice::from_ref(&(prompt.len()..text.len())));
                if let Some(eos) = self.reader.eos {
                    // Some tokenizers end texts themselves, by a token that stands for none of it.
                    if chunk.ids.last() == Some(&eos) && offsets.last().is_some_and(|(start, end)| start == end) {
                        chunk.labels.iter_mut().for_each(|labels| _ = labels.pop());
                    } else if chunk.ids.last() != Some(&eos) {
                        chunk.ids.push(eos);
                    }
                    chunk.labels.iter_mut().for_each(|labels| labels.resize(chunk.ids.len(), eos));
                }
                check_ids(chunk.ids.iter().map(|id| i64::from(*id)), vocab).map_err(fault)?;
                return Ok(sequence_of(chunk, completion.is_empty()));
            }
            Content::Completion { prompt: Part::Messages(prompt), completion: Part::Messages(completion), tools } => {
                (completion, tools, Some(prompt))
            }
            Content::Prompt { .. } => return Err(fault(PROMPTS.to_owned())),
            Content::Completion { .. } => {
                let reason = "one is text and the other messages: give both as text or both as messages";
                return Err(fault(format!("prompt and completion: {reason}")));
            }
            Content::Messages { messages, tools } => (messages, tools, None),
        };
        let chat = match &self.reader.chat {
            Chat::Template(chat) => chat,
            Chat::Lacking(lacks) => return Err(no_template(path, columns.kind, lacks)),
        };
        let conversation = chat.conversation(prompt.as_ref(), &messages, tools.as_ref()).map_err(fault)?;
        let placed = self.tokenizer(path)?.encode_placed(&conversation.text, SpecialTokens::Omit);
        let (ids, offsets) = placed.map_err(DataError::tokenizer(path))?;
        check_ids(ids.iter().map(|id| i64::from(*id)), vocab).map_err(fault)?;
        let chunk = labeled(ids, &offsets, &conversation.spans);
        Ok(Tokens { lacks_assistant: !has_assistant(&messages), ..sequence_of(chunk, false) })
    }

    /// The ids of a document, ended once: some tokenizers end it themselves.
    pub(super) fn document(&self, path: &Path, text: &str) -> Result<Vec<u32>, DataError> {
        let mut ids = self.tokenizer(path)?.encode(text, SpecialTokens::Add).map_err(DataError::tokenizer(path))?;
        ids.extend(self.reader.eos.filter(|eos| ids.last() != Some(eos)));
        Ok(ids)
    }
}

/// Finds files, and looks at the first row of each; and those that are not read.
fn opened(paths: &[PathBuf], field: Option<&str>) -> Result<(Vec<Opened>, Vec<PathBuf>), DataError> {
    let Found { files, left_out } = find(paths)?;
    let files = files.into_iter().map(|file| {
        let holds = holds(&file, field)?;
        Ok(Opened { file, holds })
    });
    Ok((files.collect::<Result<_, DataError>>()?, left_out))
}

/// Returns all bytes of a file.
pub(super) fn bytes_of(file: &DataFile) -> Result<Vec<u8>, DataError> {
    let mut bytes = Vec::with_capacity(file.bytes as usize);
    file.open()?.take(file.bytes).read_to_end(&mut bytes).map_err(DataError::io(&file.path))?;
    Ok(bytes)
}

/// Returns the text of a file that is one document, without its byte order mark.
pub(super) fn text_of(file: &DataFile) -> Result<String, DataError> {
    let path = &file.path;
    if file.bytes > MOST_DOCUMENT_BYTES {
        let remedy = "split it into several, one per line of a .jsonl file";
        let bytes = file.bytes;
        return Err(DataError::of(
            path,
            format_args!(
                "a document of {bytes} bytes: at most {MOST_DOCUMENT_BYTES} are tokenized at a time; {remedy}"
            ),
        ));
    }
    let bytes = bytes_of(file)?;
    let text = std::str::from_utf8(without_mark(&bytes)).map(str::to_owned);
    text.map_err(|error| DataError::of(path, format_args!("not UTF-8 text: {error}")))
}

/// The error for a row, counted from 1, that cannot be used.
pub(super) fn at_row(file: &DataFile, number: u64, reason: String) -> DataError {
    let place = if file.form == Form::Table { ": row " } else { ":" };
    DataError::of_row(format_args!("{}{place}{number}: {reason}", file.path.display()))
}

/// The error for messages, and no template to render them by, with the sentence that says which model lacks it.
pub(super) fn no_template(path: &Path, kind: Kind, lacks: &str) -> DataError {
    let remedy = "put a chat_template.jinja beside a config.json, or give rows of text or input_ids";
    DataError::file(path, format_args!("has {kind}, and {lacks}: {remedy}"))
}

/// Tokens of a text of which those that overlap spans of it count, as transformers has them since 5.24: the tokens of a
/// character all have its bytes.
fn labeled(ids: Vec<u32>, offsets: &[(usize, usize)], spans: &[Range<usize>]) -> Chunk {
    let mut spans = spans.iter().filter(|span| !span.is_empty()).peekable();
    let mut counts = |(start, end): (usize, usize)| {
        while spans.next_if(|span| span.end <= start).is_some() {}
        spans.peek().is_some_and(|span| span.start < end)
    };
    let label = |(id, place): (&u32, &(usize, usize))| if counts(*place) { *id } else { MASKED_TOKEN };
    let labels = ids.iter().zip(offsets).map(label).collect();
    Chunk { ids, labels: Some(labels) }
}

/// What a file holds, by its name and its first row.
fn holds(file: &DataFile, field: Option<&str>) -> Result<Holds, DataError> {
    let path = &file.path;
    let io = DataError::io(path);
    let mut head = Vec::new();
    file.stream()?.take(HEAD_BYTES).read_to_end(&mut head).map_err(&io)?;
    let what = match file.form {
        Form::Ids | Form::Table => Disguise::of(&head),
        // A web page may well be a document to learn from.
        Form::Document => Disguise::of_text(&head).filter(|what| *what != Disguise::WebPage),
        Form::Lines | Form::Csv => Disguise::of_text(&head),
    };
    if let Some(what) = what {
        return Err(DataError::file(path, what));
    }
    let columns = match file.form {
        Form::Ids if !file.bytes.is_multiple_of(4) => {
            let what = "are not a whole number of u32 token ids: it is truncated, or of another type; write ids as 4 bytes each";
            return Err(DataError::of(path, format_args!("{} bytes {what}", file.bytes)));
        }
        Form::Ids => return Ok(Holds::Ids),
        Form::Document => return Ok(Holds::Document),
        Form::Lines | Form::Csv => match Lines::of(file)?.next().map_err(&io)? {
            None => None,
            Some((number, line)) => {
                if let Some(reason) = jsonl::array(path, &line) {
                    return Err(DataError::of(path, reason));
                }
                let read = if file.form == Form::Csv { csv::columns } else { jsonl::columns };
                let columns = jsonl::text(&line).and_then(|line| read(line, field));
                Some(columns.map_err(|reason| at_row(file, number, reason))?)
            }
        },
        Form::Table => Some(parquet::columns(path, file.open()?, field)?),
    };
    Ok(Holds::Rows(columns))
}

/// A pass under way.
struct Pass<'a> {
    corpus: &'a Corpus,
    emit: &'a mut dyn FnMut(Chunk) -> bool,
    /// Of the files before this one.
    before: Summary,
    /// Of the file.
    summary: Summary,
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
        let length = chunk.prompt().len() as u64;
        self.summary.longest_prompt = self.summary.longest_prompt.max(length);
        let has_room = length <= rule.room.into();
        self.summary.without_room += u64::from(!has_room);
        has_room
    }

    fn give(&mut self, mut chunk: Chunk) {
        if let Packing::Prompts(rule) = self.corpus.packing {
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
        let is_padded = self.corpus.packing == Packing::Stream;
        self.summary.add(&chunk, if is_padded { self.corpus.chunk } else { chunk.ids.len() });
        self.counted |= chunk.counted() > 0;
        self.goes_on = self.goes_on && (self.emit)(chunk);
    }

    /// A file of token ids, divided in order into whole chunks; of an evaluation the last one may be shorter.
    fn ids(&mut self, file: &DataFile) -> Result<(), DataError> {
        let (chunk, vocab) = (self.corpus.chunk, self.corpus.reader.vocab);
        let mut bytes = BufReader::with_capacity(GROUP_BYTES, file.open()?);
        let mut left = file.bytes as usize / 4;
        let mut first = 0;
        let least = if self.corpus.packing == Packing::PerDocument { 2 } else { chunk };
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
        let text = text_of(file)?;
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
        let mut source = Source::open(file, columns)?;
        while self.goes_on {
            // What is wrong with a row before it is said first.
            let (group, ended) = source.group(&file.path);
            if group.is_empty() && ended.is_ok() {
                break;
            }
            let corpus = self.corpus;
            let read: Vec<Result<Tokens, DataError>> =
                group.into_par_iter().map(|raw| corpus.row(file, columns, raw)).collect();
            for tokens in read {
                self.summary.rows += 1;
                let Tokens { chunk, is_document, is_empty, lacks_assistant, lacks_nulls } = tokens?;
                self.summary.empty += u64::from(is_empty);
                self.summary.without_nulls += u64::from(lacks_nulls);
                match is_document {
                    true => self.pack(file, &chunk.ids)?,
                    false => self.sequence(chunk, lacks_assistant),
                }
            }
            ended?;
        }
        self.end_stream();
        Ok(())
    }

    /// A row by itself, truncated to a chunk.
    fn sequence(&mut self, mut chunk: Chunk, lacks_assistant: bool) {
        if let Packing::Prompts(rule) = self.corpus.packing
            && !self.has_room(&chunk, rule)
        {
            return;
        }
        let most = self.corpus.chunk;
        let is_cut = chunk.ids.len() > most;
        // How many tokens predict the first one that counts.
        let reaches = chunk.targets().iter().position(|target| *target != MASKED_TOKEN).map(|at| at as u64 + 1);
        chunk.truncate(most);
        self.summary.cut += u64::from(is_cut);
        let is_prompt = matches!(self.corpus.packing, Packing::Prompts(_));
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

    /// Cuts a tokenized document into chunks. Consecutive chunks of a stream share no token: the first token of a chunk is predicted
    /// by nothing, as in `.bin` files. A chunk of one token has nothing to predict.
    fn pack(&mut self, file: &DataFile, ids: &[u32]) -> Result<(), DataError> {
        let Corpus { chunk: most, packing, ref reader, .. } = *self.corpus;
        check_vocabulary(file, self.first, ids, reader.vocab)?;
        self.first += ids.len() as u64;
        self.carried.extend(ids);
        let rest = self.carried.split_off(self.carried.len() / most * most);
        for chunk in std::mem::replace(&mut self.carried, rest).chunks(most).filter(|chunk| chunk.len() > 1) {
            self.give(Chunk::plain(chunk));
        }
        if packing == Packing::PerDocument {
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

fn check_vocabulary(file: &DataFile, first: u64, ids: &[u32], vocab: u32) -> Result<(), DataError> {
    let outside = ids.iter().position(|id| *id >= vocab);
    outside.map_or(Ok(()), |index| Err(DataError::vocabulary(&file.path, first + index as u64, ids[index], vocab)))
}

/// Rows of a file, in order.
pub(super) enum Source {
    Lines(Lines),
    Table(Table),
}

impl Source {
    /// The rows of a file from the first on.
    pub fn open(file: &DataFile, columns: &Columns) -> Result<Self, DataError> {
        if file.form == Form::Table {
            return Ok(Self::Table(Table::new(&file.path, file.open()?, columns)?));
        }
        let mut lines = Lines::of(file)?;
        if file.form == Form::Csv {
            lines.next().map_err(DataError::io(&file.path))?;
        }
        Ok(Self::Lines(lines))
    }

    /// The next row, and its number from 1; none at the end of the file.
    pub fn next(&mut self, path: &Path) -> Result<Option<(u64, Raw)>, DataError> {
        Ok(match self {
            Self::Lines(lines) => {
                lines.next().map_err(DataError::io(path))?.map(|(number, line)| (number, Raw::Line(line)))
            }
            Self::Table(table) => table.next(path)?.map(|(number, row)| (number, Raw::Row(row))),
        })
    }

    /// The next rows; none at the end of the file. And what is wrong behind them.
    pub fn group(&mut self, path: &Path) -> (Vec<(u64, Raw)>, Result<(), DataError>) {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while rows.len() < GROUP_ROWS && bytes < GROUP_BYTES {
            match self.next(path) {
                Ok(Some(row)) => {
                    bytes += match &row.1 {
                        Raw::Line(line) => line.len(),
                        Raw::Row(row) => parquet::bytes(row),
                    };
                    rows.push(row);
                }
                Ok(None) => break,
                Err(error) => return (rows, Err(error)),
            }
        }
        (rows, Ok(()))
    }
}
