//! Formats of AdamW's moments.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::Dtype;
use crate::fields::FieldValue;

/// Format in which AdamW's moments are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Moments {
    /// Keys omit it.
    #[default]
    Fp32,
    /// Rounded stochastically.
    Bf16,
}

impl Moments {
    pub const ALL: [Moments; 2] = [Moments::Fp32, Moments::Bf16];

    pub fn dtype(self) -> Dtype {
        match self {
            Moments::Fp32 => Dtype::F32,
            Moments::Bf16 => Dtype::Bf16,
        }
    }

    /// True if an update rounds them.
    pub fn are_rounded(self) -> bool {
        self == Moments::Bf16
    }
}

impl fmt::Display for Moments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for Moments {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|moments| moments.to_string() == text);
        found.ok_or_else(|| format!("unknown format of moments `{text}`: fp32 or bf16"))
    }
}

/// `update.cu` asks whether it is defined.
impl FieldValue for Moments {
    const LEFT_OUT: Option<Self> = Some(Self::Fp32);

    fn text(self) -> String {
        if self.are_rounded() { self.dtype().text() } else { String::new() }
    }
    fn parse(text: &str) -> Option<Self> {
        (text == Self::Bf16.text()).then_some(Self::Bf16)
    }
}
