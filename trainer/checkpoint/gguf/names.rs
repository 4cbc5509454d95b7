//! Names of tensors: ggml's to Hugging Face's.

/// Whether rows of a tensor belong to query or key heads, which llama-architecture files interleave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heads {
    /// Neither.
    None,
    /// `attention.head_count` heads.
    Query,
    /// `attention.head_count_kv` heads.
    Key,
}

/// Tensors outside the layers.
const MODEL: [(&str, &str); 3] =
    [("token_embd.weight", EMBEDDING), ("output_norm.weight", "model.norm.weight"), ("output.weight", LM_HEAD)];

/// Modules of a layer, whether they may have a bias, and whose heads.
const LAYER: [(&str, &str, bool, Heads); 9] = [
    ("attn_norm", "input_layernorm", false, Heads::None),
    ("attn_q", "self_attn.q_proj", true, Heads::Query),
    ("attn_k", "self_attn.k_proj", true, Heads::Key),
    ("attn_v", "self_attn.v_proj", true, Heads::None),
    ("attn_output", "self_attn.o_proj", true, Heads::None),
    ("ffn_norm", "post_attention_layernorm", false, Heads::None),
    ("ffn_gate", "mlp.gate_proj", false, Heads::None),
    ("ffn_up", "mlp.up_proj", false, Heads::None),
    ("ffn_down", "mlp.down_proj", false, Heads::None),
];

/// The token embedding, one row a token.
pub(super) const EMBEDDING: &str = "model.embed_tokens.weight";
/// The output projection; a model without one uses the embedding again.
pub(super) const LM_HEAD: &str = "lm_head.weight";

/// The Hugging Face name of a tensor of a llama or qwen2 model, and whose heads its rows are.
pub(super) fn hugging_face(name: &str) -> Option<(String, Heads)> {
    if let Some((_, found)) = MODEL.iter().find(|(ggml, _)| *ggml == name) {
        return Some(((*found).to_owned(), Heads::None));
    }
    let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    // Only as `to_string` writes it, so that no two names of a file become one.
    let layer = layer.parse::<u32>().ok().filter(|number| number.to_string() == layer)?;
    let (module, part) = rest.rsplit_once('.')?;
    let (_, found, has_bias, heads) = LAYER.iter().find(|(ggml, ..)| *ggml == module)?;
    let known = part == "weight" || part == "bias" && *has_bias;
    known.then(|| (format!("model.layers.{layer}.{found}.{part}"), *heads))
}
