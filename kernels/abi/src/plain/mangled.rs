//! Names in a symbol of C++ (Itanium C++ ABI, 5.1): each follows its length.

/// Returns a symbol of `extern "C"` as it is, and one that C++ mangles with each of these names in braces, without its
/// length: `_Z5scaleIfEvPT_` is `_Z{scale}IfEvPT_`.
pub(super) fn braced(symbol: &str, names: &[&str]) -> String {
    let (mut written, mut rest) = (String::new(), symbol);
    if !symbol.starts_with("_Z") {
        return symbol.to_owned();
    }
    while let Some(first) = rest.chars().next() {
        let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).count();
        // `S1_` and `T0_` refer to what came before, `A16_` is an array, `Lj128E` a number.
        let until = |end: char| rest.find(end).map_or(rest.len(), |at| at + 1);
        let skipped = match first {
            'S' | 'T'
                if rest[1..]
                    .trim_start_matches(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase())
                    .starts_with('_') =>
            {
                until('_')
            }
            'A' if digits(&rest[1..]) > 0 => until('_'),
            'L' if digits(rest[1..].trim_start_matches(|c: char| c.is_ascii_lowercase())) > 0
                && !rest[1..].starts_with('_') =>
            {
                until('E')
            }
            _ => 0,
        };
        if skipped > 0 {
            written.push_str(&rest[..skipped]);
            rest = &rest[skipped..];
            continue;
        }
        let length = digits(rest);
        let name = rest[..length].parse().ok().and_then(|bytes: usize| rest.get(length..length + bytes));
        match name {
            Some(name) if names.contains(&name) => written.push_str(&format!("{{{name}}}")),
            Some(name) => written.push_str(&rest[..length + name.len()]),
            None => written.push(first),
        }
        rest = &rest[name.map_or(first.len_utf8(), |name| length + name.len())..];
    }
    written
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
            ("_Z5scaleIL4kind5EEvv", "_Z{scale}IL4kind5EEvv"),
        ] {
            assert_eq!(braced(symbol, &["scale"]), expected);
        }
    }
}
