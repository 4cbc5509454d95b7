//! Files of data, and what each holds by its name and its first row.

use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::files::{DataFile, Form, Found, find};
use super::jsonl::{self, Lines};
use super::rows::{Columns, Kind, TeacherPrompts};
use super::source::at_row;
use super::{DataError, DataSource, Portion, csv, parquet};
use crate::base::impostors::Disguise;

/// The rule by which text and `.bin` files become chunks under [`Chunking::Stream`]: a run that was begun by another
/// rule is another run.
pub(super) const STREAM_RULE: &str = "stream 1";
/// The rule of text under [`Chunking::PerDocument`].
pub(super) const DOCUMENTS_RULE: &str = "documents 1";
/// The rule of rows of token ids.
const ROWS_RULE: &str = "rows 1";
/// The rule by which positions count of which others have computed likely tokens.
pub(super) const LIKELY_RULE: &str = "likely tokens 1";
/// The rule of rows whose teacher reads another prompt.
pub(super) const TEACHER_PROMPTS_RULE: &str = "teacher prompts 1";
/// The rule of micro-batches of several teachers.
pub(super) const TEACHERS_RULE: &str = "teachers 1";
/// The rule of messages, prompts and completions.
pub(super) const CHAT_RULE: &str = "chat 1";

/// Bytes of a file that say what it is instead.
const HEAD_BYTES: u64 = 512;

/// Files of data, what each holds, its portions, and files of directories that are not read.
pub struct Files {
    pub(super) list: Vec<Opened>,
    /// Names of the teachers by their numbers, where they have any.
    pub(super) teachers: Vec<String>,
    /// Each of them is read by itself.
    pub(super) portions: Vec<Portion>,
    /// Files of directories that are about the others.
    pub(super) left_out: Vec<PathBuf>,
}

pub(super) struct Opened {
    pub file: DataFile,
    pub holds: Holds,
    /// The teacher that its source names.
    named: Option<String>,
    /// Number of the teacher of all that it holds; none where each row names its own.
    pub teacher: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Ids,
    Document,
    /// None where there is no row.
    Rows(Option<Columns>),
}

impl Opened {
    /// True if one of these teachers, by their numbers, may teach what it holds.
    pub fn may_be_of(&self, numbers: &[u32]) -> bool {
        self.teacher.map_or(!numbers.is_empty(), |number| numbers.contains(&number))
    }

    /// True if its rows have prompts that a teacher reads in place of the student's.
    pub fn has_teacher_prompts(&self) -> bool {
        self.holds.columns().is_some_and(|columns| columns.teacher_prompts == TeacherPrompts::Read)
    }
}

impl Holds {
    /// Returns the columns of its rows; none where it has none.
    pub fn columns(&self) -> Option<&Columns> {
        if let Self::Rows(columns) = self { columns.as_ref() } else { None }
    }

    /// Returns the kind of its rows; none where it has none.
    pub fn kind(&self) -> Option<Kind> {
        self.columns().map(|columns| columns.kind)
    }

    pub fn what(&self) -> String {
        match self {
            Self::Ids => "token ids".to_owned(),
            Self::Document => "a document".to_owned(),
            Self::Rows(None) => "no rows".to_owned(),
            Self::Rows(Some(Columns { field: Some(field), .. })) => format!("rows of {field}"),
            Self::Rows(Some(Columns { kind, teacher_prompts: TeacherPrompts::Read, .. })) => {
                format!("rows of {kind}, with teacher_prompt")
            }
            Self::Rows(Some(Columns { kind, .. })) => format!("rows of {kind}"),
        }
    }

    pub fn rule(&self) -> &'static str {
        match self.kind() {
            None | Some(Kind::Text) => STREAM_RULE,
            Some(Kind::Labeled | Kind::Ids) => ROWS_RULE,
            Some(Kind::Messages | Kind::Conversations | Kind::Completion | Kind::Instruction | Kind::Prompt) => {
                CHAT_RULE
            }
        }
    }

    /// True if a tokenizer reads it.
    pub fn is_text(&self) -> bool {
        *self == Self::Document || self.kind().is_some_and(|kind| !matches!(kind, Kind::Labeled | Kind::Ids))
    }
}

impl Files {
    /// Finds files, and looks at the first row of each. `field` is a column to read in place of those that are looked
    /// for.
    ///
    /// # Errors
    /// [`DataError`] of a file that cannot be data.
    pub fn open(paths: &[PathBuf], field: Option<&str>) -> Result<Self, DataError> {
        let sources: Vec<DataSource> = paths.iter().map(|path| DataSource::whole(path)).collect();
        Self::mixed(&sources, field)
    }

    /// Like [`Self::open`], of sources of which each has a share of the tokens, or none has.
    ///
    /// # Errors
    /// [`DataError`] of a file that cannot be data.
    pub fn mixed(sources: &[DataSource], field: Option<&str>) -> Result<Self, DataError> {
        let all: Option<f64> = sources.iter().map(|source| source.share).sum();
        let all = all.filter(|_| !sources.is_empty());
        let mut files = Self { list: Vec::new(), teachers: Vec::new(), portions: Vec::new(), left_out: Vec::new() };
        for source @ DataSource { path, share, .. } in sources {
            let first = files.list.len();
            let (of_source, others) = opened(source, field)?;
            files.list.extend(of_source);
            files.left_out.extend(others);
            if let Some(all) = all {
                // Rounded, so that equal ratios are one share.
                let share = f64::from((share.unwrap_or_default() / all) as f32);
                files.portions.push(Portion { name: Some(path.clone()), share, files: (first, files.list.len()) });
            }
        }
        if all.is_none() {
            files.portions.push(Portion { name: None, share: 1.0, files: (0, files.list.len()) });
        }
        files.of_one_kind_each()
    }

    /// Has named teachers teach what their sources hold, or the rows that name them.
    ///
    /// # Errors
    /// [`DataError`] of a file of which nothing names a teacher.
    pub fn taught_by(mut self, names: &[String]) -> Result<Self, DataError> {
        if names.is_empty() {
            return Ok(self);
        }
        for one in &mut self.list {
            let number = |name: &String| names.iter().position(|other| other == name).map(|number| number as u32);
            one.teacher = one.named.as_ref().and_then(number);
            if one.teacher.is_none() {
                let Holds::Rows(columns) = &mut one.holds else {
                    return Err(DataError::of_no_teacher(&one.file.path, names));
                };
                if let Some(columns) = columns
                    && !columns.with_teachers()
                {
                    return Err(DataError::of_no_teacher(&one.file.path, names));
                }
            }
        }
        Ok(Self { teachers: names.to_vec(), ..self })
    }

    /// Refuses a directory of several kinds: what else is in it nobody means to train on.
    fn of_one_kind_each(self) -> Result<Self, DataError> {
        let with_rows = || self.list.iter().filter(|one| one.holds != Holds::Rows(None));
        for other in with_rows() {
            let Some(directory) = &other.file.directory else { continue };
            let first = with_rows().find(|one| one.file.directory.as_ref() == Some(directory)).unwrap_or(other);
            if first.holds.what() != other.holds.what() {
                let has = |Opened { file, holds, .. }: &Opened| {
                    let name = file.path.file_name().unwrap_or_default();
                    format!("{} has {}", name.display(), holds.what())
                };
                let (first, other) = (has(first), has(other));
                let remedy = "a directory holds rows of one kind; name each file with a --data of its own";
                return Err(DataError::of(directory, format_args!("{first}, and {other}: {remedy}")));
            }
        }
        Ok(self)
    }

    /// Reads the prompts that a teacher has in place of the student's, of the files that have them.
    #[must_use]
    pub fn with_teacher_prompts(mut self) -> Self {
        for one in &mut self.list {
            if let Holds::Rows(Some(columns)) = &mut one.holds {
                columns.with_teacher_prompts();
            }
        }
        self
    }

    /// True if rows of a file have such prompts.
    pub fn has_teacher_prompts(&self) -> bool {
        self.list.iter().any(Opened::has_teacher_prompts)
    }

    /// True if rows of a file that a teacher may teach, by its number, have such prompts.
    pub fn has_teacher_prompts_of(&self, number: u32) -> bool {
        self.list.iter().any(|one| one.may_be_of(&[number]) && one.has_teacher_prompts())
    }

    /// Refuses files that have them and that some teachers may teach, by their numbers.
    ///
    /// # Errors
    /// [`DataError`] of the first such file.
    pub fn without_those_of(self, numbers: &[u32]) -> Result<Self, DataError> {
        match self.list.iter().find(|one| one.may_be_of(numbers) && one.has_teacher_prompts()) {
            None => Ok(self),
            Some(Opened { file, .. }) => Err(DataError::file(
                &file.path,
                "has teacher_prompt, and a cache holds what a teacher says behind the student's prompts: give \
                --teacher in place of a cache, or leave the column out",
            )),
        }
    }

    /// The first file that others have too.
    pub fn shared(&self, others: &Self) -> Option<&Path> {
        let inodes: HashSet<(u64, u64)> = others.list.iter().map(|other| other.file.inode).collect();
        self.list.iter().find(|one| inodes.contains(&one.file.inode)).map(|one| &*one.file.path)
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
        let Some(prompts) = self.list.iter().find(is_prompts) else { return Ok(false) };
        match self.list.iter().find(|one| one.holds != Holds::Rows(None) && !is_prompts(one)) {
            None => Ok(true),
            Some(other) => Err(DataError::file(
                &other.file.path,
                format_args!(
                    "has {} with what is behind their prompts, and {} prompts alone: losses of the two do not \
                    compare. Hold out one of them",
                    other.holds.what(),
                    prompts.file.path.display()
                ),
            )),
        }
    }

    /// True if any of it may go through a chat template.
    pub fn has_chat(&self) -> bool {
        self.list.iter().any(|one| one.holds.rule() == CHAT_RULE)
    }
}

/// Finds the files of a source, and looks at the first row of each; and those that are not read.
fn opened(source: &DataSource, field: Option<&str>) -> Result<(Vec<Opened>, Vec<PathBuf>), DataError> {
    let Found { files, left_out } = find(std::slice::from_ref(&source.path))?;
    let files = files.into_iter().map(|file| {
        let holds = holds(&file, field)?;
        Ok(Opened { file, holds, named: source.teacher.clone(), teacher: Some(0) })
    });
    Ok((files.collect::<Result<_, DataError>>()?, left_out))
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
            let what = "are not a whole number of u32 token ids: it is truncated, or of another type; write ids as 4 \
                bytes each";
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
