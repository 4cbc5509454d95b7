//! Keys and tensors of mixtures of experts, as llama.cpp's converter writes them and its `qwen3moe.cpp` and
//! `qwen35moe.cpp` read them: a matrix of all experts is one tensor.

use precast_plan::Family;
use precast_plan::family::Experts;
use serde_json::Value;

use super::Gguf;
use super::keys::{COUNT_KEY, SHARED_WIDTH_KEY, USED_KEY, WIDTH_KEY, key_of};
use super::metadata::required;
use crate::checkpoint::fault::Fault;
use crate::checkpoint::fused;
use crate::checkpoint::store::Tensor;

/// Takes a tensor of all experts for those of each, by their Hugging Face names; none of another tensor.
pub(super) fn each(family: &Family, name: &str, tensor: &Tensor) -> Option<Vec<(String, Tensor)>> {
    if family.experts == Experts::None {
        return None;
    }
    let (layer, module) = name.strip_prefix("blk.")?.strip_suffix(".weight")?.split_once('.')?;
    let layer: u32 = layer.parse().ok().filter(|number: &u32| number.to_string() == layer)?;
    let of = &family.modules.experts;
    let module = [&of.gate, &of.up, &of.down].into_iter().find(|one| one.gguf == module)?;
    let parameter = module.layer_parameter(layer, "weight");
    fused::parts(tensor, 1, |expert, _| parameter.replace('*', &expert.to_string()))
}

/// Adds the experts of a family that has some to a configuration.
///
/// # Errors
/// [`Fault`] for keys that are missing.
pub(super) fn add(gguf: &Gguf, config: &mut Value) -> Result<(), Fault> {
    let Gguf { metadata, family, tensors, .. } = gguf;
    if family.experts == Experts::None {
        return Ok(());
    }
    let integer = |rest: &str| {
        let key = key_of(family, rest);
        required(&key, metadata.integer(&key)?)
    };
    // Older files do not say how wide an expert is, and have tensors as wide.
    let first = family.modules.experts.gate.layer_parameter(0, "weight").replace('*', "0");
    let width = match (metadata.integer(&key_of(family, WIDTH_KEY))?, tensors.shape(&first)) {
        (None, Some([rows, ..])) => *rows,
        _ => integer(WIDTH_KEY)?,
    };
    config["num_experts"] = integer(COUNT_KEY)?.into();
    config["num_experts_per_tok"] = integer(USED_KEY)?.into();
    (config["moe_intermediate_size"], config["intermediate_size"]) = (width.into(), width.into());
    match family.experts {
        Experts::RoutedAndShared => config["shared_expert_intermediate_size"] = integer(SHARED_WIDTH_KEY)?.into(),
        // No key says so: llama.cpp has the weights of a token's experts add up to 1.
        _ => config["norm_topk_prob"] = true.into(),
    }
    Ok(())
}
