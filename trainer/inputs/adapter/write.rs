//! An adapter as a PEFT directory.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;

use precast_plan::{Factor, ModelConfig};
use precast_system::files::Aside;
use safetensors::tensor::Dtype as Stored;

use super::TENSORS;
use super::config::{self, CONFIG};
use super::layout::{Adapted, Layout, Projection};
use crate::inputs::checkpoint::{CheckpointError, Write, check_written, safetensors_header};

/// Writes `adapter_config.json` and `adapter_model.safetensors`, f32. `read` gives the bytes of a matrix, row by row, in parts.
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
    let target = aside.target().to_owned();
    let io = |name: &str| CheckpointError::io("write", target.join(name));
    let json = config::written(layout, &Projection::all(model), base);
    aside.write(CONFIG, format!("{json:#}\n").as_bytes()).map_err(io(CONFIG))?;

    let mut tensors: Vec<(String, &Adapted, Factor)> =
        layout.tensors().map(|(adapted, factor)| (adapted.tensor(factor), adapted, factor)).collect();
    tensors.sort_by(|one, other| one.0.cmp(&other.0));
    let shape = |adapted: &Adapted, factor| adapted.shape(factor).map(|dim| dim as usize).to_vec();
    let shapes = tensors.iter().map(|(name, adapted, factor)| (name.clone(), shape(adapted, *factor)));
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let header = safetensors_header(shapes, Stored::F32, Some(metadata));
    let mut file = aside.create(TENSORS).map_err(io(TENSORS))?;
    file.write_all(&header).map_err(io(TENSORS))?;
    for (name, adapted, factor) in tensors {
        let mut done = 0;
        read(adapted, factor, &mut |part| {
            check_written(&target, &name, done, part, Stored::F32)?;
            done += part.len() / 4;
            file.write_all(part).map_err(io(TENSORS))
        })?;
        assert_eq!(done as u64, adapted.shape(factor).iter().product::<u64>(), "elements of {name}");
    }
    aside.close(file);
    Ok(())
}
