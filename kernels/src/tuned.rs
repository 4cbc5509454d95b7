//! Measured launches: the time of each variant, as `precast bench --tune FILE` writes it.
//!
//! A line is `arch key problem variant microseconds`, lines are sorted, and `#` starts a comment. The committed table,
//! `tuned.txt`, takes precedence over every rule: the variant measured fastest is selected. It covers an H200, sm_90a
//! and sm_90_portable; unmeasured architectures follow the families' rules (waves, shared memory, occupancy).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use crate::{Arch, Key, Variant};

static COMMITTED: LazyLock<Table> =
    LazyLock::new(|| include_str!("tuned.txt").parse().unwrap_or_else(|error| panic!("tuned.txt: {error}")));

/// Architecture, key and problem: equal for launches measured as one.
type Launch = (String, String, String);

/// By launch, the microseconds of each variant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table(BTreeMap<Launch, BTreeMap<String, f64>>);

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line}: `{text}` is not `arch key problem variant microseconds`")]
pub struct TableError {
    line: usize,
    text: String,
}

impl Table {
    /// Replaces the times of a launch, by variant.
    pub fn insert(&mut self, arch: Arch, key: &Key, problem: &str, times: impl IntoIterator<Item = (Variant, f64)>) {
        let times = times.into_iter().map(|(variant, microseconds)| (variant.to_string(), microseconds)).collect();
        self.0.insert((arch.to_string(), key.to_string(), problem.to_owned()), times);
    }

    /// Returns the fastest measured of these variants; the first of equals.
    fn fastest(&self, arch: Arch, key: &Key, problem: &str, variants: &[Variant]) -> Option<Variant> {
        let times = self.0.get(&(arch.to_string(), key.to_string(), problem.to_owned()))?;
        let measured = variants.iter().filter_map(|variant| Some((*variant, *times.get(&variant.to_string())?)));
        measured.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(variant, _)| variant)
    }
}

/// Returns the committed table's variant for a launch.
fn measured(key: &Key, params: &[u8], arch: Arch) -> Option<Variant> {
    let kernel = key.kernel();
    let problem = kernel.problem(params)?;
    let admits = |variant: &Variant| kernel.admits(*variant, params);
    let admitted: Vec<Variant> = kernel.variants(arch).into_iter().filter(admits).collect();
    COMMITTED.fastest(arch, key, &problem, &admitted)
}

impl Key {
    /// Selects the variant for a launch: the one measured fastest, else by the family's rule.
    pub fn select(&self, params: &[u8], arch: Arch) -> Variant {
        measured(self, params, arch).unwrap_or_else(|| self.kernel().select(params, arch))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((arch, key, problem), times) in &self.0 {
            for (variant, microseconds) in times {
                writeln!(f, "{arch} {key} {problem} {variant} {microseconds:.2}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Table {
    type Err = TableError;

    fn from_str(text: &str) -> Result<Self, TableError> {
        let mut table = Self::default();
        for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.starts_with('#') && !text.is_empty()) {
            let error = || TableError { line, text: text.to_owned() };
            let words: Vec<&str> = text.split(' ').collect();
            let [arch, key, problem, variant, time] = words[..] else { return Err(error()) };
            let time = time.parse().ok().filter(|time: &f64| time.is_finite()).ok_or_else(error)?;
            let launch = (arch.to_owned(), key.to_owned(), problem.to_owned());
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
        for (arch, key, problem) in COMMITTED.0.keys() {
            let times = &COMMITTED.0[&(arch.clone(), key.clone(), problem.clone())];
            let (arch, key) = (Arch::of_name(arch).expect(arch), Key::parse(key).expect(key));
            let names: Vec<String> = key.kernel().variants(arch).iter().map(ToString::to_string).collect();
            assert!(times.keys().all(|variant| names.contains(variant)), "{key} {problem}");
        }
    }

    #[test]
    fn the_fastest_variant_that_is_offered_is_selected() {
        let (key, mut table) = (key(), Table::default());
        let variants = key.kernel().variants(Arch::Sm90a);
        let times = variants.iter().copied().zip([3.0, 1.0, 2.0, 9.0]);
        table.insert(Arch::Sm90a, &key, "8x8x8", times);
        let fastest = |variants: &[Variant]| table.fastest(Arch::Sm90a, &key, "8x8x8", variants);
        assert_eq!(fastest(&variants), Some(variants[1]));
        assert_eq!(fastest(&variants[2..]), Some(variants[2]));
        assert_eq!(fastest(&[]), None);
        assert_eq!(table.fastest(Arch::Sm89, &key, "8x8x8", &variants), None);
    }

    #[test]
    fn tables_read_back() {
        let mut table = Table::default();
        table.insert(Arch::Sm90a, &key(), "8x8x8", [(Variant::new(&[("threads", 64)]), 1.25)]);
        assert_eq!(table.to_string().parse(), Ok(table.clone()));
        let error = "# a comment\n\nsm_90a gemm.fwd 8x8x8 threads=64".parse::<Table>().unwrap_err();
        assert_eq!(error.line, 3);
    }

    #[test]
    fn a_launch_that_was_not_measured_follows_the_rule() {
        let p = gemm_fwd_params { m: 1, n: 8, k: 8, ..Default::default() };
        let (key, params) = (key(), bytemuck::bytes_of(&p));
        assert_eq!(key.select(params, Arch::Sm89), key.kernel().select(params, Arch::Sm89));
    }
}
