//! What a run takes of the host's memory, from its plan and the sizes of its data files.

use std::fmt;
use std::path::{Path, PathBuf};

use precast_kernels::{Arch, Format};
use precast_plan::memory::human_bytes;
use precast_plan::{Tensor, TrainingPlan};
use precast_runtime::STAGE_BYTES;
use precast_runtime::cuda::STAGE_SLOTS;
use serde::Serialize;

/// Bytes of host memory by what they are for. Weights are not among them: model files are mapped, and what is read of them is
/// page cache that the system takes back; models and checkpoints are written part by part.
#[derive(Clone, Debug, Serialize)]
pub struct HostMemory {
    /// Rows with bytes.
    pub rows: Vec<HostMemoryRow>,
    /// All of them.
    pub total_bytes: u64,
}

/// One row of [`HostMemory`].
#[derive(Clone, Debug, Serialize)]
pub struct HostMemoryRow {
    pub what: &'static str,
    /// How much, at most.
    pub bytes: u64,
}

impl HostMemory {
    /// Of a run by a plan on these data.
    pub fn of(plan: &TrainingPlan, data: &[PathBuf]) -> Self {
        let device = match plan.plan.arch {
            Arch::Sim => ("simulated device memory", plan.plan.arena_bytes),
            _ => ("pinned slots for copies", STAGE_SLOTS as u64 * STAGE_BYTES),
        };
        let models = plan.teacher.iter().chain([&plan.student]);
        let conversion = |tensor: Tensor| match tensor.format {
            // As f32, and rounded to bf16: where a file holds another dtype than the run's.
            Format::Dense(_) => tensor.elems * (4 + 2),
            // In another order of rows.
            Format::Block(_) => tensor.bytes(),
        };
        let conversions = models.flat_map(|model| model.weights.list().map(|(_, weight)| conversion(weight.tensor)));
        let rows = [
            device,
            ("conversion of the largest tensor", conversions.max().unwrap_or(0)),
            // Two arrive from the device while one is written.
            ("parts of a checkpoint", 3 * STAGE_BYTES),
            ("training data", data.iter().map(|path| of_data(path)).sum()),
        ];
        let rows = rows.map(|(what, bytes)| HostMemoryRow { what, bytes });
        let rows: Vec<HostMemoryRow> = rows.into_iter().filter(|row| row.bytes > 0).collect();
        Self { total_bytes: rows.iter().map(|row| row.bytes).sum(), rows }
    }
}

/// A file of token ids is there twice while it is read: as bytes and as chunks. Text is there as bytes and as strings, and
/// its tokens, of four bytes for at least one of text each, as those of documents and as chunks.
fn of_data(path: &Path) -> u64 {
    let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    bytes * if path.extension().is_some_and(|extension| extension == "bin") { 2 } else { 10 }
}

impl fmt::Display for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows.iter().map(|row| (row.what, row.bytes)).chain([("total", self.total_bytes)]);
        for (what, bytes) in rows {
            writeln!(f, "  {what:<32} {:>12}  {bytes:>16} bytes", human_bytes(bytes))?;
        }
        write!(f, "  model files are mapped: what is read of them is page cache that the system takes back")
    }
}
