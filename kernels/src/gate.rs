//! The activation of gates.

use crate::fields::FieldValue;
use crate::host::sigmoid;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    /// `x sigmoid(x)`; keys omit it.
    #[default]
    Silu,
    /// GELU by tanh: `x sigmoid(2 t)` with `t = sqrt(2 / pi) (x + 0.044715 x^3)`.
    Gelu,
}

/// `2 sqrt(2 / pi)`.
const LINEAR: f32 = 1.595_769_1;
/// 0.044715 times that.
const CUBIC: f32 = 0.071_354_82;
/// Bound of what GELU's sigmoid depends on: beyond it is 0 or 1.
const BOUND: f32 = 12.0;

impl Gate {
    /// Returns what a gate is multiplied by.
    pub(crate) fn factor(self, x: f32) -> f32 {
        match self {
            Self::Silu => sigmoid(x),
            Self::Gelu => {
                let c = x.clamp(-BOUND, BOUND);
                sigmoid(c * (LINEAR + CUBIC * c * c))
            }
        }
    }

    /// Returns the derivative of the activation over its factor.
    pub(crate) fn slope(self, x: f32, factor: f32) -> f32 {
        match self {
            Self::Silu => 1.0 + x * (1.0 - factor),
            Self::Gelu => {
                let c = x.clamp(-BOUND, BOUND);
                1.0 + c * (1.0 - factor) * (LINEAR + 3.0 * CUBIC * c * c)
            }
        }
    }
}

impl FieldValue for Gate {
    const LEFT_OUT: Option<Self> = Some(Self::Silu);

    fn text(self) -> String {
        if self == Self::Gelu { "gelu".to_owned() } else { String::new() }
    }
    fn parse(text: &str) -> Option<Self> {
        (text == "gelu").then_some(Self::Gelu)
    }
    fn define(self) -> String {
        if self == Self::Gelu { "GELU".to_owned() } else { String::new() }
    }
}
