//! Measured launches: the time of each variant, as a benchmark writes it.
//!
//! A line is `chip arch key problem variant microseconds`, the chip by its driver's name with `_` for blanks; lines are
//! sorted, and `#` starts a comment. The committed table, `tuned.txt`, takes precedence over every rule: for an
//! architecture the variant is selected that was measured fastest on its chip ([`Arch::chip`]). It covers an H200,
//! sm_90a and sm_90_portable; unmeasured architectures follow the families' rules (waves, shared memory, occupancy).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use crate::card::Card;
use crate::{Arch, Key, Variant};

/// Chip, architecture, key and problem: equal for launches measured as one.
type Launch = [String; 4];

/// By launch, the microseconds of each variant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table(BTreeMap<Launch, BTreeMap<String, f64>>);

/// The text is no table of measured launches.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TableError {
    /// The line has another form.
    #[error("line {line}: `{text}` is not `chip arch key problem variant microseconds`")]
    Form {
        /// Counted from 1.
        line: usize,
        /// Text of the line.
        text: String,
    },
    /// The line names what this program does not have.
    #[error("line {line}: no {what} `{name}`")]
    Unknown {
        /// Counted from 1.
        line: usize,
        /// `architecture`, `kernel` or `variant`.
        what: &'static str,
        /// Text in its place.
        name: String,
    },
}

fn launch(chip: &str, arch: Arch, key: &Key, problem: &str) -> Launch {
    [word(chip), arch.to_string(), key.to_string(), problem.to_owned()]
}

/// Writes a chip's name as one word.
fn word(chip: &str) -> String {
    chip.replace(' ', "_")
}

/// Returns the lines of a table that hold a row, with their numbers.
pub(crate) fn rows(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).filter(|(_, text)| !text.starts_with('#') && !text.is_empty())
}

impl Table {
    /// Replaces the times of a launch, by variant.
    pub fn insert(
        &mut self,
        (chip, arch): (&str, Arch),
        key: &Key,
        problem: &str,
        times: impl IntoIterator<Item = (Variant, f64)>,
    ) {
        let times = times.into_iter().map(|(variant, microseconds)| (variant.to_string(), microseconds)).collect();
        self.0.insert(launch(chip, arch, key, problem), times);
    }

    /// Adds another table's launches, which replace those that are there. Returns how many there were.
    pub fn merge(&mut self, other: Self) -> usize {
        let launches = other.0.len();
        self.0.extend(other.0);
        launches
    }

    /// True if it has times of an architecture's launches on a chip.
    pub fn covers(&self, chip: &str, arch: Arch) -> bool {
        let (chip, arch) = (word(chip), arch.name());
        self.0.keys().any(|[on, of, ..]| *on == chip && of == arch)
    }

    /// Returns the key and the problem of each launch of an architecture that was measured on a chip, with the
    /// microseconds of each variant.
    pub fn launches(&self, chip: &str, arch: Arch) -> impl Iterator<Item = (&str, &str, &BTreeMap<String, f64>)> {
        let on = [word(chip), arch.to_string()];
        let launches = self.0.iter().filter(move |(launch, _)| launch[..2] == on);
        launches.map(|([.., key, problem], times)| (key.as_str(), problem.as_str(), times))
    }

    /// Returns the chips that it has times of, as its rows write them, each with the architecture of the launches.
    pub fn covered(&self) -> BTreeSet<[&str; 2]> {
        self.0.keys().map(|[chip, arch, ..]| [chip.as_str(), arch.as_str()]).collect()
    }

    /// Returns the fastest of these variants that was measured on a chip; the first of equals.
    pub fn fastest(&self, on: (&str, Arch), key: &Key, problem: &str, variants: &[Variant]) -> Option<Variant> {
        let times = self.0.get(&launch(on.0, on.1, key, problem))?;
        let measured = variants.iter().filter_map(|variant| Some((*variant, *times.get(&variant.to_string())?)));
        measured.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(variant, _)| variant)
    }
}

/// Selects the variant that a table has as the fastest on the architecture's chip, else by the family's rule.
pub(crate) fn select(table: &Table, key: &Key, params: &[u8], arch: Arch) -> Variant {
    let kernel = key.kernel();
    let measured = || table.fastest((arch.chip()?, arch), key, &kernel.problem(params)?, &key.admitted(params, arch));
    measured().unwrap_or_else(|| kernel.select(params, arch))
}

impl Key {
    /// Selects the variant that a table has as the fastest on a chip, of those whose results have the bits of
    /// `selected`; `selected` itself for a launch that was not measured.
    pub fn select_by(&self, table: &Table, on: (&str, Arch), params: &[u8], selected: Variant) -> Variant {
        let kernel = self.kernel();
        let equal: Vec<Variant> =
            self.admitted(params, on.1).into_iter().filter(|it| kernel.sums_as(selected, *it)).collect();
        let problem = kernel.problem(params);
        problem.and_then(|problem| table.fastest(on, self, &problem, &equal)).unwrap_or(selected)
    }

    /// Selects a variant by a card's own figures, if its results have the bits of `selected`; else `selected`.
    pub fn select_for(&self, card: Card, params: &[u8], arch: Arch, selected: Variant) -> Variant {
        let kernel = self.kernel();
        let modeled = kernel.select_for(params, arch, card);
        if kernel.problem(params).is_some() && kernel.sums_as(selected, modeled) { modeled } else { selected }
    }

    /// Returns the variants of an architecture that can run a launch.
    pub fn admitted(&self, params: &[u8], arch: Arch) -> Vec<Variant> {
        let kernel = self.kernel();
        kernel.variants(arch).into_iter().filter(|variant| kernel.admits(*variant, params)).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (launch, times) in &self.0 {
            let launch = launch.join(" ");
            for (variant, microseconds) in times {
                writeln!(f, "{launch} {variant} {microseconds:.2}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Table {
    type Err = TableError;

    fn from_str(text: &str) -> Result<Self, TableError> {
        let mut table = Self::default();
        for (line, text) in rows(text) {
            let error = || TableError::Form { line, text: text.to_owned() };
            let words: Vec<&str> = text.split(' ').collect();
            let [chip, arch, key, problem, variant, time] = words[..] else { return Err(error()) };
            let time = time.parse().ok().filter(|time: &f64| time.is_finite()).ok_or_else(error)?;
            let launch = [chip, arch, key, problem].map(str::to_owned);
            table.0.entry(launch).or_default().insert(variant.to_owned(), time);
        }
        Ok(table)
    }
}
