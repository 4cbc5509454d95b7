//! The largest distance of a teacher from the exact one.

use std::fmt;
use std::str::FromStr;

/// The largest distance of a teacher from the exact one: a mean KL, nats a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MostKl {
    /// However far.
    None,
    /// At most so many nats.
    Nats(f64),
}

impl Default for MostKl {
    fn default() -> Self {
        Self::Nats(0.02)
    }
}

impl fmt::Display for MostKl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Nats(nats) => nats.fmt(f),
        }
    }
}

impl FromStr for MostKl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::None);
        }
        let nats = text.parse::<f64>().ok().filter(|nats| nats.is_finite() && *nats >= 0.0);
        nats.map(Self::Nats).ok_or_else(|| "expected nats, a number that is not negative, or none".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_nats_or_none() {
        assert_eq!("none".parse(), Ok(MostKl::None));
        assert_eq!("0.02".parse(), Ok(MostKl::default()));
        for text in ["none", "0.02", "0"] {
            assert_eq!(text.parse::<MostKl>().unwrap().to_string(), text);
        }
        for text in ["", "-1", "NaN", "inf", "None"] {
            assert!(text.parse::<MostKl>().is_err(), "{text}");
        }
    }
}
