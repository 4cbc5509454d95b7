//! The file of a report, which a run knows again by its last line.

use precast_fatbins::Digest;

/// The name of a run's report.
pub const REPORT: &str = "report.html";

/// The digest of a page, to be its last line: a run that did not write a report knows by it that Precast did.
pub fn last_line(page: &[u8]) -> String {
    format!("<!-- precast report {} -->\n", Digest::of(page))
}

/// True for a report that is as it was written.
pub fn is_unchanged(bytes: &[u8]) -> bool {
    let lines = bytes.strip_suffix(b"\n").and_then(|lines| lines.iter().rposition(|byte| *byte == b'\n'));
    let page_bytes = lines.map_or(0, |newline| newline + 1);
    let (page, last) = bytes.split_at(page_bytes);
    last == last_line(page).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_recognized_unless_a_byte_of_it_changed() {
        let page = "<html>\n<p>3.0\n</html>\n".to_owned();
        let report = page.clone() + &last_line(page.as_bytes());
        assert!(is_unchanged(report.as_bytes()) && !is_unchanged(page.as_bytes()) && !is_unchanged(b""));
        for at in [0, report.len() / 2, report.len() - 20, report.len() - 1] {
            let mut changed = report.clone().into_bytes();
            changed[at] ^= 1;
            assert!(!is_unchanged(&changed), "{at}");
        }
        assert!(!is_unchanged((report + "mine\n").as_bytes()));
    }
}
