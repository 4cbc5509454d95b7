//! `precast-aot compare-evidence`

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use clap::Args;
use precast_fatbins::evidence::{self, Check, Evidence, Golden, Output};
use precast_fatbins::{TrustedKey, count, input, say, signature_path};
use precast_kernels::{Key, Tolerance};
use serde::Serialize;

use super::{Failure, Trusted, print_json};

#[derive(Args)]
pub struct Arguments {
    /// What one chip computed: a file of `precast evidence`
    a: PathBuf,
    /// What another one did
    b: PathBuf,
    #[command(flatten)]
    trusted: Trusted,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Whether two chips agree on a key.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
enum Verdict {
    /// Every output is the same bits.
    Bits,
    /// Outputs differ by less than the kernel may differ from its reference.
    Within {
        /// The largest ‖a − b‖ / ‖b‖, by their sketches.
        distance: f64,
        /// What is allowed there.
        allowed: f64,
    },
    /// They do not.
    Apart { reason: String },
}

impl Verdict {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (apart @ Self::Apart { .. }, _) | (_, apart @ Self::Apart { .. }) => apart,
            (Self::Bits, other) | (other, Self::Bits) => other,
            (a @ Self::Within { .. }, b @ Self::Within { .. }) => {
                if share(&a) >= share(&b) {
                    a
                } else {
                    b
                }
            }
        }
    }
}

/// How much of what is allowed a distance is.
fn share(verdict: &Verdict) -> f64 {
    match verdict {
        Verdict::Within { distance, allowed } => distance / allowed,
        _ => 0.0,
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bits => write!(f, "bits   the same"),
            Self::Within { distance, allowed } => write!(f, "within {distance:.1e} of at most {allowed:.1e}"),
            Self::Apart { reason } => write!(f, "APART  {reason}"),
        }
    }
}

/// What two files say of each other.
#[derive(Serialize)]
struct Comparison {
    chips: [String; 2],
    notes: Vec<String>,
    keys: BTreeMap<String, Verdict>,
    golden: BTreeMap<String, Verdict>,
    /// Keys of the first alone, and of the second.
    alone: [usize; 2],
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let keys = arguments.trusted.keys()?;
    let (a, b) = (read(&arguments.a, &keys)?, read(&arguments.b, &keys)?);
    let compared = compare(&a, &b)?;
    let apart = compared.keys.values().chain(compared.golden.values());
    let apart = apart.filter(|verdict| matches!(verdict, Verdict::Apart { .. })).count();
    if arguments.json {
        print_json(&compared);
    } else {
        let Comparison { chips: [a, b], notes, keys, golden, alone } = &compared;
        say!("A: {a}\nB: {b}");
        notes.iter().for_each(|note| say!("note: {note}"));
        for (what, verdict) in keys.iter().chain(golden) {
            say!("{verdict:<40}  {what}", verdict = verdict.to_string());
        }
        say!("{} compared, {apart} apart; {} in A alone, {} in B alone", count(keys.len(), "key"), alone[0], alone[1]);
    }
    if apart > 0 { Err(Failure::Apart(apart)) } else { Ok(()) }
}

fn read(path: &Path, keys: &[TrustedKey]) -> Result<Evidence, Failure> {
    let io = |error| Failure::Io { what: "read", path: path.to_owned(), error };
    let text = input::read_text(path, evidence::MOST_BYTES).map_err(io)?;
    if !keys.is_empty() {
        let beside = signature_path(path);
        let signature = input::read_text(&beside, input::SETTINGS_BYTES).ok();
        TrustedKey::check(keys, text.as_bytes(), signature.as_deref(), &beside)?;
    }
    Evidence::decode(&text).map_err(|error| Failure::Evidence { path: path.to_owned(), reason: error.to_string() })
}

fn compare(a: &Evidence, b: &Evidence) -> Result<Comparison, Failure> {
    if a.seed != b.seed {
        return Err(Failure::Incomparable(format!("their inputs differ: seeds {} and {}", a.seed, b.seed)));
    }
    let [of_a, of_b] = [a, b].map(by_key);
    let both: Vec<&String> = of_a.keys().filter(|key| of_b.contains_key(*key)).collect();
    if both.is_empty() {
        return Err(Failure::Incomparable("no kernel was checked on both".to_owned()));
    }
    let keys = both.iter().map(|key| ((*key).clone(), of_key(key, &of_a[*key], &of_b[*key])));
    let mut notes: Vec<String> = [a, b]
        .iter()
        .zip(["A", "B"])
        .flat_map(|(one, name)| one.note.iter().map(move |note| format!("{name}: {note}")))
        .collect();
    if a.program.version != b.program.version {
        notes.push(format!("of versions {} and {}: kernels may differ", a.program.version, b.program.version));
    }
    Ok(Comparison {
        chips: [a, b].map(|one| format!("{} ({}, {} host)", one.chip.name, one.chip.arch, one.chip.host)),
        notes,
        keys: keys.collect(),
        golden: golden(&a.golden, &b.golden),
        alone: [of_a.len() - both.len(), of_b.len() - both.len()],
    })
}

/// The checks of each key.
fn by_key(evidence: &Evidence) -> BTreeMap<String, Vec<&Check>> {
    let mut keys: BTreeMap<String, Vec<&Check>> = BTreeMap::new();
    for check in &evidence.checks {
        let key = check.kernel.rsplit_once('[').map_or(&check.kernel[..], |(key, _)| key);
        keys.entry(key.to_owned()).or_default().push(check);
    }
    keys
}

/// Compares the launches of a key: of variants that both have, or else of any.
fn of_key(key: &str, a: &[&Check], b: &[&Check]) -> Verdict {
    let Ok(parsed) = Key::parse(key) else {
        return Verdict::Apart { reason: "this program knows no such key".to_owned() };
    };
    if let Some(fault) = a.iter().chain(b).find_map(|check| check.fault.as_ref()) {
        return Verdict::Apart { reason: fault.clone() };
    }
    let names = |checks: &[&Check]| checks.iter().map(|check| check.kernel.clone()).collect::<BTreeSet<String>>();
    let common: BTreeSet<String> = names(a).intersection(&names(b)).cloned().collect();
    let taken = |check: &&&Check| common.is_empty() || common.contains(&check.kernel);
    let mut verdict = None;
    for one in a.iter().filter(taken) {
        let same = |other: &&&Check| other.sample == one.sample && (common.is_empty() || other.kernel == one.kernel);
        for other in b.iter().filter(same) {
            let of_launch = launch(&parsed, one, other);
            verdict = Some(match verdict {
                Some(before) => Verdict::and(before, of_launch),
                None => of_launch,
            });
        }
    }
    verdict.unwrap_or(Verdict::Apart { reason: "no launch of it was checked on both".to_owned() })
}

fn launch(key: &Key, a: &Check, b: &Check) -> Verdict {
    let kernel = key.kernel();
    let samples = kernel.samples();
    let apart = |reason: String| Verdict::Apart { reason: format!("sample {}: {reason}", a.sample) };
    let Some(params) = samples.get(a.sample) else { return apart("this program has no such sample".to_owned()) };
    let operands = kernel.operands(params);
    let written = operands.iter().filter(|operand| operand.access.is_output());
    let mut verdict = Verdict::Bits;
    for operand in written {
        let find = |check: &'_ Check| check.outputs.iter().find(|output| output.operand == operand.name).cloned();
        let (Some(one), Some(other)) = (find(a), find(b)) else {
            return apart(format!("operand `{}` is not in both", operand.name));
        };
        let of_output = output(operand.name, &one, &other, kernel.tolerance(operand));
        if let Verdict::Apart { reason } = of_output {
            return apart(reason);
        }
        verdict = verdict.and(of_output);
    }
    verdict
}

/// The same bits, or no further apart than the kernel may be from its reference; one that promises bits may not differ.
fn output(name: &str, a: &Output, b: &Output, tolerance: Tolerance) -> Verdict {
    if a.sha256 == b.sha256 {
        return Verdict::Bits;
    }
    if tolerance == Tolerance::EXACT {
        return Verdict::Apart { reason: format!("operand `{name}` has other bits, and its kernel promises them") };
    }
    // Each may be as far from the reference as that.
    let (distance, allowed) = (a.sketch.distance(&b.sketch), 2.0 * tolerance.norm);
    match distance <= allowed {
        true => Verdict::Within { distance, allowed },
        false => {
            Verdict::Apart { reason: format!("operand `{name}` differs by {distance:.1e}, at most {allowed:.1e}") }
        }
    }
}

fn golden(a: &[Golden], b: &[Golden]) -> BTreeMap<String, Verdict> {
    let pairs = a.iter().filter_map(|one| {
        let other = b.iter().find(|other| other.case == one.case && other.precision == one.precision)?;
        Some((format!("{}, {}", one.case, one.precision), losses(one, other)?))
    });
    pairs.collect()
}

/// None where either did not run.
fn losses(a: &Golden, b: &Golden) -> Option<Verdict> {
    if a.losses.is_empty() || b.losses.is_empty() {
        return None;
    }
    if let Some(fault) = a.fault.as_ref().or(b.fault.as_ref()) {
        return Some(Verdict::Apart { reason: fault.clone() });
    }
    if a.losses.len() != b.losses.len() {
        return Some(Verdict::Apart { reason: "they have different numbers of steps".to_owned() });
    }
    let bits = |losses: &[f64]| losses.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>();
    if bits(&a.losses) == bits(&b.losses) {
        return Some(Verdict::Bits);
    }
    let distance = a.losses.iter().zip(&b.losses).map(|(a, b)| (a - b).abs() / b.abs()).fold(0.0, f64::max);
    let allowed = 2.0 * a.gate.min(b.gate);
    Some(match distance <= allowed {
        true => Verdict::Within { distance, allowed },
        false => Verdict::Apart { reason: format!("losses differ by {distance:.1e}, at most {allowed:.1e}") },
    })
}
