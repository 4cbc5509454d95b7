//! Verdict on a kernel or a training run of two chips.

use std::fmt;

use precast_fatbins::evidence::{Golden, Launch};
use precast_kernels::KERNELS;
use serde::Serialize;

/// Half a unit in the last digit of a norm.
const ROUNDING: f64 = 5e-4;

/// Agreement of two chips, the better before the worse.
#[derive(Clone, Debug, PartialEq, PartialOrd, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub(super) enum Verdict {
    /// Every output is bit-identical.
    Bits,
    /// Bits differ, and norms or losses by what both tolerances allow.
    Within { distance: f64, allowed: f64 },
    /// No kernel that this program knows is of the same sources in both.
    OtherSources,
    /// The chips disagree.
    Apart { reason: String },
    /// A file lacks what its chip should have computed.
    Missing,
}

impl Verdict {
    pub(super) fn apart(reason: impl ToString) -> Self {
        Self::Apart { reason: reason.to_string() }
    }

    fn within(what: &str, distance: f64, allowed: f64) -> Self {
        match distance <= allowed {
            true => Self::Within { distance, allowed },
            false => Self::apart(format!("{what} differ by {distance:.1e}, at most {allowed:.1e}")),
        }
    }

    /// Judges two launches of a sample. Norms differ by no more than outputs do, each of which may be as far from the
    /// reference as the self-test allows.
    pub(super) fn of_launches(key: &str, a: &Launch, b: &Launch) -> Self {
        let Launch(sample, digest, norm) = a;
        if *digest == b.1 {
            return Self::Bits;
        }
        let Ok(key) = KERNELS.parse(key) else { return Self::OtherSources };
        let params = key.kernel().samples().into_iter().nth(*sample);
        let mut operands = params.map_or(Vec::new(), |params| key.kernel().operands(&params));
        operands.retain(|operand| operand.access.is_output());
        let largest = norm.max(b.2);
        let allowed = operands.iter().map(|operand| {
            let tolerance = key.kernel().tolerance(operand);
            2.0 * (tolerance.norm * largest + tolerance.absolute * (operand.elems as f64).sqrt())
        });
        match allowed.sum() {
            0.0 => Self::apart(format!("sample {sample}: it has other bits, and its kernel promises them")),
            allowed => {
                let allowed = allowed + 2.0 * ROUNDING * largest;
                Self::within(&format!("sample {sample}: norms"), (norm - b.2).abs(), allowed)
            }
        }
    }

    /// Judges the losses of two training runs.
    pub(super) fn of_runs(a: &Golden, b: &Golden) -> Self {
        let distance = a.losses.iter().zip(&b.losses).map(|(a, b)| (a - b).abs() / b.abs()).fold(0.0, f64::max);
        match a.fault.as_ref().or(b.fault.as_ref()) {
            Some(fault) => Self::apart(fault),
            None if (&a.case, a.losses.len()) != (&b.case, b.losses.len()) => {
                Self::apart("they are of other cases, or have other numbers of steps")
            }
            None if a.losses == b.losses => Self::Bits,
            None => Self::within("losses", distance, 2.0 * a.gate.min(b.gate)),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Within { distance, allowed } => write!(f, "within {distance:.1e} of at most {allowed:.1e}"),
            Self::Apart { reason } => write!(f, "APART  {reason}"),
            Self::Bits => f.write_str("bits   the same"),
            Self::OtherSources => f.write_str("not compared: other sources"),
            Self::Missing => f.write_str("not compared: missing"),
        }
    }
}
