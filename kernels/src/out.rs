//! The formats in which a kernel writes rows.

use crate::fields::FieldValue;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Out {
    /// The dtype of the inputs; keys omit it.
    #[default]
    Dense,
    /// bf16, and rotated int8 of the bf16 values.
    DenseAndInt8,
    /// Rotated int8 alone.
    Int8,
}

impl Out {
    /// True if rows are written in the dtype of inputs.
    pub fn is_dense(self) -> bool {
        self != Self::Int8
    }

    /// True if rows are written in rotated int8.
    pub fn is_int8(self) -> bool {
        self != Self::Dense
    }

    /// Returns the formats for rows that only the next launch reads: int8 alone, if it is written.
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
        // Names of `int8/row.cuh`.
        let name = match self {
            Self::Dense => "",
            Self::DenseAndInt8 => "BF16_AND_I8",
            Self::Int8 => "I8",
        };
        name.to_owned()
    }
}
