//! Fit of a run into the memory that there is, and the least change by which it fits.

use std::fmt;

use itertools::iproduct;
use precast_plan::{Formats, Recompute};
use precast_runtime::Device;
use serde::Serialize;

use super::Target;
use crate::device::host_memory::{DeviceMemory, HostMemory};
use crate::device::shapes::Shapes;
use crate::device::weight_format::{KERNELS_BYTES, beside, fits, formats};
use crate::device::{DeviceError, one_memory};
use crate::options::{RunConfig, ShapeOptions, WeightFormat};
use crate::programs::failure::Failure;

/// The memory that a plan is compared with.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Room {
    pub bytes: u64,
    /// The device that has it free; none of `--memory`.
    #[serde(skip)]
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

/// Memory that a run takes, bytes.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Takes {
    /// Bytes of the device.
    pub bytes: u64,
    /// Bytes of the same memory that the host takes.
    #[serde(skip)]
    host_bytes: u64,
}

impl Takes {
    /// By a run whose teacher has its matrices in `formats`.
    pub fn of(config: &RunConfig, shapes: &Shapes, formats: &Formats, target: &Target) -> Result<Self, Failure> {
        let plan = shapes.lower(config, &config.recipe(), formats, target.rows.launches)?;
        let host = || HostMemory::of(&plan, &config.data, DeviceMemory::Shared);
        let of_host = |device: &Device| one_memory::host_bytes(device, host);
        Ok(Self { bytes: plan.plan.device_bytes(), host_bytes: target.device.as_ref().map_or(0, of_host) })
    }

    /// True if that fits, with kernels. A run with nothing to compare with fits.
    pub fn fits(self, room: Option<&Room>) -> bool {
        room.is_none_or(|room| fits(self.bytes.saturating_add(self.host_bytes), room.bytes))
    }
}

/// Options by which a run fits that does not.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Change {
    pub flags: String,
    pub bytes: u64,
    /// Effect on the run: what of it stays, or does not.
    pub effect: &'static str,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flags, bytes, effect } = self;
        write!(f, "{flags}: {bytes} bytes, {effect}")
    }
}

/// Comparison of a run with the memory that there is.
#[derive(Debug, Serialize)]
pub(super) struct Fit {
    #[serde(flatten)]
    pub room: Room,
    fits: bool,
    /// The least change by which a run fits that does not; none where none of those that are tried fits.
    least_change: Option<Change>,
    #[serde(skip)]
    takes: Takes,
}

impl Fit {
    /// Compares a run whose own teacher, if it has one, has its matrices in these formats; none where there is nothing to compare with.
    pub fn of(case: &Case<'_>, takes: Takes) -> Option<Self> {
        let room = case.target.room.clone()?;
        let fits = takes.fits(Some(&room));
        let least_change = if fits { None } else { case.least_change() };
        Some(Self { room, fits, least_change, takes })
    }

    /// Refuses a run that does not fit.
    pub fn check(&self) -> Result<(), Failure> {
        if self.fits {
            return Ok(());
        }
        let Self { takes: Takes { bytes, host_bytes }, room, .. } = self;
        let advice = match &self.least_change {
            Some(change) => format!("The least change that fits: {change}"),
            None => "Neither smaller micro-batches, --recompute, other formats nor shorter sequences make it fit: use smaller \
                     models, or a GPU with more memory"
                .to_owned(),
        };
        let message = format!(
            "this run does not fit: it takes {bytes} bytes of device memory, up to {KERNELS_BYTES} for kernels{}, and {room}.\n{advice}",
            beside(*host_bytes)
        );
        Err(DeviceError::Unfit(message).into())
    }
}

/// A run that may not fit.
pub(super) struct Case<'a> {
    pub config: &'a RunConfig,
    pub shapes: &'a Shapes,
    pub target: &'a Target,
    /// Formats of the matrices of a teacher that is in memory for itself.
    pub own_teacher: Option<&'a Formats>,
    /// In which form of the teacher it may not fit.
    pub form: WeightFormat,
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
    /// The least change by which the run fits: what gives the same bits before what keeps a step's tokens, that before a rounded
    /// teacher, and shorter sequences last; none where none of these does.
    fn least_change(&self) -> Option<Change> {
        self.variants().into_iter().find_map(|variant| self.change(variant))
    }

    fn variants(&self) -> Vec<Variant> {
        let (batch, seq_len) = (self.config.shape.batch_size, self.config.shape.seq_len);
        let parts: Vec<u32> = (1..=batch).filter(|parts| batch.is_multiple_of(*parts)).collect();
        let is_stored = self.own_teacher.is_some_and(|stored| !stored.is_dense()) && self.form != WeightFormat::Stored;
        let exact: Vec<WeightFormat> =
            [Some(self.form), is_stored.then_some(WeightFormat::Stored)].into_iter().flatten().collect();
        let mut all = self.with(&parts, &exact, seq_len);
        if self.own_teacher.is_some() && self.form != WeightFormat::Int8 {
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
        let all = iproduct!(parts, recomputes, forms, students);
        let of = |(&parts, recompute, &form, &student_is_stored)| Variant {
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
        let mut config = self.config.clone();
        let micros = &mut config.division.grad_accum;
        *micros = micros.checked_mul(parts)?;
        config.shape = ShapeOptions { batch_size: config.shape.batch_size / parts, seq_len };
        config.arithmetic.recompute = recompute;
        if student_is_stored {
            config.student_format = Some(WeightFormat::Stored);
        }
        let takes = Takes::of(&config, self.shapes, &formats(form, self.own_teacher), self.target).ok()?;
        if !takes.fits(self.target.room.as_ref()) {
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
        Some(Change { flags, bytes: takes.bytes, effect })
    }
}
