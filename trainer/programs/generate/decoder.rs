//! The device of a generation: as many slots as are asked for, or as it has room for.

use std::cell::Cell;

use precast_plan::decoding::MOST_SLOTS;
use precast_plan::{DecodeRequest, GenerationPlan, Slots};

use super::options::Generation;
use super::sequences::Sequences;
use crate::device::DeviceError;
use crate::device::frozen::{Fits, Opened};
use crate::device::seal::SealedDevice;
use crate::options::{SlotChoice, WeightFormat};
use crate::programs::failure::Failure;

/// Opens the device, with the model's weights and a pool of keys and values.
///
/// # Errors
/// [`Failure`] where it has no room for the slots asked for: in bytes, with the most that it has room for.
pub(super) fn open(
    request: &Generation,
    opened: &Opened,
    sequences: &Sequences,
) -> Result<(GenerationPlan, SealedDevice), Failure> {
    let Generation { forward, slots: asked, .. } = request;
    let (count, seq_len) = (sequences.all.len() as u32, sequences.seq_len);
    let asked = match asked {
        SlotChoice::Count(asked) => *asked,
        SlotChoice::Auto => count.min(MOST_SLOTS),
    };
    // The most that the device has room for, as far as it was looked for.
    let most = Cell::new(0);
    let is_auto = request.slots == SlotChoice::Auto;
    let lowered = forward.open_plan(opened, &request.data, |fits: Fits<'_, GenerationPlan>, student, arch| {
        let lower = |count| {
            let decode = DecodeRequest { slots: Slots { count, seq_len }, sampling: request.sampling() };
            GenerationPlan::new(student, decode, forward.precision(), arch)
        };
        let found = SlotChoice::up_to(asked).into_iter().find(|count| lower(*count).is_ok_and(|plan| fits(&plan)));
        // A form that is not asked for is lowered to say what it would take.
        if student.formats.is_int8() == (forward.format == WeightFormat::Int8) {
            most.set(most.get().max(found.unwrap_or_default()));
        }
        lower(found.filter(|_| is_auto).unwrap_or(asked))
    });
    lowered.map_err(|error| too_many(error, (asked, seq_len), most.get()))
}

/// Names the most slots that fit where those that are asked for do not.
fn too_many(error: DeviceError, (count, seq_len): (u32, u32), most: u32) -> Failure {
    let remedy = match most {
        0 => "not even one does: give a smaller --seq-len, or --format stored or int8".to_owned(),
        most => format!("--slots {most} does"),
    };
    let what = format!("{count} slots of {seq_len} tokens do not fit; {remedy}");
    Failure::from(match error {
        DeviceError::Memory { needed, free, device, table, .. } => DeviceError::Unfit(format!(
            "{what}: the plan takes {needed} bytes of device memory and {device} has {free} free\n{table}"
        )),
        // Its advice is of runs.
        DeviceError::Unfit(reason) if reason.contains("Use --recompute") => {
            let reason = reason.split("Use --recompute").next().unwrap_or_default();
            DeviceError::Unfit(format!("{what}\n{}", reason.trim_end()))
        }
        DeviceError::OneMemory { reason, .. } => DeviceError::Unfit(format!("{what}\n{reason}")),
        error => error,
    })
}
