//! The device of a generation: as many slots as are asked for, or as it has room for.

use std::borrow::Borrow;
use std::cell::Cell;
use std::path::PathBuf;

use precast_plan::{DecodeRequest, GenerationPlan, Sampling, Slots, Student};

use crate::device::DeviceError;
use crate::device::decoding::{DecodeError, DecodingDevice};
use crate::device::frozen::{Fits, Forward, Opened};
use crate::device::seal::SealedDevice;
use crate::inputs::checkpoint::Weights;
use crate::options::{SlotChoice, WeightFormat};
use crate::programs::failure::Failure;

/// A generation whose device is to be opened.
pub(crate) struct DecoderRequest<'a> {
    pub forward: &'a Forward,
    /// Files that take host memory beside it.
    pub data: &'a [PathBuf],
    pub slots: SlotChoice,
    /// Sequences that there are.
    pub sequences: u64,
    /// Tokens of the longest, at most.
    pub seq_len: u32,
    /// Tokens that end a sequence.
    pub stops: Vec<u32>,
    pub sampling: Sampling,
}

/// A sealed device with the model's weights and a pool of keys and values.
pub(crate) struct DeviceDecoder {
    pub sealed: SealedDevice,
    pub plan: GenerationPlan,
    stops: Vec<u32>,
}

impl DeviceDecoder {
    /// Opens the device with as many slots as are asked for, or as it has room for; `extend` adds to the plan what is measured.
    ///
    /// # Errors
    /// [`Failure`] where it has no room for those asked for: in bytes, with the most that it has room for.
    pub fn open(
        request: &DecoderRequest<'_>,
        opened: &Opened<impl Borrow<dyn Weights>>,
        extend: impl FnOnce(&mut GenerationPlan),
    ) -> Result<Self, Failure> {
        let DecoderRequest { forward, sequences, sampling, .. } = request;
        let seq_len = request.seq_len;
        let asked = request.slots.most(*sequences);
        // The most that the device has room for, as far as it was looked for.
        let most = Cell::new(0);
        let is_auto = request.slots == SlotChoice::Auto;
        let lower = |fits: Fits<'_, GenerationPlan>, student: Student<'_>, arch| {
            let lower = |count| {
                let decode = DecodeRequest { slots: Slots { count, seq_len }, sampling: *sampling };
                GenerationPlan::new(student, decode, forward.precision(), arch)
            };
            let found = SlotChoice::up_to(asked).into_iter().find(|count| lower(*count).is_ok_and(|plan| fits(&plan)));
            // A form that is not asked for is lowered to say what it would take.
            if student.formats.is_int8() == (forward.format == WeightFormat::Int8) {
                most.set(most.get().max(found.unwrap_or_default()));
            }
            lower(found.filter(|_| is_auto).unwrap_or(asked))
        };
        let (plan, sealed) = forward
            .open_plan(opened, request.data, lower, extend)
            .map_err(|error| too_many(error, (asked, seq_len), most.get()))?;
        Ok(Self { sealed, plan, stops: request.stops.clone() })
    }

    /// Returns its slots.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn slots(&mut self) -> Result<DecodingDevice<'_>, DecodeError> {
        DecodingDevice::new(&mut self.sealed, self.plan.decoding, &self.stops)
    }
}

/// Names the most slots that fit where those that are asked for do not.
fn too_many(error: DeviceError, (count, seq_len): (u32, u32), most: u32) -> Failure {
    error.unfit(&unfit((count, seq_len), most)).into()
}

/// Says that so many slots of so many tokens do not fit, and how many do.
pub(crate) fn unfit((count, seq_len): (u32, u32), most: u32) -> String {
    let remedy = match most {
        0 => "not even one does: give a smaller --seq-len, or --format stored or int8".to_owned(),
        most => format!("--slots {most} does"),
    };
    format!("{count} slots of {seq_len} tokens do not fit; {remedy}")
}
