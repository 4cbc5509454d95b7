//! Names in a symbol of C++ (Itanium C++ ABI, 5.1): each follows its length.

/// Returns a symbol of `extern "C"` as it is, and one that C++ mangles with each of these names in braces, without its
/// length: `_Z5scaleIfEvPT_` is `_Z{scale}IfEvPT_`.
pub(super) fn braced(symbol: &str, names: &[&str]) -> String {
    if !symbol.starts_with("_Z") {
        return symbol.to_owned();
    }
    let (mut written, mut rest) = (String::new(), symbol);
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|char: char| char.is_ascii_digit()).len();
        let name = rest[..digits].parse().ok().and_then(|bytes: usize| rest.get(digits..digits + bytes));
        let end = name.map_or_else(|| no_name(rest).unwrap_or(1), |name| digits + name.len());
        match name.filter(|name| names.contains(name)) {
            Some(name) => written.push_str(&format!("{{{name}}}")),
            None => written.push_str(&rest[..end]),
        }
        rest = &rest[end..];
    }
    written
}

/// Returns the size of what begins a text and has digits that are no length: a reference to what came before (`S1_`,
/// `T0_`), an array (`A16_`), a number (`Lj128E`).
fn no_name(text: &str) -> Option<usize> {
    let (kind, rest) = text.split_at_checked(1)?;
    let (rest, end) = match kind {
        "S" | "T" => (rest.trim_start_matches(|char: char| char.is_ascii_digit() || char.is_ascii_uppercase()), '_'),
        "A" => (rest.trim_start_matches(|char: char| char.is_ascii_digit()), '_'),
        "L" => (rest.trim_start_matches(|char: char| char.is_ascii_digit() || char.is_ascii_lowercase()), 'E'),
        _ => return None,
    };
    rest.starts_with(end).then(|| text.len() - rest.len() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_by_its_length_and_not_in_another() {
        for (symbol, expected) in [
            ("scale", "scale"),
            ("_Z5scalePfi", "_Z{scale}Pfi"),
            ("_Z5scaleIfLi128EEvPKT_PS0_i", "_Z{scale}IfLi128EEvPKT_PS0_i"),
            ("_ZN5scale5scaleIfEEvT_", "_ZN{scale}{scale}IfEEvT_"),
            // `scale` ends another name, or follows a digit of one.
            ("_Z8my_scaleP6a5scaleRA16_f", "_Z8my_scaleP6a5scaleRA16_f"),
            ("_Z15scale_and_shiftS1_5scale", "_Z15scale_and_shiftS1_{scale}"),
            ("_ZN3two5scaleILb1ELj5ELl5EEEvv", "_ZN3two{scale}ILb1ELj5ELl5EEEvv"),
            ("_Z5scaleIL4kind5EEvP8my_scale", "_Z{scale}IL4kind5EEvP8my_scale"),
        ] {
            assert_eq!(braced(symbol, &["scale"]), expected);
        }
    }
}
