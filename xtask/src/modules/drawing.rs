//! Draws a graph as floors: modules without imports at the bottom, every other one above all that it uses.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::{Arrows, ModulePath};

const WIDTH: f64 = 860.0;
const GAP: f64 = 14.0;
/// Height between two floors, for arrows.
const BETWEEN: f64 = 26.0;
const LINE: f64 = 15.0;
/// Average width of a character of the small text.
const CHARACTER: f64 = 6.1;

/// Returns each module's floor: right below its lowest user, or the top without users.
fn floors_of(arrows: &Arrows) -> BTreeMap<&str, usize> {
    let mut floors = heights(arrows);
    let top = floors.values().copied().max().unwrap_or(0);
    let mut from_above: Vec<(usize, &str)> = floors.iter().map(|(module, height)| (*height, *module)).collect();
    from_above.sort_by_key(|(height, module)| (std::cmp::Reverse(*height), *module));
    for (height, module) in from_above {
        let users = arrows.iter().filter(|(user, used)| *user != module && used.contains(module));
        let lowest = users.map(|(user, _)| floors[&**user]).min();
        let alone = arrows[module].is_empty() && lowest.is_none();
        let floor = lowest.map_or(if alone { 0 } else { top }, |lowest| lowest.saturating_sub(1));
        floors.insert(module, floor.max(height));
    }
    floors
}

/// Returns the number of floors below each module, on the longest way down. Modules of a circle stand on the ground.
fn heights(arrows: &Arrows) -> BTreeMap<&str, usize> {
    let mut heights: BTreeMap<&str, usize> = BTreeMap::new();
    while let Some((module, height)) = arrows.iter().find_map(|(module, used)| {
        let below = used.iter().filter(|used| *used != module && arrows.contains_key(*used));
        let below: Option<Vec<usize>> = below.map(|used| heights.get(&**used).copied()).collect();
        let height = below?.into_iter().max().map_or(0, |height| height + 1);
        (!heights.contains_key(&**module)).then_some((&**module, height))
    }) {
        heights.insert(module, height);
    }
    arrows.keys().map(|module| (&**module, heights.get(&**module).copied().unwrap_or(0))).collect()
}

/// Returns the arrows that no longer path replaces.
fn direct<'a>(arrows: &'a Arrows, heights: &BTreeMap<&str, usize>) -> Vec<(&'a str, &'a str)> {
    let reaches = |from: &str, to: &str| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(module) = next.pop() {
            let used = arrows.get(module).into_iter().flatten().map(|used| &**used);
            next.extend(used.filter(|used| heights.contains_key(used) && seen.insert(*used)));
        }
        seen.contains(to)
    };
    let mut kept = Vec::new();
    for (from, used) in arrows {
        let below: Vec<&str> = used.iter().map(|used| &**used).filter(|used| heights.contains_key(used)).collect();
        let through = |to: &str| below.iter().any(|other| *other != to && reaches(other, to));
        kept.extend(below.iter().filter(|to| !through(to)).map(|to| (&**from, *to)));
    }
    kept
}

/// Breaks words into lines of at most a width.
fn lines(words: &[&str], width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut().filter(|line| (line.len() + 2 + word.len()) as f64 * CHARACTER < width) {
            Some(line) => *line += &format!("  {word}"),
            None => lines.push((*word).to_owned()),
        }
    }
    lines
}

/// Draws a box for each module of a graph, with the modules inside of it, and an arrow for each use that no longer path
/// replaces.
pub fn floors(arrows: &Arrows, inside: &BTreeMap<ModulePath, Arrows>) -> String {
    let heights = floors_of(arrows);
    let top = heights.values().copied().max().unwrap_or(0);
    // Left, top, width and height of each box.
    let mut boxes: BTreeMap<&str, [f64; 4]> = BTreeMap::new();
    let (mut y, mut drawn) = (8.0, String::new());
    for height in (0..=top).rev() {
        let mut row: Vec<&str> = heights.iter().filter(|(_, own)| **own == height).map(|(module, _)| *module).collect();
        // Centered below its users, so that arrows are short.
        let center = |module: &str| {
            let users = arrows.iter().filter(|(_, used)| used.contains(module));
            let centers = users.filter_map(|(user, _)| boxes.get(&**user)).map(|[x, _, width, _]| x + width / 2.0);
            let centers: Vec<f64> = centers.collect();
            centers.iter().sum::<f64>() / centers.len().max(1) as f64
        };
        row.sort_by(|a, b| center(a).total_cmp(&center(b)).then(a.cmp(b)));
        let width = (WIDTH - GAP * (row.len() - 1) as f64) / row.len() as f64;
        let listed = row.iter().map(|module| {
            let Some(arrows) = inside.get(&vec![(*module).to_owned()]) else { return Vec::new() };
            let own = floors_of(arrows);
            let mut names: Vec<&str> = arrows.keys().map(|name| &**name).collect();
            names.sort_by_key(|name| (std::cmp::Reverse(own[name]), *name));
            lines(&names, width - 2.0 * GAP)
        });
        let listed: Vec<Vec<String>> = listed.collect();
        let tall = 28.0 + LINE * listed.iter().map(Vec::len).max().unwrap_or(0) as f64;
        for (index, (module, lines)) in row.iter().zip(&listed).enumerate() {
            let x = index as f64 * (width + GAP);
            boxes.insert(module, [x, y, width, tall]);
            drawn += &format!("<rect x=\"{x:.0}\" y=\"{y:.0}\" width=\"{width:.0}\" height=\"{tall:.0}\" rx=\"4\"/>");
            drawn += &format!("<text class=\"title\" x=\"{:.0}\" y=\"{:.0}\">{module}</text>", x + GAP, y + 19.0);
            for (line, text) in lines.iter().enumerate() {
                let y = y + 19.0 + LINE * (line + 1) as f64;
                drawn += &format!("<text xml:space=\"preserve\" x=\"{:.0}\" y=\"{y:.0}\">{text}</text>", x + GAP);
            }
        }
        y += tall + BETWEEN;
    }
    let uses = direct(arrows, &heights);
    for (from, to) in &uses {
        let ([x1, y1, width1, tall], [x2, y2, width2, _]) = (boxes[from], boxes[to]);
        // Spreads the arrows of a box over its edge.
        let spread = |x: f64, width: f64, end: usize, at: &str, other: &str| {
            let ends = uses.iter().map(|(from, to)| [*from, *to]).filter(|ends| ends[end] == at);
            let mut others: Vec<&str> = ends.map(|ends| ends[1 - end]).collect();
            others.sort_by(|a, b| boxes[a][0].total_cmp(&boxes[b][0]).then(a.cmp(b)));
            let place = others.iter().position(|own| *own == other).unwrap_or(0) + 1;
            x + width * place as f64 / (others.len() + 1) as f64
        };
        let (x1, x2) = (spread(x1, width1, 0, from, to), spread(x2, width2, 1, to, from));
        drawn += &format!("<path d=\"M{x1:.0} {:.0}L{x2:.0} {:.0}\" marker-end=\"url(#end)\"/>", y1 + tall, y2 - 3.0);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-2 0 {:.0} {:.0}\"><style>\
         text {{ font: 11px system-ui, sans-serif; fill: #8b9198; }} .title {{ font-size: 13px; fill: #57606a; }} \
         rect {{ fill: #8b919814; stroke: #8b919888; }} path {{ stroke: #2f6fde; fill: none; }} marker path {{ fill: \
         #2f6fde; }}\
         </style><defs><marker id=\"end\" viewBox=\"0 0 6 6\" refX=\"5\" refY=\"3\" markerWidth=\"6\" \
         markerHeight=\"6\" \
         orient=\"auto\"><path d=\"M0 0L6 3L0 6z\"/></marker></defs>{drawn}</svg>\n",
        WIDTH + 4.0,
        y - BETWEEN + 8.0
    )
}
