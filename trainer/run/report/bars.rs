//! A horizontal bar chart as inline SVG.

use super::svg::{BLUE, PALE_BLUE, WIDTH, figure, text};

const LEFT: f64 = 340.0;
const RIGHT: f64 = 160.0;
const ROW: f64 = 20.0;
const BAR: f64 = 13.0;

pub(crate) struct Bar {
    pub name: String,
    pub value: f64,
    /// Part of it that could not be less.
    pub part: f64,
    /// Note at its end.
    pub note: String,
}

/// A heading, a legend and the drawing, which a phone scrolls: names are long. A bar's length is its value, and the
/// dark part of it `part`.
pub(crate) fn bars(title: &str, legend: [&str; 2], bars: &[Bar]) -> String {
    let longest = bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
    let length = |value: f64| (value / longest).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT);
    let mut drawing = String::new();
    for (row, bar) in bars.iter().enumerate() {
        let top = row as f64 * ROW;
        let (whole, part) = (length(bar.value), length(bar.part.min(bar.value)));
        drawing.push_str(&text(LEFT - 6.0, top + 11.0, "end", &bar.name));
        for (color, length) in [(PALE_BLUE, whole), (BLUE, part)] {
            drawing.push_str(&format!(
                "<rect fill=\"{color}\" x=\"{LEFT}\" y=\"{top:.1}\" width=\"{length:.1}\" height=\"{BAR}\"/>"
            ));
        }
        drawing.push_str(&text(LEFT + whole + 6.0, top + 11.0, "start", &bar.note));
    }
    let [part, whole] = legend;
    let drawn = figure(title, &[(BLUE, part), (PALE_BLUE, whole)], bars.len() as f64 * ROW, &drawing);
    format!("<div class=\"wide\">{drawn}</div>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_fills_the_width_and_no_part_its_bar() {
        let bar = |value, part| Bar { name: "a<b".into(), value, part, note: String::new() };
        let svg = bars("title", ["part", "whole"], &[bar(2.0, 1.0), bar(1.0, 3.0), bar(0.0, 0.0)]);
        let widths: Vec<&str> = svg.split("width=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        assert_eq!(widths, ["360.0", "180.0", "180.0", "180.0", "0.0", "0.0"]);
        assert!(svg.contains("a&lt;b") && !svg.contains("NaN"));
        assert!(!bars("nothing", ["", ""], &[]).contains("NaN"));
    }
}
