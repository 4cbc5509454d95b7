//! `precast plan generate`: what a generation takes, and the least time of its steps.

use std::fmt::{self, Display, Formatter, from_fn};

use precast_kernels::Arch;
use precast_plan::decoding::{BUCKETS, MOST_SLOTS, decode_phase};
use precast_plan::estimate::{decode_bytes, decode_seconds};
use precast_plan::{
    Adapters, DecodeRequest, GenerationPlan, MemoryTable, Precision, Sampling, Slots, Student, human_bytes,
};
use precast_runtime::Rows;
use precast_system::count;
use serde::Serialize;
use serde_json::{Value, json};

use super::answer::verdict;
use super::kernels::{Kernels, Missing};
use super::report::{PhaseCount, phases};
use super::{Detail, Target};
use crate::base::record_text::display;
use crate::device::fit::{check_stored, fit};
use crate::device::frozen::{Frozen, FrozenRequest};
use crate::device::host_memory::HostMemory;
use crate::device::memory::{Memory, Takes};
use crate::device::tuning;
use crate::device::unfit::{Remedy, Unfit};
use crate::inputs::adapter::Adapter;
use crate::inputs::checkpoint;
use crate::options::{SlotsUnfit, WeightFormat};
use crate::programs::generate::{DecodingOptions, refuse_cublas, too_many};
use crate::run::failure::Failure;

/// Memory, kernels and steps of a generation.
#[derive(Debug, Serialize)]
pub struct GenerationReport {
    #[serde(serialize_with = "display")]
    arch: Arch,
    #[serde(serialize_with = "display")]
    precision: Precision,
    /// Form of the weights: any but `auto`.
    format: WeightFormat,
    slots: u32,
    /// Tokens of each slot.
    seq_len: u32,
    memory: MemoryTable,
    host_memory: HostMemory,
    /// The memory that it is compared with, if it is with any.
    room: Option<Memory>,
    fits: Option<bool>,
    /// Most slots that fit where these do not; 0 where not even one does.
    most_slots: Option<u32>,
    #[serde(skip)]
    takes: Takes,
    #[serde(skip)]
    phases: Vec<PhaseCount>,
    steps: Vec<DecodeStep>,
    /// Whose figures the estimates are by; none where the device's rates are not known.
    peak: Option<&'static str>,
    kernels: Kernels,
    /// None where all of them are there.
    missing_kernels: Option<Missing>,
}

/// A step of a phase, each of its rows half-way through its slot.
#[derive(Debug, Serialize)]
struct DecodeStep {
    rows: u32,
    launches: usize,
    /// Bytes of weights, keys and values that it must read.
    bytes: u64,
    /// The least time of that and of its arithmetic, seconds: an estimate by peak figures.
    seconds: Option<f64>,
    tokens_per_s: Option<f64>,
}

impl GenerationReport {
    /// Lowers a generation into slots of so many tokens for a target.
    ///
    /// # Errors
    /// [`Failure`] where the model cannot generate so. What does not fit is in the report: [`Self::check`] refuses it.
    pub fn of(decoding: &DecodingOptions, seq_len: u32, target: &Target) -> Result<Self, Failure> {
        let DecodingOptions { forward, slots } = decoding;
        refuse_cublas(forward.gemm)?;
        let (model, stored) = checkpoint::shape(&forward.model)?;
        check_stored("--format", forward.format, &stored)?;
        let adapter = forward.adapter.as_ref().map(|path| Adapter::open(path, (&forward.model, &model))).transpose()?;
        let adapters = &adapter.as_ref().map_or_else(Adapters::none, |adapter| adapter.layout.adapters());
        let Rows { launches: arch, code } = target.rows;
        let lower = |student: Student<'_>, count, arch| {
            // Neither changes what it takes.
            let request = DecodeRequest { slots: Slots { count, seq_len }, sampling: Sampling::PLAIN };
            GenerationPlan::new(student, request, forward.precision(), arch)
        };
        let request = Frozen {
            forward,
            config: &model,
            stored: &stored,
            adapters,
            arch,
            data: &[],
            request: FrozenRequest {
                lower: &lower,
                slots: Some((*slots, MOST_SLOTS.into())),
                what: &|unfit| too_many(unfit, seq_len),
            },
        };
        let mut fit = fit(&request, target.memory.as_ref())?;
        fit.change(|plan| match &target.device {
            Some(device) => tuning::select(&mut plan.plan, device, None),
            None => tuning::select_for_row(&mut plan.plan, None),
        })?;
        let plan = &fit.plan;
        let kernels = Kernels::of(&forward.target.kernels, code, &plan.plan)?;
        let models = vec![forward.model.display().to_string()];
        let peak = target.peak();
        Ok(Self {
            arch,
            precision: forward.precision(),
            format: fit.choice.format,
            slots: plan.decoding.slots.count,
            seq_len,
            memory: MemoryTable::of(&plan.plan),
            host_memory: fit.host.clone(),
            room: target.memory.clone(),
            fits: target.memory.as_ref().map(|_| fit.is_within()),
            most_slots: fit.remedy.as_ref().and_then(|remedy| remedy.slots).map(|unfit| unfit.most),
            takes: fit.takes,
            phases: phases(&plan.plan),
            steps: BUCKETS
                .into_iter()
                .filter(|rows| *rows <= plan.decoding.prefill.few_rows)
                .map(|rows| DecodeStep::of(plan, rows, target))
                .collect(),
            peak: peak.map(|peak| peak.device),
            missing_kernels: Missing::of(&forward.target.kernels, models, code, &kernels),
            kernels,
        })
    }

    /// Returns the fields by name, and the answer under the names that a run's plan has.
    pub fn to_json(&self) -> Value {
        let mut json = serde_json::to_value(self).expect("plain data serializes");
        json["memory_bytes"] = json!(self.memory.total_bytes);
        json["limit_bytes"] = json!(self.room.as_ref().map(|memory| memory.free));
        json
    }

    /// Refuses a generation that does not fit.
    ///
    /// # Errors
    /// [`crate::device::DeviceError::Memory`], with the most slots that do.
    pub fn check(&self) -> Result<(), Failure> {
        let Some((memory, most)) = self.room.clone().zip(self.most_slots) else { return Ok(()) };
        let what = too_many(SlotsUnfit { asked: self.slots, most }, self.seq_len);
        let remedy = Remedy { what, ..Remedy::default() };
        Err(Failure::Device(Unfit { takes: self.takes, memory, table: String::new(), remedy }.into()))
    }

    /// Refuses one whose kernels are not all there.
    ///
    /// # Errors
    /// [`Failure::Kernels`], with the command that builds them.
    pub fn check_kernels(&self) -> Result<(), Failure> {
        self.missing_kernels.as_ref().map_or(Ok(()), |missing| Err(missing.refusal()))
    }

    /// Formats it for people: the answer first, missing kernels last.
    pub fn text(&self, detail: Detail) -> impl Display {
        from_fn(move |f| {
            self.memory_text(f)?;
            match detail {
                Detail::Brief => writeln!(f, "{}, which --verbose lists", count(self.kernels.list.len(), "kernel"))?,
                Detail::Full => {
                    self.phases.iter().try_for_each(|phase| writeln!(f, "{phase}"))?;
                    write!(f, "\n{}", self.kernels)?;
                }
            }
            self.steps_text(f)?;
            self.missing_kernels.iter().try_for_each(|missing| write!(f, "\n\n{missing}"))
        })
    }

    fn memory_text(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { slots, seq_len, precision, takes, .. } = self;
        match &self.room {
            Some(memory) => writeln!(f, "{}\n", verdict(self.most_slots.is_none(), *takes, memory))?,
            None => {
                let takes = human_bytes(takes.bytes);
                writeln!(f, "takes {takes} of device memory: --memory SIZE or --card NAME asks whether that fits\n")?;
            }
        }
        let arch = self.arch.argument();
        writeln!(
            f,
            "memory on {arch}, {slots} slots of {seq_len} tokens, {precision}, --format {}:\n{}",
            self.format, self.memory
        )?;
        writeln!(f, "host memory, at most:\n{}\n", self.host_memory)
    }

    fn steps_text(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\na step, each row half-way through its slot:")?;
        write!(f, "  rows  launches  reads, GB  at least, ms  at most, new tokens/s")?;
        for DecodeStep { rows, launches, bytes, seconds, tokens_per_s } in &self.steps {
            let ms = seconds.map_or("-".to_owned(), |seconds| format!("{:.2}", seconds * 1e3));
            let rate = tokens_per_s.map_or("-".to_owned(), |rate| format!("{rate:.0}"));
            write!(f, "\n{rows:>6} {launches:>9} {:>10.2} {ms:>13} {rate:>22}", *bytes as f64 / 1e9)?;
        }
        match self.peak {
            Some(device) => write!(f, "\nestimate (roofline, not measured), by the peak figures of a {device}"),
            None => write!(f, "\nno estimate: no peak figures are known of this device"),
        }
    }
}

impl DecodeStep {
    fn of(plan: &GenerationPlan, rows: u32, target: &Target) -> Self {
        let length = plan.decoding.slots.seq_len / 2;
        let seconds = target.peak().map(|peak| decode_seconds(plan, (rows, length), &peak));
        Self {
            rows,
            launches: plan.plan.phase(&decode_phase(rows)).nodes.len(),
            bytes: decode_bytes(plan, rows, length),
            seconds,
            tokens_per_s: seconds.map(|seconds| f64::from(rows) / seconds),
        }
    }
}
