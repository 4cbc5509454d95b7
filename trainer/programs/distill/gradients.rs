//! Gradients of a step, and their comparison with bf16's.

use crate::device::DeviceError;
use crate::device::session::Session;
use crate::inputs::data::MicroBatch;
use crate::run::guard::{Guarded, LayerDistance};

/// Asks for the gradients of a micro-batch, by its `number` in its replica. In a step that `is_guarded` the first is
/// compared. The last one of a rank leaves the gradients of all: where it is the first, too, it is computed once more
/// before.
///
/// # Errors
/// [`DeviceError`] of the device, and of the cache of a teacher.
pub(super) fn of_micro(
    session: &mut Session,
    (is_guarded, guard): (bool, &mut Option<Guarded>),
    (batch, loss_scale): (&MicroBatch, f32),
    (number, is_last): (usize, bool),
) -> Result<(), DeviceError> {
    let is_compared = is_guarded && guard.is_none();
    if is_compared || !is_last {
        session.micro(batch, loss_scale, number)?;
    }
    if is_compared {
        *guard = Some(Guarded(session.guard()?.into_iter().map(LayerDistance::of).collect()));
    }
    if is_last {
        session.last(batch, loss_scale, number)?;
    }
    Ok(())
}
