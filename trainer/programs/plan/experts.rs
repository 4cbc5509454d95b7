//! Rows and tiles of a teacher's experts.

use std::fmt;

use precast_kernels::moe::EXPERT_TILE;
use precast_plan::{Routes, TrainingPlan};
use serde::Serialize;

/// Rows of the experts of a teacher's layer, and tiles that they take at most.
#[derive(Debug, Serialize)]
pub(super) struct ExpertTiles {
    rows: u64,
    most_tiles: u64,
    rows_of_a_tile: u32,
    /// Experts that are dequantized at a time, if they are stored in blocks and not all are.
    at_a_time: Option<u32>,
}

impl ExpertTiles {
    /// Returns those of each teacher with experts.
    pub fn of(plan: &TrainingPlan) -> Vec<Self> {
        let routes = plan.teachers.iter().filter_map(|teacher| teacher.model()?.routes);
        let of = |routes: Routes| Self {
            rows: routes.rows(),
            most_tiles: routes.most_tiles(),
            rows_of_a_tile: EXPERT_TILE,
            at_a_time: routes.at_a_time(),
        };
        routes.map(of).collect()
    }
}

impl fmt::Display for ExpertTiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, most_tiles, rows_of_a_tile, at_a_time } = self;
        write!(f, "experts: {rows} rows a layer, in at most {most_tiles} tiles of {rows_of_a_tile}")?;
        at_a_time.map_or(Ok(()), |experts| write!(f, ", {experts} experts at a time"))
    }
}
