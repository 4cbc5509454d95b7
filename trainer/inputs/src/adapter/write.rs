//! An adapter as a PEFT directory.

use std::path::Path;

use precast_plan::{Factor, ModelConfig};
use precast_system::files::Aside;
use safetensors::tensor::Dtype as Stored;

use super::config::{self, CONFIG};
use super::layout::{Adapted, Layout, Projection};
use crate::checkpoint::{CheckpointError, Write, write_safetensors};

/// Its tensors, in an adapter's directory.
pub(super) const TENSORS: &str = "adapter_model.safetensors";

/// Writes `adapter_config.json` and `adapter_model.safetensors`, f32. `read` gives the bytes of a matrix, row by row,
/// in parts.
/// `base` is where the model is that the adapter is of.
///
/// # Errors
/// [`CheckpointError`] of the disk or of `read`, and where a value is not finite.
pub fn fill_adapter<E: From<CheckpointError>>(
    aside: &mut Aside,
    layout: &Layout,
    (base, model): (&Path, &ModelConfig),
    mut read: impl FnMut(&Adapted, Factor, &mut Write<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let json = config::written(layout, &Projection::all(model), base);
    let io = CheckpointError::io("write", aside.target().join(CONFIG));
    aside.write(CONFIG, format!("{json:#}\n").as_bytes()).map_err(io)?;
    let tensors = layout.tensors().map(|one @ (adapted, factor)| {
        let shape = adapted.shape(factor).to_vec();
        (adapted.tensor(factor), shape, Stored::F32, one)
    });
    write_safetensors(aside, TENSORS, tensors.collect(), |(adapted, factor), write| read(adapted, factor, write))
}
