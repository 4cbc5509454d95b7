//! `cargo xtask picture`: the first two charts of the demo's report as `docs/report.svg`, for the README.

use std::fs;

use anyhow::{Context, Result, ensure};

const REPORT: &str = "target/demo/report.html";
const PICTURE: &str = "docs/report.svg";
/// Height of a heading with its legend.
const HEADING: f64 = 44.0;

/// Draws the charts of `cargo xtask demo`'s report.
pub fn picture() -> Result<()> {
    let report = fs::read_to_string(REPORT).with_context(|| format!("{REPORT}: `cargo xtask demo` writes it"))?;
    let picture = drawn(&report)?;
    fs::create_dir_all("docs")?;
    fs::write(PICTURE, &picture).context(PICTURE)?;
    println!("{PICTURE}: {} bytes", picture.len());
    Ok(())
}

/// Title, legend, size and drawing of a chart, as `trainer/run/report/svg.rs` writes a figure.
struct Figure<'a> {
    title: &'a str,
    legend: &'a str,
    width: f64,
    height: f64,
    drawing: &'a str,
}

impl<'a> Figure<'a> {
    fn read(html: &'a str) -> Option<(Self, &'a str)> {
        let (_, rest) = html.split_once("<h2>")?;
        let (title, rest) = rest.split_once("</h2><div>")?;
        let (legend, rest) = rest.split_once("</div><svg viewBox=\"0 0 ")?;
        let (size, rest) = rest.split_once('"')?;
        let (width, height) = size.split_once(' ')?;
        let (_, rest) = rest.split_once('>')?;
        let (drawing, rest) = rest.split_once("</svg>")?;
        Some((Self { title, legend, width: width.parse().ok()?, height: height.parse().ok()?, drawing }, rest))
    }

    fn svg(&self, top: f64) -> String {
        // Converts HTML spans to SVG; `&nbsp;` is not XML.
        let legend = self.legend.replace("<span style=\"color:", "<tspan style=\"fill:").replace("</span>", "</tspan>");
        format!(
            "<text x=\"0\" y=\"{:.0}\" class=\"title\">{}</text><text x=\"0\" y=\"{:.0}\">{}</text>\
             <g transform=\"translate(0 {:.0})\">{}</g>",
            top + 18.0,
            self.title,
            top + 36.0,
            legend.replace("&nbsp;", "\u{a0}"),
            top + HEADING,
            self.drawing
        )
    }
}

fn drawn(report: &str) -> Result<String> {
    let (mut rest, mut top, mut width, mut drawing) = (report, 0.0, 0.0f64, String::new());
    for _ in 0..2 {
        let (figure, after) = Figure::read(rest).with_context(|| format!("{REPORT} has no two charts"))?;
        drawing += &figure.svg(top);
        top += HEADING + figure.height;
        (width, rest) = (width.max(figure.width), after);
    }
    ensure!(drawing.contains("<polyline") || drawing.contains("<path"), "{REPORT} has no curve");
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-8 0 {:.0} {top:.0}\"><style>\
         text {{ font: 11px system-ui, sans-serif; fill: #8b9198; }} .title {{ font-size: 15px; fill: #57606a; }} \
         .grid {{ stroke: #8b919855; }}</style>{drawing}</svg>\n",
        width + 16.0
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_charts_become_one_drawing() {
        let chart = |name: &str| {
            format!(
                "<h2>{name}</h2><div><span style=\"color:#123456\">■</span> {name}</div><svg viewBox=\"0 0 860 200\" \
                 role=\"img\" aria-label=\"{name}\"><path d=\"M0 0\"/></svg>"
            )
        };
        let picture = drawn(&format!("<h1>a run</h1>{}{}{}", chart("one"), chart("two"), chart("three"))).unwrap();
        assert_eq!(picture.matches("<path").count(), 2);
        assert!(picture.contains("viewBox=\"-8 0 876 488\"") && picture.contains("<tspan style=\"fill:#123456\">"));
        assert!(!picture.contains("three") && !picture.contains("<span") && !picture.contains("&nbsp;"));
        assert!(drawn(&chart("one")).is_err());
    }
}
