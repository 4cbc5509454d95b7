//! The formats in which a kernel writes rows.

use crate::fields::FieldValue;

/// The formats of the rows that a kernel writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Out {
    /// In the dtype of its inputs: keys leave it out.
    #[default]
    Dense,
    /// In bf16, and what that is in rotated int8.
    DenseAndInt8,
    /// In rotated int8 alone.
    Int8,
}

impl Out {
    /// Whether rows are written in the dtype of inputs.
    pub fn is_dense(self) -> bool {
        self != Self::Int8
    }

    /// Whether rows are written in rotated int8.
    pub fn is_int8(self) -> bool {
        self != Self::Dense
    }

    /// What of it a launch reads next, and no later one: int8 alone, where that is written.
    #[must_use]
    pub fn next(self) -> Self {
        if self.is_int8() { Self::Int8 } else { self }
    }
}

impl FieldValue for Out {
    const LEFT_OUT: Option<Self> = Some(Self::Dense);

    fn text(self) -> String {
        let text = match self {
            Self::Dense => "",
            Self::DenseAndInt8 => "bf16+i8",
            Self::Int8 => "i8",
        };
        text.to_owned()
    }
    fn parse(text: &str) -> Option<Self> {
        [Self::DenseAndInt8, Self::Int8].into_iter().find(|out| out.text() == text)
    }
    fn define(self) -> String {
        // `int8/row.cuh` names them.
        let name = match self {
            Self::Dense => "",
            Self::DenseAndInt8 => "BF16_AND_I8",
            Self::Int8 => "I8",
        };
        name.to_owned()
    }
}
