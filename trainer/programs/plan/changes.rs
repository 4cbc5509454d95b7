//! Changes by which a run fits that does not.

use std::fmt;

use itertools::iproduct;
use precast_plan::{Recompute, TrainingPlan, human_bytes};
use serde::Serialize;

use crate::device::fit::{Choice, Fit, compare};
use crate::device::memory::Takes;
use crate::device::training::Training;
use crate::options::{RunConfig, ShapeOptions, SlotsUnfit, WeightFormat};

/// Changes that are named at most.
const MOST_CHANGES: usize = 3;

/// Options by which a run fits that does not.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Change {
    pub flags: String,
    pub bytes: u64,
    /// Effect on the run: what of it stays, or does not.
    pub effect: &'static str,
}

impl Change {
    /// For people: `--recompute norms: 20.10 GiB, the same bits`.
    pub fn described(&self) -> String {
        let Self { flags, bytes, effect } = self;
        format!("{flags}: {}, {effect}", human_bytes(*bytes))
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flags, bytes, effect } = self;
        write!(f, "{flags}: {bytes} bytes, {effect}")
    }
}

/// A run that does not fit.
struct Case<'a> {
    run: &'a Training<'a>,
    fit: &'a Fit<TrainingPlan>,
}

/// Returns the least changes by which a run fits that does not: what gives the same bits before what keeps a step's
/// tokens, that before a rounded teacher, and shorter sequences last. None of them is more of another.
pub(super) fn least_changes(run: &Training<'_>, fit: &Fit<TrainingPlan>) -> Vec<Change> {
    Case { run, fit }.least_changes()
}

/// Change that is tried of a run that does not fit.
#[derive(Clone, Copy)]
struct Variant {
    /// A micro-batch becomes so many.
    parts: u32,
    recompute: Recompute,
    form: WeightFormat,
    student_is_stored: bool,
    seq_len: u32,
}

impl Case<'_> {
    fn least_changes(&self) -> Vec<Change> {
        let (mut least, mut changes) = (Vec::<Variant>::new(), Vec::from_iter(self.fewer_slots()));
        for variant in self.variants() {
            if changes.len() == MOST_CHANGES {
                break;
            }
            if least.iter().any(|less| self.is_more(variant, *less)) {
                continue;
            }
            if let Some(change) = self.change(variant) {
                least.push(variant);
                changes.push(change);
            }
        }
        changes
    }

    /// Slots of completions with which it does not fit.
    fn unfit(&self) -> Option<SlotsUnfit> {
        self.fit.remedy.as_ref()?.slots
    }

    /// Form of the teacher in which it does not fit.
    fn form(&self) -> WeightFormat {
        self.fit.choice.format
    }

    /// Compares the run with another configuration, in a form: as it would start.
    fn takes(&self, config: &RunConfig, format: WeightFormat) -> Option<Fit<TrainingPlan>> {
        let run = Training { config, ..*self.run };
        let memory = self.fit.memory.as_ref();
        let mut last = None;
        for pass in run.passes(format) {
            last = compare(&run, Choice { pass, ..Choice::of(format) }, memory).ok();
            if last.as_ref().is_some_and(Fit::is_within) {
                break;
            }
        }
        last
    }

    /// Writes fewer completions at a time.
    fn fewer_slots(&self) -> Option<Change> {
        let most = self.unfit().map(|unfit| unfit.most).filter(|most| *most > 0)?;
        let Takes { bytes, .. } = self.takes(&self.run.config.with_slots(most), self.form())?.takes;
        Some(Change { flags: format!("--rollout-slots {most}"), bytes, effect: "the same bits" })
    }

    /// True if a variant changes all that another does, at least as much.
    fn is_more(&self, variant: Variant, less: Variant) -> bool {
        variant.parts >= less.parts
            && variant.recompute >= less.recompute
            && [self.form(), variant.form].contains(&less.form)
            && variant.student_is_stored >= less.student_is_stored
            && variant.seq_len <= less.seq_len
    }

    fn variants(&self) -> Vec<Variant> {
        let (batch, seq_len) = (self.run.config.shape.batch_size, self.run.config.shape.seq_len);
        let parts: Vec<u32> = (1..=batch).filter(|parts| batch.is_multiple_of(*parts)).collect();
        let is_stored =
            self.run.own_teacher().is_some_and(|stored| !stored.is_dense()) && self.form() != WeightFormat::Stored;
        let exact: Vec<WeightFormat> =
            [Some(self.form()), is_stored.then_some(WeightFormat::Stored)].into_iter().flatten().collect();
        let mut all = self.with(&parts, &exact, seq_len);
        if self.run.own_teacher().is_some() && self.form() != WeightFormat::Int8 {
            all.extend(self.with(&parts, &[WeightFormat::Int8], seq_len));
        }
        let shorter = std::iter::successors(Some(seq_len / 2), |length| Some(length / 2));
        // A completion stays in its sequence.
        let least = self.run.config.completions.map_or(0, |completions| completions.max_tokens);
        // A cache is of sequences of one length.
        let shorter = shorter.take_while(|length| *length > least && !self.run.shapes.has_cache());
        all.extend(shorter.flat_map(|length| self.with(&[batch], &exact, length)));
        all
    }

    /// Micro-batches vary slowest, then how weights are stored, then what is recomputed.
    fn with(&self, parts: &[u32], forms: &[WeightFormat], seq_len: u32) -> Vec<Variant> {
        let recomputes = Recompute::ALL.into_iter().filter(|more| *more >= self.run.config.arithmetic.recompute);
        let students: &[bool] =
            if self.run.shapes.student_could_be_stored(self.run.config) { &[false, true] } else { &[false] };
        let all = iproduct!(parts, forms, students, recomputes);
        let of = |(&parts, &form, &student_is_stored, recompute)| Variant {
            parts,
            recompute,
            form,
            student_is_stored,
            seq_len,
        };
        all.map(of).collect()
    }

    /// A variant as a change of the run, if that fits.
    fn change(&self, variant: Variant) -> Option<Change> {
        let Variant { parts, recompute, form, student_is_stored, seq_len } = variant;
        let mut config = self.run.config.clone();
        let micros = &mut config.division.grad_accum;
        *micros = micros.checked_mul(parts)?;
        config.shape = ShapeOptions { batch_size: config.shape.batch_size / parts, seq_len };
        config.arithmetic.recompute = recompute;
        if student_is_stored {
            config.student_format = Some(WeightFormat::Stored);
        }
        // Where not even one slot fits, other changes make room for some.
        let fewer =
            self.unfit().filter(|unfit| unfit.most == 0 && config.with_slots(1).completions != config.completions);
        if fewer.is_some() {
            config = config.with_slots(1);
        }
        let takes = self.takes(&config, form).filter(Fit::is_within)?.takes;
        let (now, before) = (&config, self.run.config);
        let flags = [
            (recompute != before.arithmetic.recompute).then(|| format!("--recompute {recompute}")),
            (form != self.form()).then(|| format!("--teacher-format {form}")),
            student_is_stored.then(|| "--student-format stored".to_owned()),
            (parts > 1)
                .then(|| format!("--batch-size {} --grad-accum {}", now.shape.batch_size, now.division.grad_accum)),
            (seq_len != before.shape.seq_len).then(|| format!("--seq-len {seq_len}")),
            fewer.map(|_| "--rollout-slots auto".to_owned()),
        ];
        let effect = match variant {
            Variant { seq_len, .. } if seq_len != before.shape.seq_len => "shorter sequences",
            Variant { form: WeightFormat::Int8, .. } if form != self.form() => "a teacher rounded to 8 bits",
            Variant { form, .. } if form != self.form() && self.form() == WeightFormat::Int8 => {
                "a teacher that is exact"
            }
            Variant { parts: 2.., .. } => "the same tokens in a step",
            _ => "the same bits",
        };
        let flags = flags.into_iter().flatten().collect::<Vec<_>>().join(" ");
        Some(Change { flags, bytes: takes.bytes, effect })
    }
}
