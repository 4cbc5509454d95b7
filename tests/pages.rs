//! In BENCHMARKS.md each table stands under the command that makes it and above the commit that recorded it, sentences
//! are short, and figures of the prose are figures of a table.

use crate::support::prelude::*;

/// Programs of the tree that are not files of it.
const PROGRAMS: [&str; 3] = ["precast", "precast-aot", "cargo"];
const UNITS: [&str; 20] = [
    "k", "tokens/s", "ms", "us", "s", "bytes", "MiB", "GiB", "MB", "GB", "GB/s", "TB/s", "%", "GFLOP/s", "TFLOP/s",
    "TOP/s", "TFLOP", "W", "x", "nats",
];
const LONGEST_MEAN_SENTENCE: f64 = 20.0;

enum PageBlock {
    /// Its first word.
    Code(String),
    /// Cells of each row, the header first and without the line below it.
    Table(Vec<Vec<String>>),
    Prose(String),
}

impl PageBlock {
    fn table(&self) -> Option<&Vec<Vec<String>>> {
        if let Self::Table(rows) = self { Some(rows) } else { None }
    }
}

fn blocks(page: &str) -> Vec<PageBlock> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("```") {
            let code: Vec<&str> = lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
            blocks.push(PageBlock::Code(code.join(" ").split_whitespace().next().unwrap_or_default().to_owned()));
        } else if line.starts_with('|') {
            let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
            let mut rows: Vec<Vec<String>> = vec![cells(line)];
            while let Some(line) = lines.next_if(|line| line.starts_with('|')) {
                rows.push(cells(line));
            }
            rows.remove(1);
            blocks.push(PageBlock::Table(rows));
        } else if !line.is_empty() && !line.starts_with('#') {
            let mut text = line.to_owned();
            while let Some(line) = lines.next_if(|line| !line.is_empty() && !line.starts_with("```")) {
                text.extend([" ", line]);
            }
            blocks.push(PageBlock::Prose(text));
        }
    }
    blocks
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace().map(|word| word.trim_matches(|c| "()*`\"'.,;:".contains(c))).filter(|word| !word.is_empty())
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit() || c == '.' || c == ','
}

/// The numbers of a text that have units: `95 %`, `95%`, `1.3x`, `81.0 k tokens/s`; but `8 x 1024` is a shape.
fn figures(text: &str) -> Vec<(String, Vec<String>)> {
    let text = text.replace(" x ", " by ");
    let parts = words(&text).flat_map(|word| {
        let (number, unit) = word.split_at(word.find(|c| !is_digit(c)).unwrap_or(word.len()));
        if UNITS.contains(&unit) { [number, unit] } else { [word, ""] }
    });
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    let numbers = parts.iter().enumerate().filter(|(_, part)| part.chars().all(is_digit));
    let figures = numbers.map(|(at, number)| {
        let units = parts[at + 1..].iter().take_while(|part| UNITS.contains(part));
        ((*number).to_owned(), units.map(|unit| (*unit).to_owned()).collect::<Vec<_>>())
    });
    figures.filter(|(_, units)| !units.is_empty()).collect()
}

/// A cell has the number; the cell, its column's header or its row's first cell has the units.
fn has(table: &[Vec<String>], number: &str, units: &[String]) -> bool {
    table[1..].iter().any(|row| {
        (1..row.len()).any(|column| {
            let said = [&row[column], &table[0][column], &row[0]];
            let mut numbers = row[column].split(|c| !is_digit(c)).map(|one| one.trim_matches(['.', ',']));
            numbers.any(|one| one == number)
                && units.iter().all(|unit| said.iter().any(|text| words(text).any(|word| word == unit)))
        })
    })
}

/// Each place where a page of figures breaks the rules above.
fn faults(page: &str) -> Vec<String> {
    let blocks = blocks(page);
    let tables: Vec<_> = blocks.iter().filter_map(PageBlock::table).collect();
    let is_record = |text: &str| text.starts_with("Recorded in `");
    let (mut faults, mut word_count, mut sentences) = (Vec::new(), 0, 0);
    for (at, block) in blocks.iter().enumerate() {
        match block {
            PageBlock::Code(_) => {}
            PageBlock::Table(rows) => {
                let is_program = |word: &str| PROGRAMS.contains(&word) || root().join(word).is_file();
                if !matches!(at.checked_sub(1).map(|above| &blocks[above]),
                    Some(PageBlock::Code(word)) if is_program(word))
                {
                    faults.push(format!("no program of the tree makes {:?}", rows[0]));
                }
                if !matches!(blocks.get(at + 1), Some(PageBlock::Prose(text)) if is_record(text)) {
                    faults.push(format!("no commit recorded {:?}", rows[0]));
                }
            }
            PageBlock::Prose(text) => {
                for (number, units) in figures(text) {
                    if !tables.iter().any(|table| has(table, &number, &units)) {
                        faults.push(format!("no table has {number} {}", units.join(" ")));
                    }
                }
                if !is_record(text) {
                    let ends = text.split_whitespace().filter(|word| word.trim_end_matches(['*', ')']).ends_with('.'));
                    sentences += ends.count().max(1);
                    word_count += words(text).count();
                }
            }
        }
    }
    let mean = f64::from(word_count as u32) / f64::from(sentences.max(1) as u32);
    if mean > LONGEST_MEAN_SENTENCE {
        faults.push(format!("a sentence has {mean:.1} words"));
    }
    faults
}

#[test]
fn benchmarks_have_their_commands_and_commits() {
    let page = fs::read_to_string(root().join("BENCHMARKS.md")).expect("the page of figures is there");
    let tables = blocks(&page).iter().filter_map(PageBlock::table).count();
    assert!(tables > 10, "{tables} tables");
    let faults = faults(&page);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn planted_faults_of_a_page_are_found() {
    let page = "```sh\nprecast bench\n```\n\n| | step, ms | rate |\n| --- | --- | --- |\n| A | 10.1, 10.2 | 81.0 k \
        tokens/s |\n\n\
                Recorded in `abcdef0`.\n\nA takes 10.2 ms at 8 x 1024: 81.0 k tokens/s.\n";
    assert!(faults(page).is_empty(), "{:?}", faults(page));
    for (from, to, fault) in [
        ("takes 10.2", "takes 9.9", "no table has 9.9 ms"),
        ("takes 10.2 ms", "takes 10.2 GiB", "no table has 10.2 GiB"),
        ("takes 10.2 ms", "is 1.3x as fast", "no table has 1.3 x"),
        ("A takes", &"A long sentence ".repeat(8), "a sentence has"),
        ("precast bench", "python3 bench.py", "no program of the tree makes"),
        ("Recorded in", "Measured at", "no commit recorded"),
    ] {
        let faults = faults(&page.replace(from, to));
        assert!(faults.len() == 1 && faults[0].starts_with(fault), "{fault}: {faults:?}");
    }
}
