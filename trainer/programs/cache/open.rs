//! Chooses where a teacher's weights are: on the device, or two layers of them at a time.

use precast_plan::{Formats, HiddenPlan, Plan, PlanError, SweepPlan, human_bytes};
use precast_runtime::Device;

use super::engine::{Engine, Opening};
use super::pass::{Pass, Room};
use super::resident::Resident;
use super::sweep::Sweep;
use crate::device::weight_format::{Choice, Chosen, KERNELS_BYTES};
use crate::device::{self, DeviceError, one_memory};
use crate::inputs::checkpoint::Weights;
use crate::options::WeightFormat;

/// A plan, and a note on why it is so.
pub(super) enum Planned {
    Resident(Box<HiddenPlan>, Option<String>),
    Sweep(Box<Pass>, String),
}

impl Planned {
    pub fn plan(&self) -> &Plan {
        match self {
            Self::Resident(plan, _) => &plan.plan,
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
    /// Plans for as many sequences as are to be computed: the teacher resident where it fits into the memory that there is or may be
    /// taken, else swept.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn plan(&self, sequences: u64) -> Result<Planned, DeviceError> {
        let memory = self.memory();
        match self.resident(memory) {
            Ok(Chosen { plan, note, .. }) if self.is_allowed(&plan) => Ok(Planned::Resident(Box::new(plan), note)),
            Ok(_) | Err(DeviceError::Memory { .. } | DeviceError::OneMemory { .. } | DeviceError::Unfit(_)) => {
                let pass = self.sweep(sequences, memory)?;
                let note = format!(
                    "the teacher does not fit into {}: it is swept through {}, layer after layer, {}",
                    human_bytes(memory.unwrap_or(self.driver.device().free_bytes)),
                    human_bytes(pass.plan.plan.arena_bytes),
                    pass.described(self.request.shape.batch_size)
                );
                Ok(Planned::Sweep(Box::new(pass), note))
            }
            Err(error) => Err(error),
        }
    }

    /// Loads kernels and seals what is planned.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn open(self, planned: Planned) -> Result<Box<dyn Engine + 'a>, DeviceError> {
        Ok(match planned {
            Planned::Resident(plan, _) => Box::new(Resident::open(self, *plan)?),
            Planned::Sweep(pass, _) => Box::new(Sweep::open(self, *pass)?),
        })
    }

    /// Returns the memory that a plan may take, if it is bounded: that of the simulated GPU is only where it is asked to be.
    fn memory(&self) -> Option<u64> {
        let device = self.driver.device();
        let free = device.compute_capability.map(|_| device.free_bytes.saturating_sub(KERNELS_BYTES));
        self.request.memory.into_iter().chain(free).min()
    }

    /// Returns true if a plan fits into what a plan may take, beside what the host takes of that where it shares it.
    fn is_allowed(&self, plan: &HiddenPlan) -> bool {
        self.memory().is_none_or(|most| plan.plan.arena_bytes + self.host_bytes(&plan.plan, &plan.model, 0) <= most)
    }

    /// Returns the bytes that the host takes of memory which it shares with the device, 0 where each has its own.
    fn host_bytes(&self, plan: &Plan, model: &precast_plan::Resident, spilled: u64) -> u64 {
        one_memory::host_bytes(self.driver.device(), || self.host(plan, model, spilled))
    }

    /// Lowers the teacher resident, in the format that is asked for or, of `auto`, the first that fits.
    fn resident(&self, memory: Option<u64>) -> Result<Chosen<HiddenPlan>, DeviceError> {
        let device = self.driver.device();
        let arch = device::rows(device)?.launches;
        let free_bytes = memory.map_or(device.free_bytes, |memory| memory.saturating_add(KERNELS_BYTES));
        let device = &Device { free_bytes: free_bytes.min(device.free_bytes), ..device.clone() };
        let formats = self.teacher.formats();
        let choice = Choice { flag: "--teacher-format", asked: self.request.teacher_format, formats: &formats };
        let lower = |formats: &Formats| {
            let results = (self.request.precision, self.top());
            HiddenPlan::new((self.teacher.config(), formats), self.request.batch(), results, arch)
        };
        choice.make(device, |plan: &HiddenPlan| self.host_bytes(&plan.plan, &plan.model, 0), lower)
    }

    /// Lowers a pass of a sweep.
    fn sweep(&self, sequences: u64, memory: Option<u64>) -> Result<Pass, DeviceError> {
        let arch = device::rows(self.driver.device())?.launches;
        let formats = match self.request.teacher_format {
            WeightFormat::Bf16 => Formats::dense(),
            _ => self.teacher.formats(),
        };
        let lower = |batches: u64, places: usize| -> Result<SweepPlan, PlanError> {
            let shape = (self.request.batch(), (batches as u32, places));
            SweepPlan::new((self.teacher.config(), &formats), shape, (self.request.precision, self.top()), arch)
        };
        let all = sequences.div_ceil(u64::from(self.request.shape.batch_size)).div_ceil(self.ranks.into()).max(1);
        let one = lower(1, 1)?;
        let device =
            memory.map(|memory| memory.saturating_sub(self.host_bytes(&one.plan, &one.first, self.request.spill)));
        if let Some(free_bytes) = device.filter(|device| *device < one.plan.arena_bytes) {
            let device = Device { free_bytes, ..self.driver.device().clone() };
            let less = if self.request.spill > 0 { " or less --spill" } else { "" };
            let what = format!(
                "the teacher does not fit, and two of its layers with a batch of sequences do not either: use a smaller --batch-size, or \
                 give more --memory{less}"
            );
            return Err(DeviceError::memory(&device, &one.plan, one.plan.arena_bytes, String::new()).unfit(&what));
        }
        Ok(Pass::new(all, &Room { device, spill: self.request.spill }, &one, lower)?)
    }
}
