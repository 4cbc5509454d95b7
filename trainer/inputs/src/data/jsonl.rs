//! Rows of `.jsonl` files: an object a line.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::marker::PhantomData;
use std::path::Path;

use minijinja::Value;
use precast_core::shell::quoted;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::files::{DataFile, Form, MOST_DOCUMENT_BYTES};
use super::likely::{LikelyForm, Listed, Ranked};
use super::rows::{
    Columns, Content, Ids, Kind, MASK_HOLDS, Part, TEACHER, TEACHER_PROMPT, TeacherPrompts, long, no_column, no_field,
    wrong,
};
use super::{DataError, dialects};
use crate::base::impostors::without_mark;

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 1 << 20;

/// Messages describe vLLM's likely tokens by this.
const RANKED: &str = r#"a list that has for each token an object, {"ID": {"logprob": ..., "rank": ...}, ...}, or null"#;

/// The lines of a file that are not empty, with their numbers from 1.
pub(super) struct Lines {
    file: BufReader<Box<dyn Read + Send>>,
    /// A line of a `.csv` file goes on behind a line break in quotes.
    is_csv: bool,
    number: u64,
}

impl Lines {
    pub fn of(file: &DataFile) -> Result<Self, DataError> {
        Ok(Self::new(file.stream()?, file.form == Form::Csv))
    }

    pub fn new(file: Box<dyn Read + Send>, is_csv: bool) -> Self {
        Self { file: BufReader::with_capacity(BUFFER_BYTES, file), is_csv, number: 0 }
    }

    /// The next line, in bytes without its end; none at the end of the file. One that is too long is truncated there.
    pub fn next(&mut self) -> io::Result<Option<(u64, Vec<u8>)>> {
        loop {
            let (mut line, mut quotes, first) = (Vec::new(), 0, self.number + 1);
            loop {
                let (before, most) = (line.len(), MOST_DOCUMENT_BYTES + 1 - line.len() as u64);
                if (&mut self.file).take(most).read_until(b'\n', &mut line)? == 0 {
                    break;
                }
                self.number += 1;
                quotes += line[before..].iter().filter(|byte| **byte == b'"').count();
                if !self.is_csv || quotes.is_multiple_of(2) {
                    break;
                }
            }
            if line.is_empty() {
                return Ok(None);
            }
            if first == 1 {
                line = without_mark(&line).to_vec();
            }
            while line.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
                line.pop();
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some((first, line)));
            }
        }
    }
}

/// The text of a line.
pub(super) fn text(line: &[u8]) -> Result<&str, String> {
    if line.len() as u64 > MOST_DOCUMENT_BYTES {
        return Err(long("a line", MOST_DOCUMENT_BYTES));
    }
    let wrong = |at: usize| format!("not UTF-8 text: an invalid byte at column {}", at + 1);
    std::str::from_utf8(line).map_err(|error| wrong(error.valid_up_to()))
}

/// Why a file whose first line this is has no rows: one list holds them all, as Alpaca and ShareGPT are published.
pub(super) fn array(path: &Path, line: &[u8]) -> Option<String> {
    let end = if path.extension() == Some("jsonl".as_ref()) { "rows.jsonl" } else { "jsonl" };
    let [from, to] = [path, &path.with_extension(end)].map(|path| quoted(&path.display().to_string()));
    let starts = line.trim_ascii_start().starts_with(b"[");
    starts.then(|| format!("this is a JSON array, and rows are one object a line: jq -c '.[]' {from} > {to}"))
}

/// Which columns to read of a file whose first row this is.
pub(super) fn columns(line: &str, field: Option<&str>) -> Result<Columns, String> {
    let row = Row::parse(line)?;
    let Some(field) = field else {
        return Ok(Columns::new(row.kind()?, None, row.present()));
    };
    let text = row.get(field).ok_or_else(|| no_field(field, &row.names()))?.get();
    let kind = match (text.as_bytes()[0], text[1..].trim_start().as_bytes().first()) {
        (b'"', _) => Kind::Text,
        // What is wrong with one that does not parse is said when it is read.
        (b'[', Some(b'{')) if row.value(field).is_ok_and(|list| dialects::has_turns(&list)) => Kind::Conversations,
        (b'[', Some(b'{')) => Kind::Messages,
        (b'[', _) => Kind::Ids,
        _ => {
            let expected = "text, a list of token ids or a list of messages";
            return Err(wrong(field, "it is neither text nor a list", expected));
        }
    };
    Ok(Columns::new(kind, Some(field), row.present()))
}

/// A row of a file.
pub(super) fn row(line: &str, columns: &Columns) -> Result<Content, String> {
    let row = Row::parse(line)?;
    let Columns { kind, field, .. } = columns;
    match field {
        Some(field) if row.get(field).is_none() => return Err(no_field(field, &row.names())),
        Some(_) => {}
        None => {
            let found = row.kind()?;
            if found != *kind {
                return Err(format!(
                    "a row of {found} in a file whose first row has {kind}: put rows of each kind into a file of \
                    their own"
                ));
            }
        }
    }
    if columns.teacher_prompts == TeacherPrompts::Absent && row.get(TEACHER_PROMPT).is_some() {
        return Err(format!(
            "{TEACHER_PROMPT}: the first row has none, and a run reads them in rows of a file whose first row has one: \
            put such rows into a file of their own"
        ));
    }
    let reads_teacher_prompt = columns.teacher_prompts == TeacherPrompts::Read && row.get(TEACHER_PROMPT).is_some();
    let teacher_prompt = || reads_teacher_prompt.then(|| row.part(TEACHER_PROMPT)).transpose();
    let tools = || row.get("tools").map(|_| row.read::<Value>("tools", "a list of tools")).transpose();
    Ok(match kind {
        Kind::Labeled | Kind::Ids => {
            let what =
                r#"{"input_ids": [...], "labels": [...]}, lists of integers; labels may be left out of all rows"#;
            let list = |name: &str| row.value::<Vec<i64>>(name).map_err(|reason| format!("{reason}: expected {what}"));
            let labels = if *kind == Kind::Labeled { Some(list("labels")?) } else { None };
            let masks = columns.masks(|name| {
                let mask = row.get(name).map(|_| row.read::<Vec<Bit>>(name, MASK_HOLDS)).transpose()?;
                Ok(mask.map(|mask| mask.into_iter().map(|Bit(counts)| counts).collect()))
            })?;
            let expected = "a list of token ids, as input_ids is";
            let prompt = || row.read::<Vec<i64>>(TEACHER_PROMPT, expected);
            let teacher_prompt = reads_teacher_prompt.then(prompt).transpose()?;
            Content::Ids(Ids { ids: list(columns.main())?, labels, masks, teacher_prompt })
        }
        Kind::Text => Content::Text(row.read(columns.main(), "a string")?),
        Kind::Messages => {
            Content::Messages { messages: row.read(columns.main(), "a list of messages")?, tools: tools()? }
        }
        Kind::Conversations => {
            let turns = row.read(columns.main(), "a list of turns")?;
            Content::Messages { messages: dialects::messages(columns.main(), &turns)?, tools: tools()? }
        }
        Kind::Instruction => {
            let text = |name: &str| row.read::<String>(name, "a string");
            let input = row.get("input").map(|_| text("input")).transpose()?.unwrap_or_default();
            dialects::instruction(&text("instruction")?, &input, text("output")?)
        }
        Kind::Completion => {
            let [prompt, completion] = ["prompt", "completion"].map(|name| row.part(name));
            let (tools, teacher_prompt) = (tools()?, teacher_prompt()?);
            Content::Completion { prompt: prompt?, completion: completion?, tools, teacher_prompt }
        }
        Kind::Prompt => {
            let (tools, teacher_prompt) = (tools()?, teacher_prompt()?);
            Content::Prompt { prompt: row.part("prompt")?, tools, teacher_prompt }
        }
    })
}

/// The name of a row's teacher.
pub(super) fn teacher(line: &str) -> Result<String, String> {
    let row = Row::parse(line)?;
    match row.get(TEACHER) {
        Some(_) => row.read(TEACHER, "the NAME of a --teacher"),
        None => Err(no_teacher()),
    }
}

/// The error for a row that names no teacher.
pub(super) fn no_teacher() -> String {
    format!("no column `{TEACHER}`, which the first row has: put rows without it into a file of their own")
}

/// The likely tokens of a row.
pub(super) fn likely(line: &str, form: LikelyForm) -> Result<Listed, String> {
    let row = Row::parse(line)?;
    if let Some(name) = form.columns().iter().find(|name| row.get(name).is_none()) {
        return Err(format!(
            "no column `{name}`, which the first row has: put rows without it into a file of their own"
        ));
    }
    Ok(match form {
        LikelyForm::Lists => {
            let ids = row.read("top_ids", "a list that has for each token a list of ids, or null")?;
            Listed::Lists {
                ids,
                log_probs: row.read("top_logprobs", "a list that has for each token a list of numbers, or null")?,
            }
        }
        LikelyForm::Vllm => Listed::Vllm(ranked(row.read("prompt_logprobs", RANKED)?)?),
    })
}

/// The likely tokens of a row whose column of them is text.
pub(super) fn likely_of_text(text: &str) -> Result<Listed, String> {
    let read = serde_json::from_str(text).map_err(|error| wrong("prompt_logprobs", fault_of(&error, 0), RANKED))?;
    Ok(Listed::Vllm(ranked(read)?))
}

/// Positions of `prompt_logprobs`.
type PromptLogprobs<'a> = Vec<Option<Object<'a, PromptLogprob>>>;

/// vLLM says this of a token.
#[derive(Deserialize)]
struct PromptLogprob {
    logprob: f64,
    rank: u64,
}

fn ranked(positions: PromptLogprobs<'_>) -> Result<Vec<Option<Vec<Ranked>>>, String> {
    let one = |(id, PromptLogprob { logprob: log_prob, rank }): (Cow<'_, str>, _)| {
        let id = id.parse().map_err(|_| wrong("prompt_logprobs", format_args!("`{id}` is no token id"), RANKED))?;
        Ok(Ranked { id, log_prob, rank })
    };
    let of_position = |Object(tokens): Object<'_, _>| tokens.into_iter().map(one).collect();
    positions.into_iter().map(|position| position.map(of_position).transpose()).collect()
}

/// The columns of a line, each as it stands there. One that is null is not there.
struct Row<'a> {
    line: &'a str,
    columns: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'a> Row<'a> {
    fn parse(line: &'a str) -> Result<Self, String> {
        let what = r#"one JSON object a line, with "input_ids" (and "labels"), "messages", "conversations", "prompt" and "completion", "instruction" and "output", or "text""#;
        let wrong = |error| format!("{}: expected {what}", fault_of(&error, 0));
        serde_json::from_str(line).map(|Object(columns): Object<'a, _>| Self { line, columns }).map_err(wrong)
    }

    fn kind(&self) -> Result<Kind, String> {
        Kind::of(|name| self.get(name).is_some()).ok_or_else(|| no_column(&self.names()))
    }

    fn get(&self, name: &str) -> Option<&'a RawValue> {
        let (_, value) = self.columns.iter().find(|(column, _)| column == name)?;
        (value.get() != "null").then_some(*value)
    }

    fn names(&self) -> Vec<String> {
        self.columns.iter().map(|(name, _)| name.clone().into_owned()).collect()
    }

    /// The names of those that are not null.
    fn present(&self) -> Vec<String> {
        self.names().into_iter().filter(|name| self.get(name).is_some()).collect()
    }

    /// A column as something, or why it is none, with the column of the line where that shows.
    fn value<T: Deserialize<'a>>(&self, name: &str) -> Result<T, String> {
        let text = self.get(name).map_or("null", RawValue::get);
        let before = (text.as_ptr() as usize).wrapping_sub(self.line.as_ptr() as usize);
        let before = if before < self.line.len() { before } else { 0 };
        serde_json::from_str(text).map_err(|error| fault_of(&error, before))
    }

    fn read<T: Deserialize<'a>>(&self, name: &str, expected: &str) -> Result<T, String> {
        self.value(name).map_err(|reason| wrong(name, reason, expected))
    }

    fn part(&self, name: &str) -> Result<Part, String> {
        let is_text = self.get(name).is_some_and(|value| value.get().starts_with('"'));
        match is_text {
            true => Ok(Part::Text(self.read(name, "a string")?)),
            false => {
                let messages: Vec<Value> = self.read(name, "a string or a list of messages")?;
                Ok(Part::Messages(messages.into()))
            }
        }
    }
}

/// A value of a mask.
struct Bit(bool);

impl<'de> Deserialize<'de> for Bit {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Value;

        impl Visitor<'_> for Value {
            type Value = Bit;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("0, 1, true or false")
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Bit, E> {
                Ok(Bit(value))
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Bit, E> {
                if value < 2 {
                    return Ok(Bit(value == 1));
                }
                Err(E::invalid_value(serde::de::Unexpected::Unsigned(value), &self))
            }
        }
        from.deserialize_any(Value)
    }
}

/// What is wrong with JSON, and in which column of its line, given what stands before it there: the library counts the
/// line as the first of its text.
fn fault_of(error: &serde_json::Error, before: usize) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((what, _)) => format!("{what} at column {}", before + error.column()),
        None => text,
    }
}

/// The columns of an object, no name twice.
struct Object<'a, V>(Vec<(Cow<'a, str>, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Object<'de, V> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Columns<V>(PhantomData<V>);

        impl<'de, V: Deserialize<'de>> Visitor<'de> for Columns<V> {
            type Value = Object<'de, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de, V>, A::Error> {
                let mut columns: Vec<(Cow<'de, str>, V)> = Vec::new();
                while let Some(Name(name)) = map.next_key()? {
                    if columns.iter().any(|(column, _)| *column == name) {
                        return Err(A::Error::custom(format!("duplicate field `{name}`")));
                    }
                    columns.push((name, map.next_value()?));
                }
                Ok(Object(columns))
            }

            // Names what stands there in place of an object.
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Object<'de, V>, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Err(A::Error::custom("a list, expected an object"))
            }
        }
        from.deserialize_map(Columns(PhantomData))
    }
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    fn read(first: &str, line: &str) -> Result<Content, String> {
        row(line, &columns(first, None)?)
    }

    fn kind(line: &str, field: Option<&str>) -> Result<Kind, String> {
        columns(line, field).map(|columns| columns.kind)
    }

    #[test]
    fn the_first_columns_that_are_there_say_what_a_row_is() {
        let all = r#"{"text": "a", "prompt": "b", "completion": "c", "messages": [], "labels": [1], "input_ids": [1]}"#;
        assert_eq!(kind(all, None), Ok(Kind::Labeled));
        assert_eq!(kind(r#"{"messages": [], "text": "a", "labels": [1]}"#, None), Ok(Kind::Messages));
        assert_eq!(kind(r#"{"prompt": "b", "text": "a"}"#, None), Ok(Kind::Text));
        assert_eq!(kind(r#"{"prompt": "b", "completion": "a", "text": "a"}"#, None), Ok(Kind::Completion));
        assert_eq!(kind(r#"{"input_ids": null, "text": "a"}"#, None), Ok(Kind::Text));
        assert_eq!(kind(r#"{"conversations": [], "prompt": "b", "completion": "a"}"#, None), Ok(Kind::Conversations));
        assert_eq!(kind(r#"{"instruction": "b", "output": "a", "text": "a"}"#, None), Ok(Kind::Instruction));
    }

    #[test]
    fn a_row_that_is_near_one_is_told_its_missing_column() {
        let rows = [
            r#"{"conversation": []}"#,
            r#"{"instruction": "b", "response": "a"}"#,
            r#"{"input": "b", "output": "a"}"#,
            r#"{"instruction": "b", "output": null}"#,
            r#"{"message": []}"#,
        ];
        insta::assert_snapshot!(rows.map(|row| kind(row, None).unwrap_err()).join("\n"));
    }

    #[test]
    fn a_field_that_is_asked_for_is_what_its_first_value_is() {
        let line = r#"{"text": "a", "content": "b", "ids": [ 1], "chat": [ {"role": "user"}], "n": 1}"#;
        let turns = r#"{"chat": [{"from": "human", "value": "b"}], "text": "a"}"#;
        assert_eq!(kind(turns, Some("chat")), Ok(Kind::Conversations));
        // Half a turn is a message, which a template may know.
        for half in ["from", "value"] {
            let line = format!(r#"{{"chat": [{{"{half}": "human", "role": "user"}}]}}"#);
            assert_eq!(kind(&line, Some("chat")), Ok(Kind::Messages), "{half}");
        }
        let kinds = ["content", "ids", "chat"].map(|field| kind(line, Some(field)).unwrap());
        assert_eq!(kinds, [Kind::Text, Kind::Ids, Kind::Messages]);
        assert!(kind(line, Some("n")).unwrap_err().starts_with("n: it is neither text nor a list: expected text, "));
        assert!(
            kind(line, Some("none")).unwrap_err().starts_with("no column none, which --data-field asks for; it has ")
        );
        let of = columns(line, Some("content")).unwrap();
        assert!(matches!(row(line, &of), Ok(Content::Text(text)) if text == "b"));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_column() {
        let rows = [
            r#"{"text": 1}"#,
            r#"{"text": "a", "text": "b"}"#,
            r#"{"text": "a"} x"#,
            "[1, 2]",
            r#"{"words": 1}"#,
            r#"{"text": "a", "messages": []}"#,
        ];
        let faults = rows.map(|line| read(r#"{"text": "a"}"#, line).unwrap_err()).join("\n");
        let of_ids = read(r#"{"input_ids": [1]}"#, r#"{"input_ids": [1, 1.5]}"#).unwrap_err();
        insta::assert_snapshot!(format!("{faults}\n{of_ids}"));
    }

    #[test]
    fn messages_keep_the_order_of_their_names() {
        let line =
            r#"{"messages": [{"role": "user", "zeta": 1, "alpha": {"z": 1, "a": 2}}], "tools": [{"b": 1, "a": 2}]}"#;
        let Ok(Content::Messages { messages, tools }) = read(line, line) else { panic!("a row of messages") };
        assert_eq!(messages.to_string(), "[{'role': 'user', 'zeta': 1, 'alpha': {'z': 1, 'a': 2}}]");
        assert_eq!(tools.unwrap().to_string(), "[{'b': 1, 'a': 2}]");
    }

    #[test]
    fn lines_are_counted_with_the_empty_ones() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, b"\xEF\xBB\xBFone\r\n\n  \ntwo").unwrap();
        io::Seek::rewind(&mut file).unwrap();
        let mut lines = Lines::new(Box::new(file), false);
        assert_eq!(lines.next().unwrap(), Some((1, b"one".to_vec())));
        assert_eq!(lines.next().unwrap(), Some((4, b"two".to_vec())));
        assert_eq!(lines.next().unwrap(), None);
    }
}
