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
        return Some(Verdict::Apart { reason: fault.to_owned() });
    }
    let Ok(parsed) = KERNELS.parse(key) else {
        let bits = |kernels: &[&Kernel<'_>]| -> BTreeSet<(String, usize, String)> {
            let of = |kernel: &&Kernel<'_>| {
                let brief = kernel.launches.iter().map(|launch| &launch.brief);
                brief.map(|brief| (kernel.name.to_owned(), brief.0, brief.1.clone())).collect::<Vec<_>>()
            };
            kernels.iter().flat_map(of).collect()
        };
        return (bits(a) == bits(b)).then_some(Verdict::Bits);
    };
    let is_in = |kernels: &[&Kernel<'_>], name: &str| kernels.iter().any(|kernel| kernel.name == name);
    let any_common = a.iter().any(|kernel| is_in(b, kernel.name));
    let pairs = a.iter().flat_map(|one| b.iter().map(move |other| (one, other)));
    let pairs = pairs.filter(|(one, other)| !any_common || one.name == other.name).flat_map(|(one, other)| {
        one.launches.iter().flat_map(move |a| {
            let same = other.launches.iter().filter(move |b| a.brief.0 == b.brief.0);
            same.map(move |b| (a, b))
        })
    });
    let verdict = pairs.map(|(a, b)| launch(&parsed, a, b)).reduce(Verdict::and);
    Some(verdict.unwrap_or(Verdict::Apart { reason: "no launch of it was checked on both".to_owned() }))
}

fn launch(key: &Key, a: &Launched<'_>, b: &Launched<'_>) -> Verdict {
    let (kernel, number) = (key.kernel(), a.brief.0);
    let samples = kernel.samples();
    let Some(params) = samples.get(number) else {
        return Verdict::Apart { reason: format!("sample {number}: this program has no such sample") };
    };
    let operands = kernel.operands(params);
    let written: Vec<(&Operand, Tolerance)> = operands
        .iter()
        .filter(|operand| operand.access.is_output())
        .map(|operand| (operand, kernel.tolerance(operand)))
        .collect();
    let verdict = match (a.outputs, b.outputs) {
        (Some(a), Some(b)) => written.iter().map(|written| output(*written, a, b)).fold(Verdict::Bits, Verdict::and),
        _ => norms(&a.brief, &b.brief, &written),
    };
    match verdict {
        Verdict::Apart { reason } => Verdict::Apart { reason: format!("sample {number}: {reason}") },
        verdict => verdict,
    }
}

/// Returns the largest distance allowed between two outputs: each may be as far from the reference as the self-test
/// allows.
fn allowed(operand: &Operand, tolerance: Tolerance, norm: f64) -> f64 {
    2.0 * (tolerance.norm * norm + tolerance.absolute * (operand.elems as f64).sqrt())
}

/// Accepts outputs that are equal bit for bit or within the kernel's tolerance; a bit-exact kernel has no tolerance.
fn output((operand, tolerance): (&Operand, Tolerance), a: &[Output], b: &[Output]) -> Verdict {
    let name = operand.name;
    let find = |outputs: &'_ [Output]| outputs.iter().find(|output| output.operand == name).cloned();
    let (Some(a), Some(b)) = (find(a), find(b)) else {
        return Verdict::Apart { reason: format!("operand `{name}` is not in both") };
    };
    if a.sha256 == b.sha256 {
        return Verdict::Bits;
    }
    if tolerance == Tolerance::EXACT {
        return Verdict::Apart { reason: format!("operand `{name}` has other bits, and its kernel promises them") };
    }
    let scale = if b.sketch.norm > 0.0 { b.sketch.norm } else { 1.0 };
    let allowed = allowed(operand, tolerance, b.sketch.norm) / scale;
    Verdict::within(&format!("operand `{name}` differs"), a.sketch.distance(&b.sketch) / scale, allowed)
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
    match Verdict::within("norms differ", (a.2 - b.2).abs() / scale, allowed / scale + 2.0 * ROUNDING) {
        Verdict::Within { distance, .. } => Verdict::Norms { distance },
        apart => apart,
    }
}
