//! Chooses where a teacher's weights are: on the device, or two layers of them at a time.

use precast_kernels::Arch;
use precast_plan::{Formats, HiddenPlan, Plan, PlanError, SweepPlan, human_bytes};

use super::engine::{Engine, Opening};
use super::pass::{Pass, Room};
use super::resident::Resident;
use super::sweep::Sweep;
use crate::device::fit::{Choice, Fit, Lower, check_stored, fit, formats, forms, note_form};
use crate::device::host_memory::{DeviceMemory, HostMemory};
use crate::device::memory::Memory;
use crate::device::unfit::Remedy;
use crate::device::{self, DeviceError};
use crate::inputs::checkpoint::Weights;
use crate::inputs::data::Places;
use crate::options::WeightFormat;

/// A plan, and a note on why it is so.
pub(super) enum Planned {
    Resident(Box<Fit<HiddenPlan>>, Option<String>),
    Sweep(Box<Pass>, String),
}

impl Planned {
    pub fn plan(&self) -> &Plan {
        match self {
            Self::Resident(fit, _) => &fit.plan.plan,
            Self::Sweep(pass, _) => &pass.plan.plan,
        }
    }

    pub fn note(&self) -> Option<&str> {
        match self {
            Self::Resident(_, note) => note.as_deref(),
            Self::Sweep(_, note) => Some(note),
        }
    }
}

impl<'a> Opening<'a> {
    /// Plans for sequences that are to be computed, and take so many places each: the teacher resident where it fits
    /// into the memory that there is or may be taken, else swept.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn plan(&self, lengths: &[usize]) -> Result<Planned, DeviceError> {
        let (asked, stored) = (self.request.teacher_format, &self.teacher.formats());
        check_stored("--teacher-format", asked, stored)?;
        let arch = device::rows(self.driver.device())?.launches;
        let resident = fit(&Whole { opening: self, stored, arch }, Some(&self.memory()))?;
        if resident.is_within() {
            let note = note_form(&resident, "--teacher-format", asked, stored);
            return Ok(Planned::Resident(Box::new(resident), note));
        }
        let pass = self.sweep(lengths, stored, arch)?;
        let note = format!(
            "the teacher does not fit into {}: it is swept through {}, layer after layer, {}",
            human_bytes(self.room(0)),
            human_bytes(pass.plan.plan.arena_bytes),
            pass.described()
        );
        Ok(Planned::Sweep(Box::new(pass), note))
    }

    /// Loads kernels and seals what is planned.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn open(self, planned: Planned) -> Result<Box<dyn Engine + 'a>, DeviceError> {
        Ok(match planned {
            Planned::Resident(fit, _) => Box::new(Resident::open(self, *fit)?),
            Planned::Sweep(pass, _) => Box::new(Sweep::open(self, *pass)?),
        })
    }

    /// Returns the memory that there is, or that may be taken besides kernels.
    fn memory(&self) -> Memory {
        let mut memory = Memory::of(self.driver.device());
        let most = self.request.memory.map(|most| most.saturating_add(memory.kernels));
        memory.free = most.unwrap_or(memory.free).min(memory.free);
        memory
    }

    /// Returns the bytes of it for a plan, beside so many of the host.
    fn room(&self, host_bytes: u64) -> u64 {
        let memory = self.memory();
        memory.free.saturating_sub(memory.kernels + host_bytes)
    }

    /// Compares the plan of a sweep that spills so many bytes.
    pub fn fit_sweep(&self, plan: SweepPlan, spilled: u64) -> Fit<SweepPlan> {
        let memory = self.memory();
        let host = self.host(&plan.plan, &plan.first, spilled, memory.owner);
        Fit::new(plan, Choice::of(self.request.teacher_format), host, Some(memory))
    }

    /// Lowers a pass of a sweep.
    fn sweep(&self, lengths: &[usize], stored: &Formats, arch: Arch) -> Result<Pass, DeviceError> {
        let formats = if self.request.teacher_format == WeightFormat::Bf16 { &Formats::dense() } else { stored };
        let of_micro @ Places { batch, seq_len, .. } = self.request.places();
        let lower = |batches: u64, places: usize| -> Result<SweepPlan, PlanError> {
            let shape = ((batch, seq_len), (batches as u32, places));
            SweepPlan::new((self.teacher.config(), formats), shape, (self.request.precision, self.top()), arch)
        };
        let micros = of_micro.divide_places(lengths.iter().map(|length| (*length, 0))).len() as u64;
        let all = micros.div_ceil(self.ranks.into()).max(1);
        let mut one = self.fit_sweep(lower(1, 1)?, self.request.spill);
        let less = if self.request.spill > 0 { " or less --spill" } else { "" };
        let what = format!(
            "the teacher does not fit, and two of its layers with a batch of sequences do not either: use a smaller \
            --batch-size, or \
             give more --memory{less}"
        );
        one.remedy = Some(Remedy { what, ..Remedy::default() });
        one.check()?;
        let room = Room { device: self.room(one.takes.host_bytes), spill: self.request.spill };
        Ok(Pass::new(all, &room, &one.plan, lower)?)
    }
}

/// A teacher that is on the device whole, as a request.
struct Whole<'a> {
    opening: &'a Opening<'a>,
    stored: &'a Formats,
    arch: Arch,
}

impl Lower for Whole<'_> {
    type Plan = HiddenPlan;

    fn choices(&self) -> Vec<Choice> {
        let forms = forms(self.opening.request.teacher_format, self.stored);
        forms.into_iter().map(Choice::of).collect()
    }

    fn lower(&self, choice: Choice) -> Result<HiddenPlan, PlanError> {
        let Opening { teacher, request, .. } = self.opening;
        let results = (request.precision, self.opening.top());
        let formats = formats(choice.format, Some(self.stored));
        let Places { batch, seq_len, .. } = request.places();
        HiddenPlan::new((teacher.config(), &formats), (batch, seq_len), results, self.arch)
    }

    fn host(&self, plan: &HiddenPlan, owner: DeviceMemory) -> HostMemory {
        self.opening.host(&plan.plan, &plan.model, 0, owner)
    }

    /// It is swept then.
    fn remedy(&self, _: &Fit<HiddenPlan>) -> Remedy {
        Remedy::default()
    }
}
