//! Formats counted nouns.

/// `1 kernel`, `2 kernels`; `2 launches`.
pub fn count(number: usize, noun: &str) -> String {
    let plural = if noun.ends_with("ch") { "es" } else { "s" };
    format!("{number} {noun}{}", if number == 1 { "" } else { plural })
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn one_thing_is_singular() {
        assert_eq!([0, 1, 2].map(|number| count(number, "tensor")), ["0 tensors", "1 tensor", "2 tensors"]);
        assert_eq!([1, 2].map(|number| count(number, "launch")), ["1 launch", "2 launches"]);
    }
}
