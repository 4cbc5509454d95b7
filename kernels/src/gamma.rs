//! The form in which the weight of a norm is stored.

use std::borrow::Cow;

use crate::fields::FieldValue;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gamma {
    /// Rows are multiplied by the weight; keys omit it.
    #[default]
    Weight,
    /// Rows are multiplied by one plus the weight, added in f32: in bf16 the sum has no more than 1/128 of it.
    OnePlus,
}

impl Gamma {
    /// Returns the weight that multiplies by one.
    pub fn neutral(self) -> f32 {
        match self {
            Self::Weight => 1.0,
            Self::OnePlus => 0.0,
        }
    }

    /// Returns what rows are multiplied by.
    pub(crate) fn of(self, weight: Cow<'_, [f32]>) -> Cow<'_, [f32]> {
        match self {
            Self::Weight => weight,
            Self::OnePlus => weight.iter().map(|weight| 1.0 + weight).collect(),
        }
    }
}

impl FieldValue for Gamma {
    const LEFT_OUT: Option<Self> = Some(Self::Weight);

    fn text(self) -> String {
        let text = match self {
            Self::Weight => "",
            Self::OnePlus => "1+w",
        };
        text.to_owned()
    }
    fn parse(text: &str) -> Option<Self> {
        (text == Self::OnePlus.text()).then_some(Self::OnePlus)
    }
    fn define(self) -> String {
        // `gamma.cuh` asks only whether it is defined.
        "1".to_owned()
    }
}
