//! Lines of a message.

/// The first lines of a list, and how many more there are: no list grows with what an input says.
pub fn bounded(mut lines: Vec<String>, most: usize) -> Vec<String> {
    let more = lines.len().saturating_sub(most);
    if more > 0 {
        lines.truncate(most);
        lines.push(format!("  and {more} more"));
    }
    lines
}
