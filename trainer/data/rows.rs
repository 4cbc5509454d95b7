//! Rows of token ids: one sequence each, in which each token says whether it counts.

use std::path::Path;

use precast_kernels::abi::MASKED_TOKEN;
use rayon::prelude::*;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::text::utf8;
use super::{Chunk, DataError};

/// A label that does not count.
const IGNORED: i64 = -100;

/// What is wrong with a row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowFault {
    /// It is not JSON, or not of integers.
    #[error(
        "{0}: expected {{\"input_ids\": [...], \"labels\": [...]}}, lists of integers; labels may be left out of all rows"
    )]
    Malformed(String),
    /// A token without a label, or a label without a token.
    #[error("{ids} input_ids and {labels} labels: give each token one, {IGNORED} where it does not count")]
    Lengths { ids: usize, labels: usize },
    /// A token that the model does not know.
    #[error("input_ids[{index}] is {id}, and the model's vocabulary is 0 to {last}: tokenize for this model")]
    Id {
        /// Place in the row, from 0.
        index: usize,
        id: i64,
        /// The last id.
        last: u32,
    },
    /// A label that is neither a token nor the one that does not count.
    #[error(
        "labels[{index}] is {label}: a label is a token of the model's vocabulary, 0 to {last}, or {IGNORED} for one that does not count"
    )]
    Label {
        /// Place in the row, from 0.
        index: usize,
        /// What stands there.
        label: i64,
        /// The last id.
        last: u32,
    },
    /// A row of another kind than the first of its file.
    #[error(
        "a row of {found} in a file whose first row has {expected}: put rows of each kind into a file of their own"
    )]
    Mixed {
        /// In the first row.
        expected: &'static str,
        /// In this one.
        found: &'static str,
    },
}

/// The columns that say what a row is, whatever they hold.
#[derive(Deserialize)]
pub(super) struct Columns {
    input_ids: Option<IgnoredAny>,
    labels: Option<IgnoredAny>,
}

impl Columns {
    /// What a row holds.
    ///
    /// # Errors
    /// Why it is no JSON object.
    pub fn of(line: &str) -> Result<&'static str, String> {
        match serde_json::from_str(line).map_err(|error| fault_of(&error))? {
            Self { input_ids: Some(_), labels: Some(_) } => Ok("input_ids and labels"),
            Self { input_ids: Some(_), labels: None } => Ok("input_ids alone"),
            Self { input_ids: None, .. } => Ok(TEXT),
        }
    }
}

/// What is wrong with a line of JSON, and where in it: the library counts the line as the first of its text.
pub(super) fn fault_of(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((what, _)) => format!("{what} at column {}", error.column()),
        None => text,
    }
}

/// A row of text.
pub(super) const TEXT: &str = "text";

#[derive(Deserialize)]
struct Row {
    input_ids: Option<Vec<i64>>,
    labels: Option<Vec<i64>>,
}

/// The chunks of a file of rows, and how many rows have nothing that counts in theirs.
pub(super) struct Rows {
    pub chunks: Vec<Chunk>,
    pub passed_over: usize,
}

impl Rows {
    /// One chunk a row: the first tokens of it, and what each of them counts as.
    pub fn jsonl(path: &Path, bytes: &[u8], chunk: usize, vocab: u32) -> Result<Self, DataError> {
        let lines: Vec<(usize, &str)> =
            utf8(path, bytes)?.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).collect();
        let expected = lines.first().map_or(Ok(TEXT), |(_, line)| Columns::of(line)).unwrap_or(TEXT);
        let of_line = |(index, line): &(usize, &str)| {
            let fault = |fault| DataError::Row { path: path.to_owned(), line: index + 1, fault };
            row(line, expected, chunk, vocab).map_err(fault)
        };
        // The first line that is wrong is the one named.
        let rows: Vec<Result<Chunk, DataError>> = lines.par_iter().map(of_line).collect();
        let mut chunks = rows.into_iter().collect::<Result<Vec<Chunk>, DataError>>()?;
        let all = chunks.len();
        chunks.retain(|chunk| chunk.counted() > 0);
        Ok(Self { passed_over: all - chunks.len(), chunks })
    }
}

fn row(line: &str, expected: &'static str, most: usize, vocab: u32) -> Result<Chunk, RowFault> {
    let found = Columns::of(line).map_err(RowFault::Malformed)?;
    let row: Row = serde_json::from_str(line).map_err(|error| RowFault::Malformed(fault_of(&error)))?;
    if found != expected {
        return Err(RowFault::Mixed { expected, found });
    }
    let (ids, labels) = (row.input_ids.unwrap_or_default(), row.labels);
    if let Some(labels) = labels.as_ref().filter(|labels| labels.len() != ids.len()) {
        return Err(RowFault::Lengths { ids: ids.len(), labels: labels.len() });
    }
    let last = vocab - 1;
    let known = |id: &i64| (0..=i64::from(last)).contains(id);
    if let Some((index, id)) = ids.iter().enumerate().find(|(_, id)| !known(id)) {
        return Err(RowFault::Id { index, id: *id, last });
    }
    let wrong = |label: &i64| *label != IGNORED && !known(label);
    if let Some((index, label)) = labels.iter().flatten().enumerate().find(|(_, label)| wrong(label)) {
        return Err(RowFault::Label { index, label: *label, last });
    }
    let target = |label: i64| if label == IGNORED { MASKED_TOKEN } else { label as u32 };
    Ok(Chunk {
        ids: ids.into_iter().take(most).map(|id| id as u32).collect(),
        labels: labels.map(|labels| labels.into_iter().take(most).map(target).collect()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str], chunk: usize) -> Result<Rows, DataError> {
        Rows::jsonl(Path::new("rows.jsonl"), lines.join("\n").as_bytes(), chunk, 100)
    }

    #[test]
    fn a_row_is_a_sequence_cut_to_a_chunk() {
        let rows = read(
            &[
                r#"{"input_ids": [1, 2, 3, 4], "labels": [-100, -100, 3, 4]}"#,
                "",
                r#"{"input_ids": [5, 6], "labels": [5, 6], "id": "a"}"#,
            ],
            3,
        )
        .unwrap();
        let expected = [
            Chunk { ids: vec![1, 2, 3], labels: Some(vec![MASKED_TOKEN, MASKED_TOKEN, 3]) },
            Chunk { ids: vec![5, 6], labels: Some(vec![5, 6]) },
        ];
        assert_eq!((&rows.chunks[..], rows.passed_over), (&expected[..], 0));
        // Without labels every token after the first counts.
        let plain = read(&[r#"{"input_ids": [1, 2, 3]}"#], 8).unwrap();
        assert_eq!(plain.chunks[0].counted(), 2);
    }

    #[test]
    fn rows_with_nothing_that_counts_after_the_cut_are_passed_over_and_counted() {
        let masked = r#"{"input_ids": [1, 2, 3], "labels": [-100, -100, -100]}"#;
        // The first token is predicted by nothing, and the last is cut off.
        let ends = r#"{"input_ids": [1, 2, 3, 4], "labels": [1, -100, -100, 4]}"#;
        let short = r#"{"input_ids": [1], "labels": [1]}"#;
        let none = r#"{"input_ids": [], "labels": []}"#;
        let good = r#"{"input_ids": [1, 2], "labels": [-100, 2]}"#;
        let rows = read(&[masked, good, ends, short, none], 3).unwrap();
        assert_eq!((rows.chunks.len(), rows.passed_over), (1, 4));
    }

    #[test]
    fn what_is_wrong_with_a_row_is_said_with_its_line() {
        let good = r#"{"input_ids": [1, 2], "labels": [1, 2]}"#;
        let fault = |line: &str| match read(&[good, line], 8).map(|_| ()) {
            Err(DataError::Row { line: 2, fault, .. }) => fault,
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(fault(r#"{"input_ids": [1, 2, 3], "labels": [1, 2]}"#), RowFault::Lengths { ids: 3, labels: 2 });
        let id = |index, id| RowFault::Id { index, id, last: 99 };
        assert_eq!(fault(r#"{"input_ids": [1, 100], "labels": [1, 2]}"#), id(1, 100));
        assert_eq!(fault(r#"{"input_ids": [-100, 1], "labels": [1, 2]}"#), id(0, -100));
        assert_eq!(fault(r#"{"input_ids": [4294967296, 1], "labels": [1, 2]}"#), id(0, 1 << 32));
        let label = |index, label| RowFault::Label { index, label, last: 99 };
        assert_eq!(fault(r#"{"input_ids": [1, 2], "labels": [1, -1]}"#), label(1, -1));
        assert_eq!(fault(r#"{"input_ids": [1, 2], "labels": [100, 1]}"#), label(0, 100));
        for malformed in [
            r#"{"input_ids": [1.5, 2], "labels": [1, 2]}"#,
            r#"{"input_ids": ["1", 2], "labels": [1, 2]}"#,
            r#"{"input_ids": 1, "labels": [1, 2]}"#,
            r#"{"input_ids": [1, 2], "labels": [true, 2]}"#,
            r#"{"input_ids": [1e400, 2], "labels": [1, 2]}"#,
            r#"{"input_ids": [1, 2"#,
            "[1, 2]",
        ] {
            assert!(matches!(fault(malformed), RowFault::Malformed(_)), "{malformed}");
        }
        let mixed = |found| RowFault::Mixed { expected: "input_ids and labels", found };
        assert_eq!(fault(r#"{"text": "words"}"#), mixed("text"));
        assert_eq!(fault(r#"{"input_ids": [1, 2]}"#), mixed("input_ids alone"));
    }
}
