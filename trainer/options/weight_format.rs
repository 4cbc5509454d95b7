//! Forms of a frozen model's weights on the device, as they are asked for.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// Value of `--teacher-format` and `--format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightFormat {
    /// `Bf16` where that fits into the device's memory, else `Stored`.
    #[default]
    Auto,
    /// In the precision of the run.
    Bf16,
    /// Matrices as a GGUF file holds them, all else in the precision of the run.
    Stored,
    /// Matrices of layers rotated and rounded to 8 bits, which `Auto` never is; all else in the precision of the run.
    Int8,
}

impl WeightFormat {
    pub const ALL: [Self; 4] = [Self::Auto, Self::Bf16, Self::Stored, Self::Int8];

    /// True if it gives the bits of the precision of the run.
    pub fn is_exact(self) -> bool {
        self != Self::Int8
    }
}

impl fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for WeightFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|format| format.to_string() == text);
        found.ok_or_else(|| format!("unknown format `{text}`: auto, bf16, stored or int8"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_read_back() {
        for format in WeightFormat::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        assert!("int4".parse::<WeightFormat>().is_err());
    }
}
