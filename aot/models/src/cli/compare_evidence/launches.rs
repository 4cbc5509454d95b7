//! Compares the launches of a key on two chips.

use std::collections::BTreeSet;

use precast_fatbins::evidence::{Launch, Output};
use precast_kernels::{KERNELS, Key, Operand, Tolerance};

use super::kernels::{Kernel, Launched};
use super::verdict::Verdict;

/// Half a unit in the last digit of a summary's norms.
const ROUNDING: f64 = 5e-4;

/// Compares the launches of a key: those of shared variants if there are any, else all. None if bits differ and this
/// program does not know the key.
pub(super) fn of_key(key: &str, a: &[&Kernel<'_>], b: &[&Kernel<'_>]) -> Option<Verdict> {
    if let Some(fault) = a.iter().chain(b).flat_map(|kernel| &kernel.launches).find_map(|launch| launch.fault) {
        return Some(Verdict::apart(fault));
    }
    let Ok(parsed) = KERNELS.parse(key) else {
        let bits = |kernels: &[&Kernel<'_>]| -> BTreeSet<(String, usize, String)> {
            let launches =
                kernels.iter().flat_map(|kernel| kernel.launches.iter().map(|one| (kernel.name, &one.brief)));
            launches.map(|(name, brief)| (name.to_owned(), brief.0, brief.1.clone())).collect()
        };
        return (bits(a) == bits(b)).then_some(Verdict::Bits);
    };
    let any_common = a.iter().any(|one| b.iter().any(|other| one.name == other.name));
    let pairs = a.iter().flat_map(|one| b.iter().map(move |other| (one, other)));
    let pairs = pairs.filter(|(one, other)| !any_common || one.name == other.name).flat_map(|(one, other)| {
        let both = one.launches.iter().flat_map(|a| other.launches.iter().map(move |b| (a, b)));
        both.filter(|(a, b)| a.brief.0 == b.brief.0)
    });
    let verdict = pairs.map(|(a, b)| launch(&parsed, a, b)).reduce(Verdict::and);
    Some(verdict.unwrap_or_else(|| Verdict::apart("no launch of it was checked on both")))
}

fn launch(key: &Key, a: &Launched<'_>, b: &Launched<'_>) -> Verdict {
    let (kernel, number) = (key.kernel(), a.brief.0);
    let Some(params) = kernel.samples().get(number).cloned() else {
        return Verdict::apart(format!("sample {number}: this program has no such sample"));
    };
    let mut written = kernel.operands(&params);
    written.retain(|operand| operand.access.is_output());
    let written: Vec<(&Operand, Tolerance)> = written.iter().map(|one| (one, kernel.tolerance(one))).collect();
    let verdict = match (a.outputs, b.outputs) {
        (Some(a), Some(b)) => written.iter().map(|written| output(*written, a, b)).fold(Verdict::Bits, Verdict::and),
        _ => norms(&a.brief, &b.brief, &written),
    };
    match verdict {
        Verdict::Apart { reason } => Verdict::apart(format!("sample {number}: {reason}")),
        verdict => verdict,
    }
}

/// Returns the largest distance allowed between two outputs: each may be as far from the reference as the self-test
/// allows.
fn allowed(operand: &Operand, tolerance: Tolerance, norm: f64) -> f64 {
    2.0 * (tolerance.norm * norm + tolerance.absolute * (operand.elems as f64).sqrt())
}

/// Returns the size that differences are shares of.
fn scale(norm: f64) -> f64 {
    if norm > 0.0 { norm } else { 1.0 }
}

/// Accepts outputs that are equal bit for bit or within the kernel's tolerance; a bit-exact kernel has no tolerance.
fn output((operand, tolerance): (&Operand, Tolerance), a: &[Output], b: &[Output]) -> Verdict {
    let name = operand.name;
    let [Some(a), Some(b)] = [a, b].map(|outputs| outputs.iter().find(|output| output.operand == name)) else {
        return Verdict::apart(format!("operand `{name}` is not in both"));
    };
    if a.sha256 == b.sha256 {
        return Verdict::Bits;
    }
    if tolerance == Tolerance::EXACT {
        return Verdict::apart(format!("operand `{name}` has other bits, and its kernel promises them"));
    }
    let (norm, distance) = (b.sketch.norm, a.sketch.distance(&b.sketch));
    let allowed = allowed(operand, tolerance, norm) / scale(norm);
    Verdict::within(&format!("operand `{name}` differs"), distance / scale(norm), allowed)
}

/// Accepts summaries with equal digests, or with norms within the tolerance of outputs: ‖a‖ and ‖b‖ differ by at most
/// ‖a − b‖.
fn norms(a: &Launch, b: &Launch, written: &[(&Operand, Tolerance)]) -> Verdict {
    if a.1 == b.1 {
        return Verdict::Bits;
    }
    if written.iter().all(|(_, tolerance)| *tolerance == Tolerance::EXACT) {
        return Verdict::apart("it has other bits, and its kernel promises them");
    }
    let allowed: f64 = written.iter().map(|(operand, tolerance)| allowed(operand, *tolerance, b.2)).sum();
    let distance = (a.2 - b.2).abs() / scale(b.2);
    match Verdict::within("norms differ", distance, allowed / scale(b.2) + 2.0 * ROUNDING) {
        Verdict::Within { .. } => Verdict::Norms { distance },
        other => other,
    }
}
