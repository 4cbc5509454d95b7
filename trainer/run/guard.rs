//! The guard of `--precision int8`: how far a micro-batch's gradients are from those that bf16 gives, a layer each.

use std::fmt;

use precast_plan::guard::Sums;
use serde::{Deserialize, Serialize};

use crate::base::record_text::finite;

/// The gradients of a layer's matrices beside bf16's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerDistance {
    /// Cosine of the angle between them; none where one of them is zero or not finite.
    pub cosine: Option<f64>,
    /// Norm of int8's over that of bf16's; none where that is no number.
    pub norm: Option<f64>,
}

impl LayerDistance {
    /// Two that are zero are the same.
    pub fn of(Sums { ab, aa, bb }: Sums) -> Self {
        if aa == 0.0 && bb == 0.0 {
            return Self { cosine: Some(1.0), norm: Some(1.0) };
        }
        // The root of each, first: their product may be out of range. Rounding may take a cosine beyond 1.
        let cosine = finite(ab / (aa.sqrt() * bb.sqrt())).map(|cosine| cosine.clamp(-1.0, 1.0));
        Self { cosine, norm: finite((aa / bb).sqrt()) }
    }

    /// |a - b| / |b|; none as its parts.
    pub fn apart(self) -> Option<f64> {
        let (cosine, norm) = (self.cosine?, self.norm?);
        Some((1.0 + norm * norm - 2.0 * norm * cosine).max(0.0).sqrt())
    }

    /// True if it is farther than another: what is beyond the bound is farther than what is not.
    fn is_worse(self, other: Self) -> bool {
        let far = |distance: Self| (!distance.is_within(), distance.apart().unwrap_or(f64::INFINITY));
        far(self) > far(other)
    }

    /// True if a run may count on it.
    pub fn is_within(self) -> bool {
        self.cosine.is_some_and(|cosine| cosine >= LEAST_COSINE)
            && self.norm.is_some_and(|norm| (1.0 / MOST_NORM..=MOST_NORM).contains(&norm))
    }
}

/// Least cosine, and largest factor between the norms. On an H200 runs whose students ended as bf16's did went down to
/// 0.68 and to
/// 1.8, late, where little is left to learn and gradients are small; runs that too large a learning rate broke went
/// down to 0.12.
pub const LEAST_COSINE: f64 = 0.5;
pub const MOST_NORM: f64 = 2.0;

/// All layers of a step, the lowest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<LayerDistance>")]
pub struct Guarded(pub Vec<LayerDistance>);

impl TryFrom<Vec<LayerDistance>> for Guarded {
    type Error = &'static str;

    fn try_from(layers: Vec<LayerDistance>) -> Result<Self, Self::Error> {
        if layers.is_empty() { Err("a guard has compared no layer") } else { Ok(Self(layers)) }
    }
}

impl Guarded {
    /// The layer that is farthest from bf16's, the lowest of those, and its distance: one beyond the bound, if there is
    /// one.
    ///
    /// # Panics
    /// If there is no layer.
    pub fn worst(&self) -> (usize, LayerDistance) {
        let layers = self.0.iter().copied().enumerate();
        let worst = layers.reduce(|worst, next| if next.1.is_worse(worst.1) { next } else { worst });
        worst.expect("a model has layers")
    }

    pub fn is_within(&self) -> bool {
        self.0.iter().all(|layer| layer.is_within())
    }

    /// Returns the least cosine of the layers.
    pub fn least_cosine(&self) -> Option<f64> {
        self.0.iter().map(|layer| layer.cosine).try_fold(f64::INFINITY, |least, cosine| Some(least.min(cosine?)))
    }
}

/// Writes the worst layer of one step and its distance, for people.
impl fmt::Display for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (layer, distance) = self.worst();
        write!(f, "layer {layer} {distance}")
    }
}

impl fmt::Display for LayerDistance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.cosine, self.norm) {
            (Some(cosine), Some(norm)) => write!(f, "cosine {cosine:.4} norm {norm:.3}"),
            _ => f.write_str("not comparable: zero or not finite"),
        }
    }
}

/// Record of a run's guard in `run.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuardRecord {
    /// Steps that were compared, those before a resume among them.
    pub steps: u64,
    /// Those of them beyond the bound.
    pub beyond: u64,
    /// True if all of them are within the bound.
    pub within: bool,
    pub bound: Bound,
    /// The worst layer of all these steps.
    pub worst: At,
    /// The worst layer of the last of them.
    pub last: At,
}

/// Bound that a run is held against.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    pub least_cosine: f64,
    /// Ratio of norms.
    pub norm: [f64; 2],
}

/// A layer at a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct At {
    pub step: u64,
    pub layer: usize,
    #[serde(flatten)]
    pub distance: LayerDistance,
}

impl GuardRecord {
    const BOUND: Bound = Bound { least_cosine: LEAST_COSINE, norm: [1.0 / MOST_NORM, MOST_NORM] };

    /// Summarizes the steps that were compared; none where none was.
    pub fn of<'a>(compared: impl DoubleEndedIterator<Item = (u64, &'a Guarded)> + Clone) -> Option<Self> {
        let at = |(step, guarded): (u64, &Guarded)| {
            let (layer, distance) = guarded.worst();
            At { step, layer, distance }
        };
        let worse = |worst: At, next: At| if next.distance.is_worse(worst.distance) { next } else { worst };
        let worst = compared.clone().map(at).reduce(worse)?;
        let beyond = compared.clone().filter(|(_, guarded)| !guarded.is_within()).count() as u64;
        let last = compared.clone().next_back().map(at)?;
        Some(Self { steps: compared.count() as u64, beyond, within: beyond == 0, bound: Self::BOUND, worst, last })
    }

    /// Returns the warning of a run beyond the bound; none of one within it.
    pub fn warning(&self) -> Option<String> {
        let At { step, layer, distance } = self.worst;
        (!self.within).then(|| {
            format!(
                "int8's gradients left the guard's bound (cosine at least {LEAST_COSINE}, norm within a factor of \
                {MOST_NORM} of \
                 bf16's) at {} of {} steps that were compared, farthest at step {step}: layer {layer} {distance}. \
                 Compare with a \
                 run under --precision bf16",
                self.beyond, self.steps
            )
        })
    }
}

impl fmt::Display for GuardRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (At { step, layer, distance }, within) = (self.worst, self.steps - self.beyond);
        write!(
            f,
            "{within} of {} steps within the bound, farthest at step {step}: layer {layer} {distance}",
            self.steps
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::step::{StepRecord, guarded};

    fn layer(cosine: f64, norm: f64) -> LayerDistance {
        LayerDistance { cosine: Some(cosine), norm: Some(norm) }
    }

    fn step(step: u64, guard: Option<Guarded>) -> StepRecord {
        let line = serde_json::json!({
            "step": step, "loss": 1.0, "kd_loss": null, "ce_loss": 1.0, "grad_norm": 1.0, "lr": 1.0,
            "tokens": 1, "step_ms": 1.0,
            "tokens_per_s": 1.0, "memory_bytes": 1
        });
        StepRecord { guard, ..serde_json::from_value(line).unwrap() }
    }

    #[test]
    fn distances_are_those_of_vectors() {
        let (a, b) = ([3.0f64, 4.0, 0.5], [2.0f64, 5.0, 0.0]);
        let dot = |x: [f64; 3], y: [f64; 3]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
        let of = LayerDistance::of(Sums { ab: dot(a, b), aa: dot(a, a), bb: dot(b, b) });
        let difference = [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
        assert!((of.apart().unwrap() - (dot(difference, difference) / dot(b, b)).sqrt()).abs() < 1e-12);
        assert!((of.norm.unwrap() - (dot(a, a) / dot(b, b)).sqrt()).abs() < 1e-12);
        // Nothing is as far as from itself.
        let same = LayerDistance::of(Sums { ab: 1e300, aa: 1e300, bb: 1e300 });
        assert_eq!((same, same.apart()), (layer(1.0, 1.0), Some(0.0)));
    }

    #[test]
    fn zeros_are_equal_and_nothing_else_is_comparable_to_them() {
        let of = |ab, aa, bb| LayerDistance::of(Sums { ab, aa, bb });
        assert!(of(0.0, 0.0, 0.0).is_within());
        for unlike in
            [of(0.0, 1.0, 0.0), of(0.0, 0.0, 1.0), of(f64::NAN, f64::NAN, 1.0), of(f64::INFINITY, f64::INFINITY, 1.0)]
        {
            assert!(!unlike.is_within(), "{unlike:?}");
            assert_eq!(Guarded(vec![layer(0.5, 1.0), unlike]).worst().0, 1);
        }
    }

    #[test]
    fn a_bound_is_of_angle_and_of_norm() {
        assert!(layer(0.5, 2.0).is_within() && layer(1.0, 0.5).is_within());
        assert!(!layer(0.4999, 1.0).is_within() && !layer(1.0, 2.01).is_within() && !layer(1.0, 0.49).is_within());
    }

    #[test]
    fn a_layer_beyond_the_bound_is_worse_than_any_within() {
        // The first is farther, by the norm of the difference.
        let layers = Guarded(vec![layer(0.6, 1.9), layer(0.99, 0.49)]);
        assert!(layers.0[0].apart() > layers.0[1].apart() && layers.worst().0 == 1);
        let steps = [step(1, Some(Guarded(vec![layers.0[1]]))), step(2, Some(Guarded(vec![layers.0[0]])))];
        assert_eq!(GuardRecord::of(guarded(&steps)).unwrap().worst.step, 1);
    }

    #[test]
    fn a_record_says_the_worst_of_all_steps_and_of_the_last() {
        assert_eq!(GuardRecord::of(guarded(&[step(1, None)])), None);
        let of = |cosine| Some(Guarded(vec![layer(0.999, 1.0), layer(cosine, 1.01)]));
        let steps = [step(1, of(0.98)), step(2, None), step(3, of(0.99))];
        let record = GuardRecord::of(guarded(&steps)).unwrap();
        assert_eq!((record.steps, record.beyond, record.within, record.warning()), (2, 0, true, None));
        assert_eq!((record.worst.step, record.worst.layer, record.last.step), (1, 1, 3));
        let beyond = GuardRecord::of(guarded(&[step(1, of(0.4)), step(2, of(0.99))])).unwrap();
        assert!(!beyond.within && beyond.warning().unwrap().contains("1 of 2 steps"));
        let json = serde_json::to_value(&beyond).unwrap();
        assert_eq!((&json["worst"]["step"], &json["worst"]["cosine"]), (&1.into(), &0.4.into()));
    }

    #[test]
    fn a_line_reads_back_and_lines_without_one_are_as_before() {
        let with = step(1, Some(Guarded(vec![layer(0.5, 2.0), LayerDistance { cosine: None, norm: None }])));
        let line = serde_json::to_string(&with).unwrap();
        assert_eq!(serde_json::from_str::<StepRecord>(&line).unwrap(), with);
        assert!(!serde_json::to_string(&step(1, None)).unwrap().contains("guard"));
        assert!(serde_json::from_str::<Guarded>("[]").is_err());
    }
}
