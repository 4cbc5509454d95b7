//! Whether a run fits into the memory that there is, and the least change by which it does.

use std::fmt;

use precast_plan::{Formats, Recompute};
use precast_runtime::Device;
use serde::Serialize;

use super::Target;
use crate::device::DeviceError;
use crate::device::host_memory::HostMemory;
use crate::device::one_memory;
use crate::device::weight_format::{KERNELS_BYTES, beside, fits};
use crate::device::shapes::Shapes;
use crate::options::WeightFormat;
use crate::options::{RunConfig, ShapeOptions};
use crate::programs::failure::Failure;

/// The memory that a plan is compared with.
#[derive(Clone, Debug)]
pub(super) struct Room {
    pub bytes: u64,
    /// The device that has it free; none of `--memory`.
    pub device: Option<String>,
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.device {
            Some(device) => write!(f, "{device} has {} bytes free", self.bytes),
            None => write!(f, "--memory is {} bytes", self.bytes),
        }
    }
}

/// What a run takes, bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Takes {
    pub device: u64,
    /// Of the same memory, by the host.
    pub host: u64,
}

impl Takes {
    /// By a run whose teacher has its matrices in `formats`.
    pub fn of(config: &RunConfig, shapes: &Shapes, formats: &Formats, target: &Target) -> Result<Self, Failure> {
        let plan = shapes.lower(config, &config.recipe(), formats, target.arch)?;
        let host = || HostMemory::of(&plan, &config.data, true);
        let of_host = |device: &Device| one_memory::host_bytes(device, host);
        Ok(Self { device: plan.plan.device_bytes(), host: target.device.as_ref().map_or(0, of_host) })
    }

    /// Whether that fits, with kernels. What there is nothing to compare with does.
    pub fn fits(self, target: &Target) -> bool {
        target.room.as_ref().is_none_or(|room| fits(self.device.saturating_add(self.host), room.bytes))
    }
}

/// Options by which a run fits that does not.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Change {
    pub flags: String,
    pub bytes: u64,
    /// What of the run stays, or does not.
    pub effect: &'static str,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flags, bytes, effect } = self;
        write!(f, "{flags}: {bytes} bytes, {effect}")
    }
}

/// A run that does not fit.
pub(super) struct TooLarge<'a> {
    pub config: &'a RunConfig,
    pub shapes: &'a Shapes,
    pub target: &'a Target,
    /// How the teacher's matrices are stored.
    pub stored: &'a Formats,
    /// Whether the teacher is in memory for itself.
    pub has_own_teacher: bool,
    /// In which form of the teacher it does not fit.
    pub form: WeightFormat,
    pub takes: Takes,
}

/// What is tried of a run that does not fit.
#[derive(Clone, Copy)]
struct Variant {
    /// A micro-batch becomes so many.
    parts: u32,
    recompute: Recompute,
    form: WeightFormat,
    student_is_stored: bool,
    seq_len: u32,
}

impl TooLarge<'_> {
    /// The least change by which the run fits: what gives the same bits before what keeps a step's tokens, that before a rounded
    /// teacher, and shorter sequences last; none where none of these does.
    pub fn least_change(&self) -> Option<Change> {
        self.variants().into_iter().find_map(|variant| self.change(variant))
    }

    fn variants(&self) -> Vec<Variant> {
        let (batch, seq_len) = (self.config.shape.batch_size, self.config.shape.seq_len);
        let parts: Vec<u32> = (1..=batch).filter(|parts| batch.is_multiple_of(*parts)).collect();
        let is_stored = !self.stored.is_dense() && self.form != WeightFormat::Stored;
        let exact: Vec<WeightFormat> =
            [Some(self.form), is_stored.then_some(WeightFormat::Stored)].into_iter().flatten().collect();
        let mut all = self.with(&parts, &exact, seq_len);
        if self.has_own_teacher && self.form != WeightFormat::Int8 {
            all.extend(self.with(&parts, &[WeightFormat::Int8], seq_len));
        }
        let shorter = std::iter::successors(Some(seq_len / 2), |length| Some(length / 2));
        let shorter = shorter.take_while(|length| *length > 0);
        all.extend(shorter.flat_map(|length| self.with(&[batch], &exact, length)));
        all
    }

    /// Micro-batches vary slowest, then what is recomputed, then how weights are stored.
    fn with(&self, parts: &[u32], forms: &[WeightFormat], seq_len: u32) -> Vec<Variant> {
        let recomputes = Recompute::ALL.into_iter().filter(|more| *more >= self.config.arithmetic.recompute);
        let students: &[bool] =
            if self.shapes.student_could_be_stored(self.config) { &[false, true] } else { &[false] };
        let mut all = Vec::new();
        for &parts in parts {
            for recompute in recomputes.clone() {
                for &form in forms {
                    let of = |&student_is_stored| Variant { parts, recompute, form, student_is_stored, seq_len };
                    all.extend(students.iter().map(of));
                }
            }
        }
        all
    }

    /// A variant as a change of the run, if that fits.
    fn change(&self, variant: Variant) -> Option<Change> {
        let Variant { parts, recompute, form, student_is_stored, seq_len } = variant;
        let mut config = self.config.clone();
        let micros = &mut config.division.grad_accum;
        *micros = micros.checked_mul(parts)?;
        config.shape = ShapeOptions { batch_size: config.shape.batch_size / parts, seq_len };
        config.arithmetic.recompute = recompute;
        if student_is_stored {
            config.student_format = Some(WeightFormat::Stored);
        }
        let takes = Takes::of(&config, self.shapes, &formats(form, self.stored), self.target).ok()?;
        if !takes.fits(self.target) {
            return None;
        }
        let (now, before) = (&config, &self.config);
        let flags = [
            (recompute != before.arithmetic.recompute).then(|| format!("--recompute {recompute}")),
            (form != self.form).then(|| format!("--teacher-format {form}")),
            student_is_stored.then(|| "--student-format stored".to_owned()),
            (parts > 1)
                .then(|| format!("--batch-size {} --grad-accum {}", now.shape.batch_size, now.division.grad_accum)),
            (seq_len != before.shape.seq_len).then(|| format!("--seq-len {seq_len}")),
        ];
        let effect = match variant {
            Variant { seq_len, .. } if seq_len != before.shape.seq_len => "shorter sequences",
            Variant { form: WeightFormat::Int8, .. } if form != self.form => "a teacher rounded to 8 bits",
            Variant { form, .. } if form != self.form && self.form == WeightFormat::Int8 => "a teacher that is exact",
            Variant { parts: 2.., .. } => "the same tokens in a step",
            _ => "the same bits",
        };
        let flags = flags.into_iter().flatten().collect::<Vec<_>>().join(" ");
        Some(Change { flags, bytes: takes.device, effect })
    }
}

/// A run that does not fit, as it is refused.
#[derive(Debug)]
pub(super) struct Refusal {
    takes: Takes,
    room: String,
    /// None where none of those that are tried fits.
    pub change: Option<Change>,
}

impl Refusal {
    pub fn of(large: &TooLarge<'_>) -> Self {
        let room = large.target.room.as_ref().map(ToString::to_string).unwrap_or_default();
        Self { takes: large.takes, room, change: large.least_change() }
    }

    pub fn failure(self) -> Failure {
        let Self { takes: Takes { device, host }, room, change } = self;
        let advice = match change {
            Some(change) => format!("The least change that fits: {change}"),
            None => "Neither smaller micro-batches, --recompute, other formats nor shorter sequences make it fit: use smaller \
                     models, or a GPU with more memory"
                .to_owned(),
        };
        let message = format!(
            "this run does not fit: it takes {device} bytes of device memory, up to {KERNELS_BYTES} for kernels{}, and {room}.\n{advice}",
            beside(host)
        );
        DeviceError::Unfit(message).into()
    }
}

/// The formats of a teacher's matrices that live in a form.
pub(super) fn formats(form: WeightFormat, stored: &Formats) -> Formats {
    match form {
        WeightFormat::Int8 => Formats::int8(),
        WeightFormat::Stored => stored.clone(),
        WeightFormat::Bf16 | WeightFormat::Auto => Formats::dense(),
    }
}
