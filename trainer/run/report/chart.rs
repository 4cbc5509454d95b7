//! A line chart as inline SVG.

use itertools::Itertools;

use super::svg::{WIDTH, figure, text};

const HEIGHT: f64 = 220.0;
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 24.0;
const TOP: f64 = 10.0;
const RIGHT: f64 = 10.0;

/// One line of a chart.
pub(crate) struct Series {
    pub name: String,
    pub color: &'static str,
    pub points: Vec<(f64, f64)>,
}

/// Scale of a chart's horizontal axis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Axis {
    /// Distances are proportional to differences.
    Linear,
    /// In doublings, each with its tick, and every point with its mark.
    Doublings,
}

/// A titled chart.
pub(crate) struct Chart {
    pub title: &'static str,
    pub axis: Axis,
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
        size if !(1e-2..1e6).contains(&size) => format!("{value:.1e}"),
        size if size < 10.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

impl Axis {
    /// Returns the position of a value, before scaling.
    fn position(self, value: f64) -> f64 {
        match self {
            Axis::Linear => value,
            Axis::Doublings => value.log2(),
        }
    }

    /// Values that are written, whole numbers, over a range of positions.
    fn ticks(self, (low, high): (f64, f64)) -> Vec<f64> {
        match self {
            Axis::Linear => {
                let ticks = (0..=4).map(|tick| (low + f64::from(tick) / 4.0 * (high - low)).round());
                // Few steps have fewer ticks.
                ticks.filter(|tick| (low..=high).contains(tick)).dedup().collect()
            }
            Axis::Doublings => (low.ceil() as i32..=high.floor() as i32).map(|tick| f64::from(tick).exp2()).collect(),
        }
    }
}

impl Chart {
    /// A heading, a legend and the drawing.
    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let (x0, x1) = range(points().map(|point| self.axis.position(point.0)));
        let (y0, y1) = range(points().map(|point| point.1));
        let x = |value: f64| LEFT + (self.axis.position(value) - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - (value - y0) / (y1 - y0) * (HEIGHT - BOTTOM - TOP);
        let mut drawing = String::new();
        for tick in 0..=4 {
            let value = y0 + f64::from(tick) / 4.0 * (y1 - y0);
            let (left, right, height) = (LEFT, WIDTH - RIGHT, y(value));
            drawing.push_str(&format!(
                "<line class=\"grid\" x1=\"{left}\" x2=\"{right:.1}\" y1=\"{height:.1}\" y2=\"{height:.1}\"/>"
            ));
            drawing.push_str(&text(LEFT - 6.0, height + 4.0, "end", &label(value)));
        }
        for tick in self.axis.ticks((x0, x1)) {
            drawing.push_str(&text(x(tick), HEIGHT - 6.0, "middle", &format!("{tick:.0}")));
        }
        for Series { color, points, .. } in &self.series {
            let path: Vec<String> = points.iter().map(|(a, b)| format!("{:.1},{:.1}", x(*a), y(*b))).collect();
            drawing.push_str(&format!(
                "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"1.6\" points=\"{}\"/>",
                path.join(" ")
            ));
            // A line through one point is not seen.
            for (a, b) in points.iter().filter(|_| self.axis == Axis::Doublings || points.len() == 1) {
                drawing.push_str(&format!(
                    "<circle fill=\"{color}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/>",
                    x(*a),
                    y(*b)
                ));
            }
        }
        let legend: Vec<(&str, &str)> = self.series.iter().map(|series| (series.color, &series.name[..])).collect();
        figure(self.title, &legend, HEIGHT, &drawing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_stands_at_the_number_that_it_names() {
        let ticks = |low, high| Axis::Linear.ticks((low, high));
        assert_eq!(ticks(1.0, 6.0), [1.0, 2.0, 4.0, 5.0, 6.0]);
        assert_eq!(ticks(1.0, 3.0), [1.0, 2.0, 3.0]);
        assert_eq!(ticks(0.5, 1.5), [1.0]);
        assert_eq!(ticks(1.0, 200.0), [1.0, 51.0, 101.0, 150.0, 200.0]);
        let points = (1..=6).map(|step| (f64::from(step), 1.0)).collect();
        let svg = Chart {
            title: "t",
            axis: Axis::Linear,
            series: vec![Series { name: "loss".into(), color: "#000", points }],
        };
        let second = text(64.0 + 786.0 / 5.0, HEIGHT - 6.0, "middle", "2");
        assert!(svg.svg().contains(&second), "{}", svg.svg());
    }

    #[test]
    fn doublings_are_as_far_apart_and_every_point_has_its_mark() {
        let points = vec![(1.0, 10.0), (2.0, 20.0), (8.0, 30.0)];
        let series = vec![Series { name: "a<b".into(), color: "#000", points }];
        let svg = Chart { title: "t", axis: Axis::Doublings, series }.svg();
        let marks: Vec<&str> = svg.split("cx=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        assert_eq!(marks, ["64.0", "326.0", "850.0"]);
        let ticks = ["1", "2", "4", "8"].map(|tick| format!(">{tick}</text>"));
        assert!(ticks.iter().all(|tick| svg.contains(tick)) && svg.contains("a&lt;b"), "{svg}");
        let one = Series { name: String::new(), color: "#000", points: vec![(1.0, 10.0)] };
        assert!(Chart { title: "t", axis: Axis::Linear, series: vec![one] }.svg().contains("<circle"));
        let nothing = |axis| Chart { title: "t", axis, series: Vec::new() }.svg();
        assert!(!nothing(Axis::Linear).contains("NaN") && !nothing(Axis::Doublings).contains("NaN"));
    }
}
