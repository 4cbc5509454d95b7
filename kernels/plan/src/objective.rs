//! The loss of a run.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Objective {
    /// Cross entropy of the data alone.
    CrossEntropy,
    /// `alpha T^2 D + (1 - alpha) CE`; D is a divergence of the softmaxes of teacher and student at temperature T.
    Distill {
        /// Weight of the teacher's term, 0 to 1.
        alpha: f32,
        /// T, above 0.
        temperature: f32,
        /// Weight of the divergence's two forms, 0 to 1: see [`Divergence`].
        beta: f32,
    },
}

/// Forms of D; t is the teacher's softmax, s the student's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Divergence {
    /// `KL(t || s)`.
    Forward,
    /// `KL(s || t)`.
    Reverse,
    /// `beta KL(t || m) + (1 - beta) KL(s || m)` with `m = beta t + (1 - beta) s`.
    JensenShannon,
}

impl Divergence {
    /// Returns the form: 0 is forward, 1 is reverse, values between are of the mixture.
    pub fn of(beta: f32) -> Self {
        match beta {
            0.0 => Divergence::Forward,
            1.0 => Divergence::Reverse,
            _ => Divergence::JensenShannon,
        }
    }
}

impl Objective {
    /// One objective of each kind; the numbers do not matter.
    pub const EVERY: [Self; 4] = [
        Objective::CrossEntropy,
        Objective::Distill { alpha: 0.5, temperature: 1.0, beta: 0.0 },
        Objective::Distill { alpha: 0.5, temperature: 1.0, beta: 1.0 },
        Objective::Distill { alpha: 0.5, temperature: 1.0, beta: 0.5 },
    ];

    /// True if two objectives launch the same kernels.
    pub fn is_like(self, other: Self) -> bool {
        self.divergence() == other.divergence()
    }

    /// Returns the form of divergence; none without a teacher.
    pub fn divergence(self) -> Option<Divergence> {
        match self {
            Objective::CrossEntropy => None,
            Objective::Distill { beta, .. } => Some(Divergence::of(beta)),
        }
    }

    /// True if the objective needs a teacher.
    pub fn has_teacher(self) -> bool {
        self.divergence().is_some()
    }

    /// The loss as a formula of `kd` and `ce`, with the numbers of the run: `0.5 x 4 x kd + 0.5 x ce`; none without a
    /// teacher.
    pub fn formula(self) -> Option<String> {
        let Objective::Distill { alpha, temperature, .. } = self else { return None };
        let (alpha, temperature) = (f64::from(alpha), f64::from(temperature));
        // As many digits as f32 has: 0.3 in f32 is 0.30000001192.
        let digits = |value: f64| format!("{value:.6e}").parse::<f64>().unwrap_or(value);
        let [alpha, squared, rest] = [alpha, temperature * temperature, 1.0 - alpha].map(digits);
        Some(format!("{alpha} x {squared} x kd + {rest} x ce"))
    }

    /// Computes the loss from its parts, nats: without a teacher the cross entropy.
    pub fn loss(self, kd: f64, ce: f64) -> f64 {
        match self {
            Objective::CrossEntropy => ce,
            Objective::Distill { alpha, temperature, .. } => {
                let (alpha, temperature) = (f64::from(alpha), f64::from(temperature));
                alpha * temperature * temperature * kd + (1.0 - alpha) * ce
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formula_has_the_numbers_of_the_run() {
        let formula = |alpha, temperature| Objective::Distill { alpha, temperature, beta: 0.0 }.formula().unwrap();
        assert_eq!(formula(0.5, 2.0), "0.5 x 4 x kd + 0.5 x ce");
        assert_eq!(formula(0.9, 1.1), "0.9 x 1.21 x kd + 0.1 x ce");
        assert_eq!(formula(1.0, 1.0), "1 x 1 x kd + 0 x ce");
        assert_eq!(Objective::CrossEntropy.formula(), None);
    }
}
