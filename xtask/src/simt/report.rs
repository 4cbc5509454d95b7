//! `cargo xtask simt --report`: memory traffic of kernels, on architectures without hardware here.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use precast_aot::compile::Task;
use precast_kernels::Arch;
use precast_simt::{Cost, Count, Counted, Simt, Traffic, count};
use rayon::prelude::*;

use super::check::{COUNTED, OBJECTS, tasks};
use crate::setup;

/// Seed of the random inputs: token ids determine an embedding's traffic.
const SEED: u64 = 1;

/// A line is named if it wastes at least one in this many of its kernel's bytes or wavefronts.
const NAMED: u64 = 10;

const HEAD: &str = "\
Global memory: 32-byte sectors a request of a warp, and how much of them its lanes asked for. Shared memory: wavefronts
over those that it would take without bank conflicts. All samples of a kernel together: they are small and ragged, and
some have rows that are no whole vectors, or do not begin with a sector. Under a kernel, the lines where it moves most
in vain.
";

/// Prints the traffic of every (key, variant) whose name contains `text`, worst first.
pub fn report(text: &str) -> Result<()> {
    let tasks = tasks(text, &COUNTED)?;
    setup::debian(&["g++"])?;
    let simt = Simt::new(Path::new("target/simt"), Path::new(OBJECTS))?;
    let rows: Vec<Result<(Task, Row)>> = tasks
        .into_par_iter()
        .map(|task| {
            let counted = count(&simt, &task.pair, task.arch, SEED)?;
            Ok((task, Row::new(&counted)))
        })
        .collect();
    // Architectures with equal rows are merged.
    let mut table: BTreeMap<(Row, String), Vec<Arch>> = BTreeMap::new();
    for row in rows {
        let (task, row) = row?;
        table.entry((row, task.pair.to_string())).or_default().push(task.arch);
    }
    println!("{HEAD}\n{}  kernel", Traffic::ALL.map(|traffic| format!("{:>11}", name(traffic))).concat());
    for ((row, pair), archs) in &table {
        let archs: Vec<String> = archs.iter().map(Arch::to_string).collect();
        println!("{}  {pair} {}{}", row.cells, archs.join(" "), row.lines);
    }
    Ok(())
}

/// A kernel's row, ordered by the needed share of its traffic.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    /// Needed share of global or of shared memory's traffic, whichever is less; in thousandths.
    needed: u64,
    cells: String,
    lines: String,
}

impl Row {
    fn new(counted: &Counted) -> Self {
        let instructions = counted.instructions();
        let of = |traffic: Traffic| instructions.iter().filter(move |count| count.traffic == traffic);
        let cells = Traffic::ALL.map(|traffic| cell(traffic, of(traffic).map(|count| count.cost).sum()));
        let mut row = Self { needed: 1000, cells: cells.concat(), lines: String::new() };
        for global in [true, false] {
            let counts: Vec<&Count> = instructions.iter().filter(|count| count.traffic.is_global() == global).collect();
            let moved: u64 = counts.iter().map(|count| count.traffic.unit() * count.cost.moved).sum();
            let vain: u64 = counts.iter().map(|count| in_vain(count)).sum();
            row.needed = row.needed.min(1000 - 1000 * vain / moved.max(1));
            for count in counts.into_iter().filter(|count| in_vain(count) * NAMED >= moved.max(1)) {
                let (share, line) = (100 * in_vain(count) / moved, counted.line(count));
                let what = if global { "bytes" } else { "wavefronts" };
                row.lines += &format!("\n{share:>12}% of its {what} in vain: {line}");
            }
        }
        row
    }
}

/// Returns the bytes or wavefronts moved but not requested.
fn in_vain(count: &Count) -> u64 {
    count.traffic.unit() * count.cost.moved - count.cost.needed
}

/// Formats the traffic of a kernel's instructions of one kind.
fn cell(traffic: Traffic, Cost { requests, moved, needed }: Cost) -> String {
    let over = |a: u64, b: u64| a as f64 / b as f64;
    let text = if requests == 0 {
        String::new()
    } else if traffic.is_global() {
        format!("{:.1} {:>3.0}%", over(moved, requests), 100.0 * over(needed, traffic.unit() * moved))
    } else {
        format!("{:.2}", over(moved, needed))
    };
    format!("{text:>11}")
}

/// Returns the heading of a column.
fn name(traffic: Traffic) -> &'static str {
    match traffic {
        Traffic::Load => "loads",
        Traffic::Store => "stores",
        Traffic::Copy => "copies",
        Traffic::SharedLoad => "sh. loads",
        Traffic::SharedStore => "sh. stores",
        Traffic::LoadMatrix => "ldmatrix",
    }
}
