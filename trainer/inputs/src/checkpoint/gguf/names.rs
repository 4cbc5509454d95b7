//! Names of tensors: ggml's to Hugging Face's.

use precast_plan::family::{Bias, Family};

/// The name in GGUF files of a parameter, by its Hugging Face name; none where they have no such tensor.
pub(super) fn ggml(family: &Family, parameter: &str) -> Option<String> {
    let m = family.modules;
    let (module, part) = parameter.rsplit_once('.')?;
    let ends = [&m.embedding, &m.norm, &m.head].into_iter().find(|found| found.hugging_face == module);
    let name = if let Some(found) = ends {
        format!("{}.{part}", found.gguf)
    } else {
        let (layer, module) = module.strip_prefix("model.layers.")?.split_once('.')?;
        let modules =
            [&m.input_norm, &m.q, &m.k, &m.v, &m.q_norm, &m.k_norm, &m.o, &m.post_norm, &m.gate, &m.up, &m.down];
        let found = modules.into_iter().find(|found| found.hugging_face == module)?;
        format!("blk.{layer}.{}.{part}", found.gguf)
    };
    hugging_face(family, &name).filter(|back| back == parameter).map(|_| name)
}

/// The Hugging Face name of a tensor of a family.
pub(super) fn hugging_face(family: &Family, name: &str) -> Option<String> {
    let m = family.modules;
    let (module, part) = name.rsplit_once('.')?;
    if let Some(found) = [&m.embedding, &m.norm, &m.head].into_iter().find(|found| found.gguf == module) {
        return (part == "weight").then(|| found.parameter(part));
    }
    let (layer, module) = module.strip_prefix("blk.")?.split_once('.')?;
    // Only as `to_string` writes it, so that no two names of a file become one.
    let layer = layer.parse::<u32>().ok().filter(|number| number.to_string() == layer)?;
    let norms = [&m.q_norm, &m.k_norm].into_iter().filter(|_| family.qk_norm).map(|norm| (norm, Bias::Never));
    // llama.cpp's files have no biases of the MLP.
    let modules = [
        (&m.input_norm, Bias::Never),
        (&m.q, family.qkv_bias),
        (&m.k, family.qkv_bias),
        (&m.v, family.qkv_bias),
        (&m.o, family.o_bias),
        (&m.post_norm, Bias::Never),
        (&m.gate, Bias::Never),
        (&m.up, Bias::Never),
        (&m.down, Bias::Never),
    ];
    let (found, bias) = modules.into_iter().chain(norms).find(|(found, _)| found.gguf == module)?;
    let known = part == "weight" || part == "bias" && bias != Bias::Never;
    known.then(|| found.layer_parameter(layer, part))
}
