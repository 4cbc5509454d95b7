//! Measured launches: the time of each variant, as `precast bench --tune FILE` writes it.
//!
//! A line is `chip arch key problem variant microseconds`, the chip by its driver's name with `_` for blanks; lines are
//! sorted, and `#` starts a comment. The committed table, `tuned.txt`, takes precedence over every rule: for an
//! architecture the variant is selected that was measured fastest on its chip ([`Arch::chip`]). It covers an H200, sm_90a
//! and sm_90_portable; unmeasured architectures follow the families' rules (waves, shared memory, occupancy).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use crate::card::Card;
use crate::{Arch, Key, Variant};

static COMMITTED: LazyLock<Table> =
    LazyLock::new(|| include_str!("tuned.txt").parse().unwrap_or_else(|error| panic!("tuned.txt: {error}")));

/// Chip, architecture, key and problem: equal for launches measured as one.
type Launch = [String; 4];

/// By launch, the microseconds of each variant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table(BTreeMap<Launch, BTreeMap<String, f64>>);

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TableError {
    #[error("line {line}: `{text}` is not `chip arch key problem variant microseconds`")]
    Form { line: usize, text: String },
    #[error("line {line}: no {what} `{name}`")]
    Unknown { line: usize, what: &'static str, name: String },
}

fn launch(chip: &str, arch: Arch, key: &Key, problem: &str) -> Launch {
    [word(chip), arch.to_string(), key.to_string(), problem.to_owned()]
}

/// Writes a chip's name as one word.
fn word(chip: &str) -> String {
    chip.replace(' ', "_")
}

/// Returns the lines of a table that hold a row, with their numbers.
fn rows(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).filter(|(_, text)| !text.starts_with('#') && !text.is_empty())
}

impl Table {
    /// Reads a table whose every row names an architecture, a kernel and a variant that this program has.
    ///
    /// # Errors
    /// [`TableError`] with the line.
    pub fn checked(text: &str) -> Result<Self, TableError> {
        let table = text.parse()?;
        for (line, text) in rows(text) {
            let words: Vec<&str> = text.split(' ').collect();
            let unknown = |what, name: &str| TableError::Unknown { line, what, name: name.to_owned() };
            let arch = Arch::of_name(words[1]).ok_or_else(|| unknown("architecture", words[1]))?;
            let key = Key::parse(words[2]).map_err(|_| unknown("kernel", words[2]))?;
            let variants = key.kernel().variants(arch);
            if variants.iter().all(|variant| variant.to_string() != words[4]) {
                return Err(unknown("variant", words[4]));
            }
        }
        Ok(table)
    }

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

    /// Returns the key and the problem of each launch of an architecture that was measured on a chip, with the microseconds
    /// of each variant.
    #[cfg(test)]
    pub(crate) fn launches(&self, chip: &str, arch: Arch) -> impl Iterator<Item = (Key, &str, &BTreeMap<String, f64>)> {
        let on = [word(chip), arch.to_string()];
        let launches = self.0.iter().filter(move |(launch, _)| launch[..2] == on);
        launches.map(|([.., key, problem], times)| (Key::parse(key).expect(key), problem.as_str(), times))
    }

    /// Returns the chips that it has times of, as its rows write them, each with the architecture of the launches.
    pub fn covered(&self) -> BTreeSet<[&str; 2]> {
        self.0.keys().map(|[chip, arch, ..]| [chip.as_str(), arch.as_str()]).collect()
    }

    /// Returns the fastest of these variants that was measured on a chip; the first of equals.
    fn fastest(&self, on: (&str, Arch), key: &Key, problem: &str, variants: &[Variant]) -> Option<Variant> {
        let times = self.0.get(&launch(on.0, on.1, key, problem))?;
        let measured = variants.iter().filter_map(|variant| Some((*variant, *times.get(&variant.to_string())?)));
        measured.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(variant, _)| variant)
    }
}

/// Returns the committed table.
pub fn committed() -> &'static Table {
    &COMMITTED
}

impl Key {
    /// Selects the variant for a launch: the one measured fastest on the architecture's chip, else by the family's rule.
    pub fn select(&self, params: &[u8], arch: Arch) -> Variant {
        let kernel = self.kernel();
        let measured =
            || COMMITTED.fastest((arch.chip()?, arch), self, &kernel.problem(params)?, &self.admitted(params, arch));
        measured().unwrap_or_else(|| kernel.select(params, arch))
    }

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
    fn admitted(&self, params: &[u8], arch: Arch) -> Vec<Variant> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;
    use crate::abi::gemm_fwd_params;
    use crate::gemm::GemmFwd;

    fn key() -> Key {
        Key::new(GemmFwd { bias: false, residual: false, w: Dtype::Bf16.into(), x: Dtype::Bf16.into() })
    }

    #[test]
    fn the_committed_table_names_keys_and_variants_there_are() {
        assert_eq!(Table::checked(include_str!("tuned.txt")).as_ref(), Ok(committed()));
        // For another chip the figures of the architecture do not hold.
        let mut covered = committed().covered().into_iter();
        assert!(covered.all(|[chip, arch]| Arch::of_name(arch).unwrap().chip().map(word).as_deref() == Some(chip)));
    }

    #[test]
    fn a_row_names_what_this_program_has() {
        let row = "NVIDIA_H200 sm_89 gemm.wgrad{x=bf16} 8x8x8 threads=256,tile=64 1.50";
        assert_eq!(
            Table::checked(&format!("# said\n{row}")).unwrap().covered(),
            BTreeSet::from([["NVIDIA_H200", "sm_89"]])
        );
        let mistakes = [("sm_89", "sm_75"), ("wgrad", "bwd"), ("tile=64", "tile=65"), ("1.50", "soon")];
        let errors = mistakes.map(|(from, to)| Table::checked(&row.replace(from, to)).unwrap_err().to_string());
        let line = row.replace("1.50", "soon");
        assert_eq!(
            errors,
            [
                "line 1: no architecture `sm_75`".to_owned(),
                "line 1: no kernel `gemm.bwd{x=bf16}`".to_owned(),
                "line 1: no variant `threads=256,tile=65`".to_owned(),
                format!("line 1: `{line}` is not `chip arch key problem variant microseconds`"),
            ]
        );
    }

    #[test]
    fn the_fastest_variant_that_is_offered_is_selected() {
        let (key, mut table) = (key(), Table::default());
        let variants = key.kernel().variants(Arch::Sm90a);
        let times = variants.iter().copied().zip([3.0, 1.0, 2.0, 9.0]);
        table.insert(("NVIDIA H200", Arch::Sm90a), &key, "8x8x8", times);
        let fastest = |variants: &[Variant]| table.fastest(("NVIDIA H200", Arch::Sm90a), &key, "8x8x8", variants);
        assert_eq!(fastest(&variants), Some(variants[1]));
        assert_eq!(fastest(&variants[2..]), Some(variants[2]));
        assert_eq!(fastest(&[]), None);
        for other in [("NVIDIA H200", Arch::Sm89), ("NVIDIA H100 PCIe", Arch::Sm90a)] {
            assert_eq!(table.fastest(other, &key, "8x8x8", &variants), None);
        }
    }

    #[test]
    fn a_table_selects_no_variant_that_gives_other_bits() {
        let (key, mut table, arch) = (key(), Table::default(), Arch::Sm89);
        let p = gemm_fwd_params { m: 128, n: 128, k: 128, ..Default::default() };
        let params = bytemuck::bytes_of(&p);
        let variants = key.admitted(params, arch);
        let [slow, fast] = [0, 1].map(|index| variants[index]);
        let cuda_cores =
            key.kernel().variants(arch).into_iter().find(|it| it.to_string().starts_with("threads")).unwrap();
        table.insert(("a chip", arch), &key, "128x128x128", [(slow, 3.0), (fast, 2.0), (cuda_cores, 1.0)]);
        assert_eq!(key.select_by(&table, ("a chip", arch), params, slow), fast);
        assert_eq!(key.select_by(&table, ("another", arch), params, slow), slow);
        assert_eq!(key.select_by(&table, ("a chip", arch), params, cuda_cores), cuda_cores);
    }

    #[test]
    fn tables_read_back_and_merge() {
        let mut table = Table::default();
        table.insert(("NVIDIA L4", Arch::Sm89), &key(), "8x8x8", [(Variant::new(&[("threads", 64)]), 1.25)]);
        assert_eq!(table.to_string().parse(), Ok(table.clone()));
        let error = "# a comment\n\nNVIDIA_L4 sm_89 gemm.fwd 8x8x8 threads=64".parse::<Table>().unwrap_err();
        assert!(matches!(error, TableError::Form { line: 3, .. }));
        let mut merged = committed().clone();
        assert_eq!((merged.merge(table.clone()), merged.covers("NVIDIA L4", Arch::Sm89)), (1, true));
        assert!(!merged.covers("NVIDIA L4", Arch::Sm90a) && !committed().covers("NVIDIA L4", Arch::Sm89));
    }

    #[test]
    fn a_launch_that_was_not_measured_follows_the_rule() {
        let p = gemm_fwd_params { m: 1, n: 8, k: 8, ..Default::default() };
        let (key, params) = (key(), bytemuck::bytes_of(&p));
        assert_eq!(key.select(params, Arch::Sm89), key.kernel().select(params, Arch::Sm89));
    }
}
