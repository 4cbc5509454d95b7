//! Rows of data: a file whose name says its form, JSON lines, CSV, or either of them compressed.
#![no_main]

use precast_fuzz::{data, fixture, fixtures};

/// Names of files by the first byte of an input, which is no part of the file.
const NAMES: [&str; 4] = ["data.jsonl", "data.csv", "data.jsonl.gz", "data.json"];

precast_fuzz::target!(
    || {
        let rows = ["data", "masks", "golden/made-packed", "golden/rollouts-jsd"];
        let lines = rows.iter().flat_map(|folder| fixtures(&format!("tests/fixtures/{folder}"), "s.jsonl"));
        let lines = lines.chain(fixtures("tests/fixtures/data", ".jsonl")).map(|rows| [&[0], &rows[..]].concat());
        lines.chain([[&[1], &fixture("tests/fixtures/masks/rows.csv")[..]].concat()]).collect()
    },
    |input: &[u8]| {
        if let Some((form, rows)) = input.split_first() {
            data::read(NAMES[usize::from(*form) % NAMES.len()], rows);
        }
    }
);
