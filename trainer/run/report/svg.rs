//! Parts that every drawing of a report shares: its width, its colors, its frame.

use super::page::escaped;

/// Width of a drawing.
pub const WIDTH: f64 = 860.0;

pub const BLUE: &str = "#2f6fde";
pub const PALE_BLUE: &str = "#9dbdf2";
pub const ORANGE: &str = "#d9822b";
pub const GREEN: &str = "#2a9d5c";
pub const PURPLE: &str = "#a04bc9";
pub const GREY: &str = "#6b7480";
pub const RED: &str = "#c0392b";

/// A heading, a legend of colors and names, and the drawing.
pub fn figure(title: &str, legend: &[(&str, &str)], height: f64, drawing: &str) -> String {
    let entry = |(color, name): &(&str, &str)| format!("<span style=\"color:{color}\">■</span> {}", escaped(name));
    let legend: Vec<String> = legend.iter().map(entry).collect();
    format!(
        "<h2>{title}</h2><div>{}</div><svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{title}\">\
         {drawing}</svg>",
        legend.join(" &nbsp; ")
    )
}

/// Text whose `anchor` (start, middle or end) lies at a point.
pub fn text(x: f64, y: f64, anchor: &str, content: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escaped(content))
}
