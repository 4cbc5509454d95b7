//! Names of tensors: ggml's and Hugging Face's.

use precast_plan::family::{Bias, Family, Module, QkNorm};

/// Returns the name in GGUF files of a parameter, by its Hugging Face name; none where they have no such tensor.
pub(super) fn ggml(family: &Family, parameter: &str) -> Option<String> {
    renamed(family, parameter, ["model.layers.", "blk."], |module| [module.hugging_face, module.gguf])
}

/// Returns the Hugging Face name of a tensor of a family.
pub(super) fn hugging_face(family: &Family, name: &str) -> Option<String> {
    renamed(family, name, ["blk.", "model.layers."], |module| [module.gguf, module.hugging_face])
}

/// Replaces what stands before the number of a layer, and the module, `of` which are a name and its other.
fn renamed(family: &Family, name: &str, [from, to]: [&str; 2], of: fn(&Module) -> [&str; 2]) -> Option<String> {
    let m = family.modules;
    let (module, part) = name.rsplit_once('.')?;
    if let Some(end) = [&m.embedding, &m.norm, &m.head].into_iter().find(|end| of(end)[0] == module) {
        return (part == "weight").then(|| format!("{}.{part}", of(end)[1]));
    }
    let (layer, module) = module.strip_prefix(from)?.split_once('.')?;
    // Only as `to_string` writes it, so that no two names of a file become one.
    let layer = layer.parse::<u32>().ok().filter(|number| number.to_string() == layer)?;
    let norms = [&m.q_norm, &m.k_norm].into_iter().filter(|_| family.qk_norm != QkNorm::None);
    let norms = norms.chain([&m.input_norm, &m.o_norm, &m.post_norm, &m.down_norm].into_iter().flatten());
    let norms = norms.map(|norm| (norm, Bias::Never));
    // llama.cpp's files have no biases of the MLP, nor of attention's output where a norm follows.
    let modules = [
        (&m.q, family.qkv_bias),
        (&m.k, family.qkv_bias),
        (&m.v, family.qkv_bias),
        (&m.o, if m.o_norm.is_some() { Bias::Never } else { family.o_bias }),
        (&m.gate, Bias::Never),
        (&m.up, Bias::Never),
        (&m.down, Bias::Never),
    ];
    let (found, bias) = modules.into_iter().chain(norms).find(|(found, _)| of(found)[0] == module)?;
    let known = part == "weight" || part == "bias" && bias != Bias::Never;
    known.then(|| format!("{to}{layer}.{}.{part}", of(found)[1]))
}
