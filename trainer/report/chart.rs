//! A line chart as inline SVG.

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 24.0;
const TOP: f64 = 10.0;
const RIGHT: f64 = 10.0;

/// One line of a chart.
pub(super) struct Series {
    pub name: &'static str,
    pub color: &'static str,
    pub points: Vec<(f64, f64)>,
}

/// A titled chart over steps.
pub(super) struct Chart {
    pub title: &'static str,
    pub series: Vec<Series>,
}

/// The range of values shown, never empty.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    match (low.is_finite(), high > low) {
        (false, _) => (0.0, 1.0),
        (true, true) => (low, high),
        (true, false) => (low - low.abs().max(1e-9) * 0.5, low + low.abs().max(1e-9) * 0.5),
    }
}

fn label(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if !(1e-2..1e5).contains(&size) => format!("{value:.1e}"),
        size if size < 10.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

impl Chart {
    /// A heading, a legend and the drawing.
    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let (x0, x1) = range(points().map(|point| point.0));
        let (y0, y1) = range(points().map(|point| point.1));
        let x = |value: f64| LEFT + (value - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - (value - y0) / (y1 - y0) * (HEIGHT - BOTTOM - TOP);
        let mut drawing = String::new();
        for tick in 0..=4 {
            let share = f64::from(tick) / 4.0;
            let (value, step) = (y0 + share * (y1 - y0), x0 + share * (x1 - x0));
            drawing.push_str(&format!(
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{:.0}</text>",
                WIDTH - RIGHT,
                y(value),
                y(value),
                LEFT - 6.0,
                y(value) + 4.0,
                label(value),
                x(step),
                HEIGHT - 6.0,
                step
            ));
        }
        for series in &self.series {
            let path: Vec<String> = series.points.iter().map(|(a, b)| format!("{:.1},{:.1}", x(*a), y(*b))).collect();
            drawing.push_str(&format!(
                "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\" points=\"{}\"/>",
                series.color,
                path.join(" ")
            ));
        }
        let legend: Vec<String> = self
            .series
            .iter()
            .map(|series| format!("<span style=\"color:{}\">■</span> {}", series.color, series.name))
            .collect();
        format!(
            "<h2>{}</h2><div>{}</div><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">{drawing}</svg>",
            self.title,
            legend.join(" &nbsp; "),
            self.title
        )
    }
}
