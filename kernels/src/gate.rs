//! The activations of an MLP's gate.

use crate::fields::FieldValue;
use crate::host::sigmoid;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    /// `x sigmoid(x)`; keys omit it.
    #[default]
    Silu,
    /// GELU by tanh: `x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`.
    GeluTanh,
}

impl Gate {
    /// `2 sqrt(2 / pi)`, and 0.044715 times that.
    const GELU: [f32; 2] = [1.595_769_2, 0.071_354_814];

    /// Returns what the activation multiplies a gate by.
    #[inline(always)]
    pub(crate) fn sigmoid(self, gate: f32) -> f32 {
        let [linear, cubic] = Self::GELU;
        match self {
            Self::Silu => sigmoid(gate),
            Self::GeluTanh => sigmoid(gate * (linear + cubic * (gate * gate))),
        }
    }

    /// Returns the activation's derivative over s, the gate's sigmoid.
    #[inline(always)]
    pub(crate) fn slope(self, gate: f32, s: f32) -> f32 {
        let [linear, cubic] = Self::GELU;
        let part = gate * (1.0 - s);
        match self {
            Self::Silu => 1.0 + part,
            // From 16 on, s is 0 or 1, and its argument's derivative might overflow.
            Self::GeluTanh if gate.abs() < 16.0 => 1.0 + part * (linear + 3.0 * cubic * (gate * gate)),
            Self::GeluTanh => 1.0,
        }
    }
}

/// `gate.cuh` asks whether it is defined.
impl FieldValue for Gate {
    const LEFT_OUT: Option<Self> = Some(Self::Silu);

    fn text(self) -> String {
        let text = match self {
            Self::Silu => "",
            Self::GeluTanh => "gelu_tanh",
        };
        text.to_owned()
    }
    fn parse(text: &str) -> Option<Self> {
        (text == Self::GeluTanh.text()).then_some(Self::GeluTanh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_gates_are_passed_or_closed() {
        for gate in [16.0, 1e13, 1e20, f32::MAX] {
            let [passed, closed] = [gate, -gate].map(|gate| {
                let s = Gate::GeluTanh.sigmoid(gate);
                [gate * s, s * Gate::GeluTanh.slope(gate, s)]
            });
            assert_eq!([passed, closed], [[gate, 1.0], [0.0, 0.0]]);
        }
        assert!(Gate::GeluTanh.sigmoid(f32::NAN).is_nan());
    }
}
