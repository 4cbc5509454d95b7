//! Compares the launches of a key on two chips.

use std::collections::{BTreeMap, BTreeSet};

use precast_fatbins::evidence::{Check, Gathered, Launch, Output};
use precast_kernels::{KERNELS, Key, Operand, Tolerance};

use super::verdict::Verdict;

/// Half a unit in the last digit of a summary's norms.
const ROUNDING: f64 = 5e-4;

/// A launch from a full file of evidence or from a summary.
pub(super) struct Launched<'a> {
    /// Key and variant.
    pub kernel: &'a str,
    brief: Launch,
    fault: Option<&'a str>,
    /// None in a summary.
    outputs: Option<&'a [Output]>,
}

impl Launched<'_> {
    /// Returns the index of its sample.
    pub fn sample(&self) -> usize {
        self.brief.0
    }
}

/// Groups the launches of a file by key.
pub(super) fn by_key(gathered: &Gathered) -> BTreeMap<String, Vec<Launched<'_>>> {
    let launched: Vec<Launched<'_>> = match gathered {
        Gathered::Whole(evidence) => evidence.checks.iter().map(whole).collect(),
        Gathered::Summary(summary) => {
            let kernels = summary.kernels.iter();
            kernels.flat_map(|(kernel, of)| of.launches.iter().map(|launch| brief(kernel, launch))).collect()
        }
    };
    let mut keys: BTreeMap<String, Vec<Launched<'_>>> = BTreeMap::new();
    for launch in launched {
        let key = launch.kernel.rsplit_once('[').map_or(launch.kernel, |(key, _)| key);
        keys.entry(key.to_owned()).or_default().push(launch);
    }
    keys
}

fn whole(check: &Check) -> Launched<'_> {
    let fault = check.fault.as_deref();
    Launched { kernel: &check.kernel, brief: Launch::of(check), fault, outputs: Some(&check.outputs) }
}

fn brief<'a>(kernel: &'a str, launch: &Launch) -> Launched<'a> {
    Launched { kernel, brief: launch.clone(), fault: None, outputs: None }
}

/// Compares the launches of a key: those of shared variants if there are any, else all. None if bits differ and this
/// program does not know the key.
pub(super) fn of_key(key: &str, a: &[&Launched<'_>], b: &[&Launched<'_>]) -> Option<Verdict> {
    if let Some(fault) = a.iter().chain(b).find_map(|launch| launch.fault) {
        return Some(Verdict::Apart { reason: fault.to_owned() });
    }
    let Ok(parsed) = KERNELS.parse(key) else {
        let bits = |launches: &[&Launched<'_>]| -> BTreeSet<(String, usize, String)> {
            launches.iter().map(|it| (it.kernel.to_owned(), it.brief.0, it.brief.1.clone())).collect()
        };
        return (bits(a) == bits(b)).then_some(Verdict::Bits);
    };
    let names = |launches: &[&Launched<'_>]| launches.iter().map(|it| it.kernel.to_owned()).collect::<BTreeSet<_>>();
    let common: BTreeSet<String> = names(a).intersection(&names(b)).cloned().collect();
    let taken = |it: &&&Launched<'_>| common.is_empty() || common.contains(it.kernel);
    let mut verdict = None;
    for one in a.iter().filter(taken) {
        let same =
            |other: &&&Launched<'_>| other.brief.0 == one.brief.0 && (common.is_empty() || other.kernel == one.kernel);
        for other in b.iter().filter(same) {
            let of_launch = launch(&parsed, one, other);
            verdict = Some(match verdict {
                Some(before) => Verdict::and(before, of_launch),
                None => of_launch,
            });
        }
    }
    Some(verdict.unwrap_or(Verdict::Apart { reason: "no launch of it was checked on both".to_owned() }))
}

fn launch(key: &Key, a: &Launched<'_>, b: &Launched<'_>) -> Verdict {
    let kernel = key.kernel();
    let samples = kernel.samples();
    let number = a.brief.0;
    let apart = |reason: String| Verdict::Apart { reason: format!("sample {number}: {reason}") };
    let Some(params) = samples.get(number) else { return apart("this program has no such sample".to_owned()) };
    let operands = kernel.operands(params);
    let written: Vec<(&Operand, Tolerance)> = operands
        .iter()
        .filter(|operand| operand.access.is_output())
        .map(|operand| (operand, kernel.tolerance(operand)))
        .collect();
    let (Some(of_a), Some(of_b)) = (a.outputs, b.outputs) else {
        return match norms(&a.brief, &b.brief, &written) {
            Verdict::Apart { reason } => apart(reason),
            verdict => verdict,
        };
    };
    let mut verdict = Verdict::Bits;
    for (operand, tolerance) in written {
        let find = |outputs: &'_ [Output]| outputs.iter().find(|output| output.operand == operand.name).cloned();
        let (Some(one), Some(other)) = (find(of_a), find(of_b)) else {
            return apart(format!("operand `{}` is not in both", operand.name));
        };
        let of_output = output(operand, &one, &other, tolerance);
        if let Verdict::Apart { reason } = of_output {
            return apart(reason);
        }
        verdict = verdict.and(of_output);
    }
    verdict
}

/// Returns the largest distance allowed between two outputs: each may be as far from the reference as the self-test
/// allows.
fn allowed(operand: &Operand, tolerance: Tolerance, norm: f64) -> f64 {
    2.0 * (tolerance.norm * norm + tolerance.absolute * (operand.elems as f64).sqrt())
}

/// Accepts outputs that are equal bit for bit or within the kernel's tolerance; a bit-exact kernel has no tolerance.
fn output(operand: &Operand, a: &Output, b: &Output, tolerance: Tolerance) -> Verdict {
    let name = operand.name;
    if a.sha256 == b.sha256 {
        return Verdict::Bits;
    }
    if tolerance == Tolerance::EXACT {
        return Verdict::Apart { reason: format!("operand `{name}` has other bits, and its kernel promises them") };
    }
    let scale = if b.sketch.norm > 0.0 { b.sketch.norm } else { 1.0 };
    let distance = a.sketch.distance(&b.sketch) / scale;
    let allowed = allowed(operand, tolerance, b.sketch.norm) / scale;
    match distance <= allowed {
        true => Verdict::Within { distance, allowed },
        false => {
            Verdict::Apart { reason: format!("operand `{name}` differs by {distance:.1e}, at most {allowed:.1e}") }
        }
    }
}

/// Accepts summaries with equal digests, or with norms within the tolerance of outputs: ‖a‖ and ‖b‖ differ by at most
/// ‖a − b‖.
fn norms(a: &Launch, b: &Launch, written: &[(&Operand, Tolerance)]) -> Verdict {
    if a.1 == b.1 {
        return Verdict::Bits;
    }
    if written.iter().all(|(_, tolerance)| *tolerance == Tolerance::EXACT) {
        return Verdict::Apart { reason: "it has other bits, and its kernel promises them".to_owned() };
    }
    let scale = if b.2 > 0.0 { b.2 } else { 1.0 };
    let allowed: f64 = written.iter().map(|(operand, tolerance)| allowed(operand, *tolerance, b.2)).sum();
    let allowed = allowed / scale + 2.0 * ROUNDING;
    let distance = (a.2 - b.2).abs() / scale;
    match distance <= allowed {
        true => Verdict::Norms { distance },
        false => Verdict::Apart { reason: format!("norms differ by {distance:.1e}, at most {allowed:.1e}") },
    }
}
