//! What a row of a table holds, and what can be wrong with it.

use std::fmt;
use std::ops::Range;

use minijinja::Value;
use precast_kernels::abi::MASKED_TOKEN;

use super::Chunk;
use super::json::Json;
use super::likely::LikelyForm;

/// A label that does not count.
const IGNORED: i64 = -100;

/// Which tokens of a row are no padding.
pub(super) const MASK: &str = "attention_mask";
/// Columns that say which tokens of a row count, as TRL writes them beside its ids.
const COUNTED: [&str; 2] = ["completion_mask", "assistant_masks"];
/// What such a column holds, for messages.
pub(super) const MASK_HOLDS: &str = "a list of 0 and 1, or of true and false";

/// Column of the prompt that a teacher reads in place of the student's.
pub(super) const TEACHER_PROMPT: &str = "teacher_prompt";
/// Column of the names of rows' teachers.
pub(super) const TEACHER: &str = "teacher";

/// The columns that rows are made of, for messages.
const ROWS: &str =
    "input_ids (and labels), messages, conversations, prompt and completion, instruction and output, or text";

/// Names of columns that a message lists.
const LISTED: usize = 8;

/// Which columns the rows of a file are made of: the first of these that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `input_ids` and `labels`.
    Labeled,
    /// `input_ids` alone.
    Ids,
    /// `messages`, and `tools` if there are any.
    Messages,
    /// `conversations`: turns of `from` and `value`; and `tools`.
    Conversations,
    /// `prompt` and `completion`, each text or messages.
    Completion,
    /// `instruction` and `output`, and `input` if there is any.
    Instruction,
    /// `text`: a document.
    Text,
    /// `prompt` alone, which somebody has to complete.
    Prompt,
}

impl Kind {
    /// The kind of rows with these columns; none where they have none that rows are made of.
    pub fn of(has: impl Fn(&str) -> bool) -> Option<Self> {
        let both = |one, other| has(one) && has(other);
        match () {
            () if both("input_ids", "labels") => Some(Self::Labeled),
            () if has("input_ids") => Some(Self::Ids),
            () if has("messages") => Some(Self::Messages),
            () if has("conversations") => Some(Self::Conversations),
            () if both("prompt", "completion") => Some(Self::Completion),
            () if both("instruction", "output") => Some(Self::Instruction),
            () if has("text") => Some(Self::Text),
            () if has("prompt") => Some(Self::Prompt),
            () => None,
        }
    }

    /// True if a chat template renders every row.
    pub fn is_chat(self) -> bool {
        matches!(self, Self::Messages | Self::Conversations)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Labeled => "input_ids and labels",
            Self::Ids => "input_ids alone",
            Self::Messages => "messages",
            Self::Conversations => "conversations",
            Self::Completion => "prompt and completion",
            Self::Instruction => "instruction and output",
            Self::Text => "text",
            Self::Prompt => "prompts",
        })
    }
}

/// Which columns to read, and as what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    pub kind: Kind,
    /// In place of the column that the kind is named after.
    pub field: Option<String>,
    /// Those that nothing reads, of the first row or the schema.
    pub unread: Vec<String>,
    /// All of a `.csv` file, in its order.
    pub header: Vec<String>,
    /// Texts of a `.parquet` file that are JSON.
    pub json: Json,
    /// Those of likely tokens, where they are read, too.
    pub likely: Option<LikelyForm>,
    pub teacher_prompts: TeacherPrompts,
    /// True if each row names its teacher.
    pub names_teachers: bool,
}

/// Treatment of a teacher's own prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TeacherPrompts {
    /// They are a column like any other that nothing reads.
    #[default]
    Unread,
    /// The first row has none, so that none may have.
    Absent,
    Read,
}

impl Columns {
    /// Of a file whose rows have these columns.
    pub fn new(kind: Kind, field: Option<&str>, names: Vec<String>) -> Self {
        let field = field.map(ToOwned::to_owned);
        let (unread, header, json) = (Vec::new(), Vec::new(), Json::default());
        let (likely, teacher_prompts, names_teachers) = (None, TeacherPrompts::Unread, false);
        let mut columns = Self { kind, field, unread, header, json, likely, teacher_prompts, names_teachers };
        columns.unread = names.into_iter().filter(|name| !columns.reads(name)).collect();
        columns
    }

    /// Reads likely tokens, too, where there are columns of them beside rows that are sequences of their own.
    pub fn with_likely(&mut self) {
        let has = |form: &LikelyForm| form.columns().iter().all(|name| self.unread.iter().any(|other| other == name));
        let is_sequence = !matches!(self.kind, Kind::Text | Kind::Prompt);
        self.likely = [LikelyForm::Lists, LikelyForm::Vllm].into_iter().find(|form| is_sequence && has(form));
        let read = self.likely.map_or(&[][..], LikelyForm::columns);
        self.unread.retain(|name| !read.contains(&name.as_str()));
    }

    /// Reads the teacher's own prompts, where there is a column of them beside prompts.
    pub fn with_teacher_prompts(&mut self) {
        if matches!(self.kind, Kind::Completion | Kind::Prompt | Kind::Labeled | Kind::Ids) {
            let place = self.unread.iter().position(|name| name == TEACHER_PROMPT);
            self.teacher_prompts = if place.is_some() { TeacherPrompts::Read } else { TeacherPrompts::Absent };
            place.map(|place| self.unread.remove(place));
        }
    }

    /// Reads the name of each row's teacher, if there is a column of them beside rows that are sequences of their own.
    pub fn with_teachers(&mut self) -> bool {
        let place = self.unread.iter().position(|name| name == TEACHER).filter(|_| self.kind != Kind::Text);
        place.map(|place| self.unread.remove(place));
        self.names_teachers = place.is_some();
        self.names_teachers
    }

    /// True if a column of this name is read.
    pub fn reads(&self, name: &str) -> bool {
        name == self.main()
            || self.teacher_prompts == TeacherPrompts::Read && name == TEACHER_PROMPT
            || self.names_teachers && name == TEACHER
            || self.likely.is_some_and(|form| form.columns().contains(&name))
            || match self.kind {
                Kind::Labeled => name == "labels" || name == MASK || COUNTED.contains(&name),
                Kind::Ids => name == MASK || COUNTED.contains(&name),
                Kind::Messages | Kind::Conversations => name == "tools",
                Kind::Completion => matches!(name, "completion" | "tools"),
                Kind::Instruction => matches!(name, "input" | "output"),
                Kind::Text => false,
                Kind::Prompt => name == "tools",
            }
    }

    /// Reads the masks that a row has.
    pub fn masks(&self, mut read: impl FnMut(&str) -> Result<Option<Vec<bool>>, String>) -> Result<Masks, String> {
        let names = std::iter::once(MASK).chain(COUNTED).filter(|name| *name != self.main());
        names.filter_map(|name| Some(read(name).transpose()?.map(|mask| (name, mask)))).collect()
    }

    /// The column of ids, messages or text.
    pub fn main(&self) -> &str {
        self.field.as_deref().unwrap_or(match self.kind {
            Kind::Labeled | Kind::Ids => "input_ids",
            Kind::Messages => "messages",
            Kind::Conversations => "conversations",
            Kind::Completion | Kind::Prompt => "prompt",
            Kind::Instruction => "instruction",
            Kind::Text => "text",
        })
    }
}

/// A row, read.
#[derive(Debug)]
pub(super) enum Content {
    Ids(Ids),
    Text(String),
    Messages { messages: Value, tools: Option<Value> },
    Completion { prompt: Part, completion: Part, tools: Option<Value>, teacher_prompt: Option<Part> },
    Prompt { prompt: Part, tools: Option<Value>, teacher_prompt: Option<Part> },
}

impl Content {
    /// The messages that it holds.
    pub fn messages(self) -> Vec<Value> {
        let parts = match self {
            Self::Messages { messages, .. } => return vec![messages],
            Self::Completion { prompt, completion, .. } => vec![prompt, completion],
            Self::Prompt { prompt, .. } => vec![prompt],
            Self::Ids(_) | Self::Text(_) => Vec::new(),
        };
        let messages = |part| if let Part::Messages(messages) = part { Some(messages) } else { None };
        parts.into_iter().filter_map(messages).collect()
    }
}

/// A row of token ids.
#[derive(Debug)]
pub(super) struct Ids {
    pub ids: Vec<i64>,
    pub labels: Option<Vec<i64>>,
    pub masks: Masks,
    /// Ids that the teacher reads in place of those before the first that counts.
    pub teacher_prompt: Option<Vec<i64>>,
}

/// Columns of a row that say something of each of its tokens: whether it is of the text, and not padding, or whether it
/// counts.
pub(super) type Masks = Vec<(&'static str, Vec<bool>)>;

/// A prompt or a completion.
#[derive(Debug)]
pub(super) enum Part {
    Text(String),
    Messages(Value),
}

/// The reason for which nothing is learned from rows of prompts.
pub(super) const PROMPTS: &str = "no column `completion`, which rows with `prompt` are learned by; prompts alone are \
    read by precast generate --data, by distill \
     --on-policy, and as --eval-data of a distill run with --max-tokens";

/// Columns that rows are often given with, and the one that is then missing.
const NEAR: [(&str, &str); 6] = [
    ("labels", "input_ids"),
    ("message", "messages"),
    ("conversation", "conversations"),
    ("completion", "prompt"),
    ("instruction", "output"),
    ("output", "instruction"),
];

/// The first column that is there of a row that nothing is made of, and the one that is missing.
fn near(columns: &[String]) -> Option<(&'static str, &'static str)> {
    NEAR.into_iter().find(|(there, _)| columns.iter().any(|column| column == there))
}

/// The error for rows of which no column is one that rows are made of.
pub(super) fn no_column(columns: &[String]) -> String {
    let what = match near(columns) {
        Some((there, missing)) => format!("no column `{missing}`, which rows with `{there}` are read by"),
        None => format!("no column of data: expected {ROWS}"),
    };
    format!("{what}{}; --data-field names another", has(columns))
}

/// The error for rows that lack the column that is asked for.
pub(super) fn no_field(field: &str, columns: &[String]) -> String {
    format!("no column {field}, which --data-field asks for{}", has(columns))
}

/// The error for a column that holds something else.
pub(super) fn wrong(column: &str, reason: impl fmt::Display, expected: &str) -> String {
    format!("{column}: {reason}: expected {expected}")
}

/// The error for a row of more bytes than are tokenized at a time.
pub(super) fn long(what: &str, most: u64) -> String {
    format!("{what} of more than {most} bytes: at most that is tokenized at a time; split the document")
}

/// What a row has instead, for messages.
fn has(columns: &[String]) -> String {
    if columns.is_empty() { String::new() } else { format!("; it has {}", listed(columns)) }
}

/// The first names of columns, for messages.
pub(super) fn listed(columns: &[String]) -> String {
    let more = if columns.len() > LISTED { ", ..." } else { "" };
    let named: Vec<String> = columns.iter().take(LISTED).map(|name| format!("`{name}`")).collect();
    named.join(", ") + more
}

/// Whether a row's tokens are all of a vocabulary.
pub(super) fn check_ids(ids: impl IntoIterator<Item = i64>, vocab: u32) -> Result<(), String> {
    let last = vocab - 1;
    match ids.into_iter().enumerate().find(|(_, id)| !(0..=i64::from(last)).contains(id)) {
        Some((index, id)) => Err(format!(
            "input_ids[{index}] is {id}, and the model's vocabulary is 0 to {last}: tokenize for this model"
        )),
        None => Ok(()),
    }
}

/// Where the tokens of a row stand that are not padding.
fn unpadded(mask: &[bool]) -> Result<Range<usize>, String> {
    let start = mask.iter().position(|counts| *counts).unwrap_or(0);
    let end = mask.iter().rposition(|counts| *counts).map_or(start, |last| last + 1);
    match mask[start..end].iter().position(|counts| !counts) {
        Some(hole) => Err(format!(
            "{MASK}[{}] is 0 between tokens that count: padding stands before or behind a row. Give such a token a \
            label of \
             {IGNORED}, or leave the column out",
            start + hole
        )),
        None => Ok(start..end),
    }
}

/// A teacher's prompt that is ids.
pub(super) fn prompt_ids(ids: Vec<i64>, vocab: u32) -> Result<Vec<u32>, String> {
    check_ids(ids.iter().copied(), vocab).map_err(|reason| reason.replace("input_ids", TEACHER_PROMPT))?;
    Ok(ids.into_iter().map(|id| id as u32).collect())
}

/// The sequence of a row of ids: as if it had no padding.
pub(super) fn sequence(row: Ids, vocab: u32) -> Result<Chunk, String> {
    let Ids { mut ids, mut labels, masks, teacher_prompt } = row;
    if let Some(labels) = labels.as_ref().filter(|labels| labels.len() != ids.len()) {
        let (ids, labels) = (ids.len(), labels.len());
        return Err(format!(
            "{ids} input_ids and {labels} labels: give each token one, {IGNORED} where it does not count"
        ));
    }
    let mut place = 0..ids.len();
    for (name, mask) in masks {
        let is_padding = name == MASK;
        if mask.len() != ids.len() {
            let (ids, mask) = (ids.len(), mask.len());
            let zero = if is_padding { "is padding" } else { "does not count" };
            return Err(format!("{ids} input_ids and {mask} values of {name}: give each token one, 0 where it {zero}"));
        }
        if is_padding {
            place = unpadded(&mask)?;
            continue;
        }
        let labels = labels.get_or_insert_with(|| ids.clone());
        labels.iter_mut().zip(mask).filter(|(_, counts)| !counts).for_each(|(label, _)| *label = IGNORED);
    }
    for column in [Some(&mut ids), labels.as_mut()].into_iter().flatten() {
        column.truncate(place.end);
        column.drain(..place.start);
    }
    check_ids(ids.iter().copied(), vocab)?;
    let last = vocab - 1;
    let wrong = |label: &i64| *label != IGNORED && !(0..=i64::from(last)).contains(label);
    if let Some((index, label)) = labels.iter().flatten().enumerate().find(|(_, label)| wrong(label)) {
        return Err(format!(
            "labels[{index}] is {label}: a label is a token of the model's vocabulary, 0 to {last}, or {IGNORED} for \
            one that \
             does not count"
        ));
    }
    let target = |label: i64| if label == IGNORED { MASKED_TOKEN } else { label as u32 };
    let chunk = Chunk {
        ids: ids.into_iter().map(|id| id as u32).collect(),
        labels: labels.map(|labels| labels.into_iter().map(target).collect()),
        ..Chunk::default()
    };
    match teacher_prompt {
        Some(prompt) => chunk.after(prompt_ids(prompt, vocab)?),
        None => Ok(chunk),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_row_has_its_columns() {
        let names = "input_ids labels attention_mask messages conversations tools prompt completion instruction \
            input output text";
        let kinds = [
            (Kind::Labeled, "input_ids labels attention_mask", false),
            (Kind::Ids, "input_ids attention_mask", false),
            (Kind::Messages, "messages tools", true),
            (Kind::Conversations, "conversations tools", true),
            (Kind::Completion, "tools prompt completion", false),
            (Kind::Instruction, "instruction input output", false),
            (Kind::Text, "text", false),
        ];
        for (kind, expected, is_chat) in kinds {
            let columns = Columns::new(kind, None, names.split(' ').map(str::to_owned).collect());
            let read: Vec<&str> = names.split(' ').filter(|name| columns.reads(name)).collect();
            assert_eq!((read.join(" ").as_str(), kind.is_chat()), (expected, is_chat), "{kind}");
            assert_eq!(columns.unread.len() + read.len(), 12, "{kind}");
        }
    }

    #[test]
    fn a_message_lists_eight_columns_and_says_that_there_are_more() {
        let said = |count: usize| no_column(&(1..=count).map(|number| format!("c{number}")).collect::<Vec<_>>());
        let eight = "; it has `c1`, `c2`, `c3`, `c4`, `c5`, `c6`, `c7`, `c8`";
        assert!(said(8).ends_with(&format!("{eight}; --data-field names another")), "{}", said(8));
        assert!(said(9).ends_with(&format!("{eight}, ...; --data-field names another")), "{}", said(9));
    }
}
