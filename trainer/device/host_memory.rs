//! Estimate of the host memory that a run takes, from its plan and the sizes of its data files.

use std::fmt;
use std::path::PathBuf;

use precast_kernels::{Arch, Format};
use precast_plan::training::TeacherBuffers;
use precast_plan::{Plan, Resident, Tensor, TrainingPlan, human_bytes};
use precast_runtime::cuda::STAGE_SLOTS;
use precast_runtime::{Device, STAGE_BYTES};
use serde::Serialize;

use crate::inputs::checkpoint::{Access, PART_ELEMENTS};
use crate::inputs::{data, teacher_cache};

/// Overhead of direct reads, bytes, besides the bytes read.
const PAGES_BYTES: u64 = 64 << 10;

/// Ownership of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceMemory {
    Own,
    /// The host's, too.
    Shared,
}

impl DeviceMemory {
    pub fn of(device: &Device) -> Self {
        if device.has_one_memory() { Self::Shared } else { Self::Own }
    }

    /// Chooses how weights are read for a device: past the page cache, and never from a mapped file, where that takes
    /// the device's memory.
    pub fn access(device: &Device) -> Access {
        if device.integrated { Access::Direct } else { Access::Map }
    }
}

/// Bytes of host memory by what they are for. Weights are not among them: model files are mapped, and what is read of
/// them is page cache that the system takes back, or read part by part where host and device have one memory; models
/// and checkpoints are written part by part.
#[derive(Clone, Debug, Serialize)]
pub struct HostMemory {
    /// Rows with bytes.
    pub rows: Vec<HostMemoryRow>,
    /// All of them.
    pub total_bytes: u64,
    #[serde(skip)]
    memory: DeviceMemory,
}

/// One row of [`HostMemory`].
#[derive(Clone, Debug, Serialize)]
pub struct HostMemoryRow {
    pub what: &'static str,
    /// Upper bound of what it takes.
    pub bytes: u64,
}

impl HostMemory {
    /// Returns the host memory that a run of this plan takes, data included.
    pub fn of(plan: &TrainingPlan, data: &[PathBuf], memory: DeviceMemory) -> Self {
        let teachers = plan.teachers.iter().filter_map(TeacherBuffers::model);
        let models: Vec<&Resident> = teachers.chain([&plan.student]).collect();
        // Two arrive from the device while one is written.
        let checkpoint = ("parts of a checkpoint", 3 * STAGE_BYTES);
        // Data that are read ahead, kept and shuffled, however large the data are.
        let data_bytes = of_data(data).min(data::MOST_BYTES);
        // Read ahead, and laid out for a micro-batch.
        let hidden = plan
            .teachers
            .iter()
            .filter_map(TeacherBuffers::cached)
            .map(|cached| teacher_cache::MOST_BYTES + cached.inputs().into_iter().map(Tensor::bytes).sum::<u64>());
        let hidden = hidden.sum();
        let parts = [checkpoint, ("rows of the cache", hidden)];
        Self::of_models(&plan.plan, &models, &parts, data_bytes, memory)
    }

    /// Estimates the host memory of a program that trains nothing, and keeps a part of what a model computes.
    pub fn of_forward(
        plan: &Plan,
        model: &Resident,
        kept: (&'static str, u64),
        data: &[PathBuf],
        memory: DeviceMemory,
    ) -> Self {
        Self::of_models(plan, &[model], &[kept], of_data(data), memory)
    }

    /// Estimates the host memory beside a plan without a model.
    #[cfg(test)]
    pub(crate) fn of_parts(plan: &Plan, parts: &[(&'static str, u64)], memory: DeviceMemory) -> Self {
        Self::of_models(plan, &[], parts, 0, memory)
    }

    fn of_models(
        plan: &Plan,
        models: &[&Resident],
        parts: &[(&'static str, u64)],
        data_bytes: u64,
        memory: DeviceMemory,
    ) -> Self {
        let device = match plan.arch {
            Arch::Sim => ("simulated device memory", plan.arena_bytes),
            _ => ("pinned slots for copies", STAGE_SLOTS as u64 * STAGE_BYTES),
        };
        let conversion = |tensor: Tensor| match tensor.format {
            // A part as f32, and rounded to bf16: where a file holds another dtype than the run's.
            Format::Dense(_) => tensor.elems.min(PART_ELEMENTS) * (4 + 2),
            // In another order of rows.
            Format::Block(_) => tensor.bytes(),
        };
        let sent = |model: &'_ &Resident| -> Vec<Tensor> {
            let staged = model.staged.iter().flat_map(|staged| &staged.parts).map(|(_, tensor)| *tensor);
            model.weights.list().map(|(_, weight)| weight.tensor).chain(staged).collect()
        };
        let conversions = models.iter().flat_map(sent);
        let conversion = match memory {
            // As it is read, as f32, and rounded to bf16; hidden pages of direct reads too.
            DeviceMemory::Shared => ("parts of a model's file", PART_ELEMENTS * (4 + 4 + 2) + PAGES_BYTES),
            DeviceMemory::Own => ("conversion of weights", conversions.map(conversion).max().unwrap_or(0)),
        };
        let rows = [device, conversion].into_iter().chain(parts.iter().copied()).chain([("training data", data_bytes)]);
        let rows = rows.map(|(what, bytes)| HostMemoryRow { what, bytes });
        let rows: Vec<HostMemoryRow> = rows.filter(|row| row.bytes > 0).collect();
        Self { total_bytes: rows.iter().map(|row| row.bytes).sum(), rows, memory }
    }
}

/// Text is there as bytes and as strings, and its tokens, of four bytes for at least one of text each, as those of
/// documents and as chunks. A file of token ids is there twice.
fn of_data(paths: &[PathBuf]) -> u64 {
    let of = |path: &PathBuf| {
        data::bytes(data::path_of(path))
            * if path.extension().is_some_and(|extension| extension == "bin") { 2 } else { 10 }
    };
    paths.iter().map(of).sum()
}

impl fmt::Display for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows.iter().map(|row| (row.what, row.bytes)).chain([("total", self.total_bytes)]);
        for (what, bytes) in rows {
            writeln!(f, "  {what:<32} {:>12}  {bytes:>16} bytes", human_bytes(bytes))?;
        }
        match self.memory {
            DeviceMemory::Shared => write!(f, "  model files are read part by part, past the page cache"),
            DeviceMemory::Own => {
                write!(f, "  model files are mapped: what is read of them is page cache that the system takes back")
            }
        }
    }
}
