//! Names of tensors: ggml's and Hugging Face's.

use precast_plan::family::{Bias, Experts, Family, Module, Modules, QkNorm};

/// Returns the name in GGUF files of a parameter, by its Hugging Face name; none where they have no such tensor.
pub(super) fn ggml(family: &Family, parameter: &str) -> Option<String> {
    renamed(family, parameter, ["model.layers.", "blk."], |module| [module.hugging_face, module.gguf])
}

/// Returns the Hugging Face name of a tensor of a family.
pub(super) fn hugging_face(family: &Family, name: &str) -> Option<String> {
    renamed(family, name, ["blk.", "model.layers."], |module| [module.gguf, module.hugging_face])
}

/// Parameters of the decays of the gated delta rule, by their whole names in a layer.
const DECAYS: [Module; 2] = [
    Module { hugging_face: "linear_attn.A_log", gguf: "ssm_a" },
    Module { hugging_face: "linear_attn.dt_bias", gguf: "ssm_dt.bias" },
];

/// Replaces what stands before the number of a layer, and the module, `of` which are a name and its other.
fn renamed(family: &Family, name: &str, [from, to]: [&str; 2], of: fn(&Module) -> [&str; 2]) -> Option<String> {
    let m = family.modules;
    if let Some(rest) = name.strip_prefix(from) {
        let (layer, name) = rest.split_once('.')?;
        // Only as `to_string` writes it, so that no two names of a file become one.
        let layer = layer.parse::<u32>().ok().filter(|number| number.to_string() == layer)?;
        return Some(format!("{to}{layer}.{}", in_layer(family, name, of)?));
    }
    let (module, part) = name.rsplit_once('.')?;
    let end = [&m.embedding, &m.norm, &m.head].into_iter().find(|end| of(end)[0] == module)?;
    (part == "weight").then(|| format!("{}.{part}", of(end)[1]))
}

/// Replaces the module of a name in a layer.
fn in_layer(family: &Family, name: &str, of: fn(&Module) -> [&str; 2]) -> Option<String> {
    let m = family.modules;
    let decay = DECAYS.iter().filter(|_| family.delta_rule).find(|decay| of(decay)[0] == name);
    if let Some(decay) = decay {
        return Some(of(decay)[1].to_owned());
    }
    let (module, part) = name.rsplit_once('.')?;
    let norms = [&m.q_norm, &m.k_norm].into_iter().filter(|_| family.qk_norm != QkNorm::None);
    let norms = norms.chain([&m.input_norm, &m.o_norm, &m.post_norm, &m.down_norm].into_iter().flatten());
    let without = norms.chain(delta_rule(m).into_iter().filter(|_| family.delta_rule));
    let of_mlp = if family.experts == Experts::None { vec![&m.gate, &m.up, &m.down] } else { of_experts(family) };
    let without = without.chain(of_mlp).map(|module| (module, Bias::Never));
    let (found, bias) = biases(family).into_iter().chain(without).find(|(found, _)| of(found)[0] == module)?;
    let known = part == "weight" || part == "bias" && bias != Bias::Never;
    known.then(|| format!("{}.{part}", of(found)[1]))
}

/// The projections of attention and their biases. llama.cpp's files have no biases of the MLP, none of attention's
/// output where a norm follows, and none beside the gated delta rule.
fn biases(family: &Family) -> [(&'static Module, Bias); 4] {
    let m = family.modules;
    let qkv = if family.delta_rule { Bias::Never } else { family.qkv_bias };
    let o = if family.delta_rule || m.o_norm.is_some() { Bias::Never } else { family.o_bias };
    [(&m.q, qkv), (&m.k, qkv), (&m.v, qkv), (&m.o, o)]
}

/// Modules of a layer with experts besides those that all experts have in one tensor.
fn of_experts(family: &Family) -> Vec<&'static Module> {
    let e = &family.modules.experts;
    let shared = [&e.shared_router, &e.shared_gate, &e.shared_up, &e.shared_down].into_iter();
    [&e.router].into_iter().chain(shared.filter(|_| family.experts == Experts::RoutedAndShared)).collect()
}

/// Modules of the gated delta rule with a weight.
fn delta_rule(modules: &Modules) -> [&Module; 7] {
    let d = &modules.delta_rule;
    [&d.qkv, &d.z, &d.b, &d.a, &d.conv, &d.norm, &d.out]
}
