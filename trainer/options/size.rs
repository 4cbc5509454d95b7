//! Sizes of memory, as people write them.

/// Units, each of two to the power of so many bytes.
const UNITS: [(&str, i32); 3] = [("KiB", 10), ("MiB", 20), ("GiB", 30)];

/// Parses bytes, or a number of KiB, MiB or GiB.
///
/// # Errors
/// The unit that is meant, where it is another one.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..at], text[at..].trim());
    let wrong = || "expected bytes, or a number of KiB, MiB or GiB, as 24GiB".to_owned();
    if unit.is_empty() {
        return number.parse().map_err(|_| wrong());
    }
    let bits = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, bits)| *bits);
    let bits = bits.ok_or_else(|| {
        let first = unit.as_bytes()[0];
        let meant = UNITS.iter().find(|(name, _)| name.as_bytes()[0].eq_ignore_ascii_case(&first));
        meant.map_or_else(wrong, |(name, bits)| {
            format!("`{unit}` is no unit here: {name} is, 2^{bits} bytes, as in {number}{name}")
        })
    })?;
    let bytes = number.parse::<f64>().map_err(|_| wrong())? * 2f64.powi(bits);
    // Beyond, a double counts no bytes.
    if bytes < 2f64.powi(53) { Ok(bytes as u64) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_size_is_bytes_or_has_a_unit() {
        let read = ["0", "25769803776", "24GiB", "24 GiB", "1.5GiB", "64MiB", "1KiB"].map(|text| bytes(text).unwrap());
        assert_eq!(read, [0, 24 << 30, 24 << 30, 24 << 30, 3 << 29, 64 << 20, 1 << 10]);
    }

    #[test]
    fn another_unit_hears_of_the_one_that_is_meant() {
        let refused = "24GB|24G|24 gib|5Mb|3k|24TiB|B||.|1.5|-1|GiB|1e3GiB|9999999999GiB|24µ";
        let refused: Vec<String> =
            refused.split('|').map(|text| format!("{text}: {}", bytes(text).unwrap_err())).collect();
        insta::assert_snapshot!(refused.join("\n"));
    }

    proptest! {
        #[test]
        fn whole_numbers_of_a_unit_read_back(number in 0u64..1 << 20, unit in 0usize..3) {
            let (name, bits) = UNITS[unit];
            prop_assert_eq!(bytes(&format!("{number}{name}")), Ok(number << bits));
            prop_assert_eq!(bytes(&(number << bits).to_string()), Ok(number << bits));
        }
    }
}
