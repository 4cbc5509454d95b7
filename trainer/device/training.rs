//! Training runs as requests for a plan.

use std::borrow::Cow;

use itertools::iproduct;
use precast_kernels::Arch;
use precast_plan::{Formats, Objective, PlanError, Recipe, TrainingPlan};
use precast_runtime::Device;

use crate::base::notes::note;
use crate::device::DeviceError;
use crate::device::fit::{Choice, Fit, Lower, fit, forms, most_slots, note_form};
use crate::device::host_memory::{DeviceMemory, HostMemory};
use crate::device::memory::Memory;
use crate::device::shapes::Shapes;
use crate::device::unfit::Remedy;
use crate::options::{RunConfig, SlotChoice, SlotsUnfit, WeightFormat};

/// Tokens that a teacher computes at a time, at most: more make no GEMM faster, and take memory.
const MOST_TOKENS: u32 = 1 << 15;

/// A training run, for an architecture.
#[derive(Clone, Copy)]
pub struct Training<'a> {
    pub shapes: &'a Shapes,
    pub config: &'a RunConfig,
    pub arch: Arch,
}

impl<'a> Training<'a> {
    /// Lowers a run for a device in the first form, and with the most slots, that fit there.
    ///
    /// # Errors
    /// [`DeviceError`] where models and run do not go together. What does not fit is refused where it is sealed.
    pub fn fit_device(shapes: &Shapes, config: &RunConfig, device: &Device) -> Result<Fit<TrainingPlan>, DeviceError> {
        shapes.check(config)?;
        let arch = crate::device::rows(device)?.launches;
        let run = Training { shapes, config, arch };
        let found = fit(&run, Some(&Memory::of(device)))?;
        run.say(&found);
        Ok(found)
    }

    /// Says which form was chosen that nobody asked for by name.
    fn say(&self, found: &Fit<TrainingPlan>) {
        if self.config.teachers.has_student() {
            note("the student teaches itself, by the weights that it has in each step");
            if matches!(self.config.objective, Objective::Distill { alpha: 1.0, .. }) {
                note(
                    "--alpha 1: nothing but the student says what is right, and it may end where it predicts nonsense \
                    alike; --alpha below 1 holds it to the data",
                );
            }
        } else if self.shapes.computed().any(|teacher| self.shapes.shares_weights(teacher, self.config)) {
            note("the teacher is the student's base: its weights are in memory once");
        } else if let Some(stored) = self.own_teacher() {
            note_form(found, "--teacher-format", self.asked(), stored).iter().for_each(note);
        }
    }

    /// Returns the formats of the file of a teacher that is in memory for itself: of several, of one in blocks if there
    /// is any.
    pub fn own_teacher(&self) -> Option<&'a Formats> {
        let own = || self.shapes.with_weights(self.config).map(|teacher| &teacher.formats);
        own().find(|formats| !formats.is_dense()).or_else(|| own().next())
    }

    /// Lowers it by another configuration and recipe.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn lower_by(&self, config: &RunConfig, recipe: Recipe, choice: Choice) -> Result<TrainingPlan, PlanError> {
        self.shapes.lower(config, &recipe, choice, self.arch)
    }

    /// Returns the numbers of micro-batches that a teacher in this form computes at a time, the largest first: one that
    /// is dequantized in each pass as many as make up this rank's part of a step in whole passes.
    pub fn passes(&self, form: WeightFormat) -> Vec<u32> {
        let (own, _) = self.config.division.share.micros(self.config.division.grad_accum.into());
        let (own, tokens) = ((own.end - own.start) as u32, self.config.recipe().tokens());
        let is_known = self.config.on_policy.is_none() && !self.config.recipe().own_prompts;
        let is_dequantized = form == WeightFormat::Stored && self.own_teacher().is_some();
        let passes = is_known && is_dequantized && self.shapes.teachers.len() == 1;
        let is_within = |pass: &u32| *pass == 1 || passes && pass * tokens <= MOST_TOKENS;
        let mut passes: Vec<u32> = (1..=own).filter(|pass| own.is_multiple_of(*pass)).filter(is_within).collect();
        passes.reverse();
        passes
    }

    fn asked(&self) -> WeightFormat {
        self.config.teacher_format.unwrap_or_default()
    }

    /// Returns the forms of the teacher to try; one that shares the student's weights is in the student's.
    fn forms(&self) -> Vec<WeightFormat> {
        match self.own_teacher() {
            Some(stored) => forms(self.asked(), stored),
            None if self.shapes.computed().next().is_some() => vec![self.shapes.student_format(self.config)],
            None => vec![WeightFormat::Bf16],
        }
    }

    /// Returns its configuration with so many slots of completions.
    pub fn with_slots(&self, slots: u32) -> Cow<'a, RunConfig> {
        match self.config.completions {
            Some(_) if slots > 0 => Cow::Owned(self.config.with_slots(slots)),
            _ => Cow::Borrowed(self.config),
        }
    }

    /// Returns what a refused run is told of weights in 8 bits; empty where that takes no less or no run of this kind
    /// can have it.
    fn rounded(&self, unfit: &Fit<TrainingPlan>) -> String {
        let int8 = Choice { format: WeightFormat::Int8, ..unfit.choice };
        let plan = self.own_teacher().filter(|_| unfit.choice.format != WeightFormat::Int8).map(|_| self.lower(int8));
        let bytes = plan.and_then(Result::ok).map(|plan| plan.plan.device_bytes());
        bytes.filter(|bytes| *bytes < unfit.takes.bytes).map_or_else(String::new, |bytes| {
            format!(
                "With --teacher-format int8, which rounds what the GEMMs of layers read to 8 bits, it would take \
                {bytes} bytes.\n"
            )
        })
    }
}

impl Lower for Training<'_> {
    type Plan = TrainingPlan;

    fn choices(&self) -> Vec<Choice> {
        let own = self.config.own_sequences();
        let slots = match self.config.completions.map(|completions| completions.rollout_slots) {
            None => vec![0],
            Some(SlotChoice::Auto) => SlotChoice::Auto.tries(own).collect(),
            Some(SlotChoice::Count(count)) => vec![count],
        };
        let of_form = |(slots, format)| self.passes(format).into_iter().map(move |pass| Choice { format, slots, pass });
        iproduct!(slots, self.forms()).flat_map(of_form).collect()
    }

    fn lower(&self, choice: Choice) -> Result<TrainingPlan, PlanError> {
        let config = self.with_slots(choice.slots);
        self.lower_by(&config, config.recipe(), choice)
    }

    fn host(&self, plan: &TrainingPlan, owner: DeviceMemory) -> HostMemory {
        HostMemory::of(plan, &self.config.data, owner)
    }

    fn remedy(&self, unfit: &Fit<TrainingPlan>) -> Remedy {
        let counted = self.config.completions.filter(|completions| completions.rollout_slots != SlotChoice::Auto);
        let slots = counted.map(|_| most_slots(self, unfit.choice.slots, &self.forms(), unfit.memory.as_ref()));
        if let Some(slots) = slots.filter(|slots| slots.most > 0) {
            let what = slots.message(self.config.shape.seq_len, "--rollout-slots", "");
            return Remedy { what, advice: String::new(), slots: Some(slots) };
        }
        let first = if self.shapes.student_could_be_stored(self.config) { "--student-format stored, " } else { "" };
        let advice = format!(
            "{}Use {first}--recompute blocks, or a smaller --batch-size or --seq-len (and --grad-accum to keep the \
            step's tokens)",
            self.rounded(unfit)
        );
        let slots =
            slots.or_else(|| self.config.completions.map(|_| SlotsUnfit { asked: unfit.choice.slots, most: 0 }));
        Remedy { what: String::new(), advice, slots }
    }
}
