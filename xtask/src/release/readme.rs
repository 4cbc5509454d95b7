//! README as a package index shows it: alone, without the checkout that its links lead into.

/// Returns the page with the texts of such links in their place, and without such pictures.
pub fn alone(page: &str) -> String {
    let (mut text, mut rest) = (String::new(), page);
    while let Some((before, behind)) = rest.split_once("](") {
        let opened = before.rfind('[').zip(behind.find(')'));
        let Some((open, close)) = opened.filter(|(_, close)| !behind[..*close].starts_with("https://")) else {
            text += before;
            text += "](";
            rest = behind;
            continue;
        };
        match before[..open].strip_suffix('!') {
            Some(before) => text += before,
            None => text.extend([&before[..open], &before[open + 1..]]),
        }
        rest = &behind[close + 1..];
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_into_the_checkout_become_their_texts_on_an_index() {
        for (page, expected) in [
            ("See [a page](docs/a.md#b), or [b](https://b.org) of [c](c).", "See a page, or [b](https://b.org) of c."),
            ("One:\n\n![A picture](docs/a.svg)\n\nTwo", "One:\n\n\n\nTwo"),
            ("an array[0] (of 1)", "an array[0] (of 1)"),
            ("half [a](b", "half [a](b"),
        ] {
            assert_eq!(alone(page), expected);
        }
        let own = std::fs::read_to_string(crate::run::root().join("README.md")).unwrap();
        let shown = alone(&own);
        assert!(own.contains("](docs/") && shown.contains("](https://docs.nvidia.com/"));
        assert!(shown.split("](").skip(1).all(|target| target.starts_with("https://")), "{shown}");
    }
}
