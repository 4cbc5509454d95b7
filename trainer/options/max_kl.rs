//! The largest distance of a teacher from the exact one.

use super::bound::Bound;

/// The largest distance of a teacher from the exact one: a mean KL, nats a token.
pub type MostKl = Bound<f64>;

/// Of a run that is told nothing.
pub const DEFAULT: MostKl = MostKl::Most(0.02);

pub(crate) fn nats(text: &str) -> Result<MostKl, String> {
    let nats = text.parse().ok().filter(|nats: &f64| nats.is_finite() && *nats >= 0.0);
    Bound::of(text, nats).ok_or_else(|| "expected nats, a number that is not negative, or none".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_nats_or_none() {
        assert_eq!(nats("none"), Ok(MostKl::None));
        assert_eq!(nats("0.02"), Ok(DEFAULT));
        for text in ["none", "0.02", "0"] {
            assert_eq!(nats(text).unwrap().to_string(), text);
        }
        for text in ["", "-1", "NaN", "inf", "None"] {
            assert!(nats(text).is_err(), "{text}");
        }
    }
}
