//! Device memory by category: the table that people read before a run starts.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use crate::human_bytes;
use crate::plan::Plan;
use crate::plan::buffer::{Buffer, Category, Lifetime};

/// Bytes of a plan by category.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryTable {
    /// Categories with bytes.
    pub rows: Vec<MemoryRow>,
    /// Buffers of stages, in the memory of activations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<MemoryRow>,
    /// Total: the arena, and cuBLASLt's own memory.
    pub total_bytes: u64,
}

/// One row of a [`MemoryTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryRow {
    /// Purpose of the buffers.
    pub category: Category,
    /// Size of these buffers, bytes.
    pub bytes: u64,
}

impl MemoryTable {
    /// Tabulates a plan. Activations are the arena without the persistent buffers.
    pub fn of(plan: &Plan) -> Self {
        let named = plan.buffers.iter().map(|buffer| buffer.category);
        let all: BTreeSet<Category> = named.chain([Category::CUBLAS, Category::ACTIVATIONS]).collect();
        let of = |lifetime| {
            all.iter().map(move |category| {
                let buffers = plan.buffers.iter().filter(|b| b.lifetime == lifetime && b.category == *category);
                MemoryRow { category: *category, bytes: buffers.map(Buffer::reserved_bytes).sum() }
            })
        };
        let mut rows: Vec<MemoryRow> = of(Lifetime::Persistent).collect();
        let shared = of(Lifetime::Stage).filter(|row| row.bytes > 0).collect();
        let held: u64 = rows.iter().map(|row| row.bytes).sum();
        for row in &mut rows {
            match row.category {
                Category::ACTIVATIONS => row.bytes += plan.arena_bytes - held,
                Category::CUBLAS => row.bytes += plan.device_bytes() - plan.arena_bytes,
                _ => {}
            }
        }
        rows.retain(|row| row.bytes > 0);
        Self { rows, shared, total_bytes: plan.device_bytes() }
    }
}

impl fmt::Display for MemoryTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            writeln!(f, "  {:<18} {:>12}  {:>16} bytes", row.category.name, human_bytes(row.bytes), row.bytes)?;
        }
        for row in &self.shared {
            let name = format!("- {}", row.category.name);
            writeln!(f, "  {name:<18} {:>12}  {:>16} bytes of these", human_bytes(row.bytes), row.bytes)?;
        }
        write!(f, "  {:<18} {:>12}  {:>16} bytes", "total", human_bytes(self.total_bytes), self.total_bytes)
    }
}
