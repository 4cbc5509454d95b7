//! `{% generation %}` and `{% endgeneration %}`, which enclose what the assistant says. The template engine takes no
//! tags of one's own, so they become a filter, whose blanks and scopes are the same; the filter leaves characters at
//! both ends of its text that no text has, and that are taken away once they have said where they are.

use std::ops::Range;

use fancy_regex::Regex;

/// Noncharacters of Unicode: no text that is interchanged has them.
pub(super) const MARKS: [char; 2] = ['\u{FDD0}', '\u{FDD1}'];

/// The name of the filter.
pub(super) const FILTER: &str = "precast_generation";

/// A template with the filter in place of the tags, and whether there is any.
pub(super) fn with_filter(template: &str) -> (String, bool) {
    let tag = |name: &str| Regex::new(&format!(r"\{{%([-+]?)\s*{name}\s*([-+]?)%\}}")).expect("a valid expression");
    let begun = tag("generation").replace_all(template, format!("{{%$1 filter {FILTER} $2%}}"));
    let ended = tag("endgeneration").replace_all(&begun, "{%$1 endfilter $2%}");
    let has_marks = begun != template;
    (ended.into_owned(), has_marks)
}

/// What the filter makes of a text.
pub(super) fn filter(text: &str) -> String {
    format!("{}{text}{}", MARKS[0], MARKS[1])
}

/// The text without the filter's characters, and the bytes of it between them.
pub(super) fn taken_away(marked: &str) -> (String, Vec<Range<usize>>) {
    let (mut text, mut spans, mut start) = (String::with_capacity(marked.len()), Vec::new(), None);
    for character in marked.chars() {
        match character {
            mark if mark == MARKS[0] => start = Some(text.len()),
            mark if mark == MARKS[1] => spans.extend(start.take().map(|start| start..text.len())),
            other => text.push(other),
        }
    }
    (text, spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_become_a_filter_with_their_blanks() {
        let (text, has) = with_filter("a{%- generation %}b{% endgeneration -%}c{%generation%}d{%+ endgeneration +%}");
        let filter = format!("filter {FILTER}");
        assert_eq!(text, format!("a{{%- {filter} %}}b{{% endfilter -%}}c{{% {filter} %}}d{{%+ endfilter +%}}"));
        assert!(has && !with_filter("{% if generation %}{% endif %}").1);
    }

    #[test]
    fn marks_say_where_they_were() {
        let marked = format!("é{}b{}c{}{}d", MARKS[0], MARKS[1], MARKS[0], MARKS[1]);
        assert_eq!(taken_away(&marked), ("ébcd".to_owned(), vec![2..3, 4..4]));
    }
}
