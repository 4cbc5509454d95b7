//! The device of a generation: as many slots as are asked for, or as it has room for.

use std::borrow::Borrow;
use std::path::PathBuf;

use precast_plan::{DecodeRequest, GenerationPlan, Sampling, Slots, Student};

use crate::device::decoding::{DecodeError, DecodingDevice};
use crate::device::frozen::{Forward, FrozenRequest, Opened};
use crate::device::seal::SealedDevice;
use crate::inputs::checkpoint::Weights;
use crate::options::{SlotChoice, SlotsUnfit};
use crate::run::failure::Failure;

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
    /// Opens the device with as many slots as are asked for, or as it has room for; `extend` adds to the plan what is
    /// measured.
    ///
    /// # Errors
    /// [`Failure`] where it has no room for those asked for: in bytes, with the most that it has room for.
    pub fn open(
        request: &DecoderRequest<'_>,
        opened: &Opened<impl Borrow<dyn Weights>>,
        extend: impl FnOnce(&mut GenerationPlan),
    ) -> Result<Self, Failure> {
        let DecoderRequest { forward, sequences, sampling, slots, seq_len, .. } = request;
        let lower = |student: Student<'_>, count, arch| {
            let decode = DecodeRequest { slots: Slots { count, seq_len: *seq_len }, sampling: *sampling };
            GenerationPlan::new(student, decode, forward.precision(), arch)
        };
        let what = |unfit| too_many(unfit, *seq_len);
        let slots = Some((*slots, *sequences));
        let (plan, sealed) =
            forward.open_plan(opened, request.data, FrozenRequest { lower: &lower, slots, what: &what }, extend)?;
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
pub(crate) fn too_many(unfit: SlotsUnfit, seq_len: u32) -> String {
    unfit.message(seq_len, "--slots", ": give a smaller --seq-len, or --format stored or int8")
}
