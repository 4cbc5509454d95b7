//! Model families: one row each. What a configuration, the parameters and the readers of files need to know of a
//! family stands in its row.

use std::fmt;

/// A family of models.
#[derive(Debug, PartialEq)]
pub struct Family {
    /// What `architectures` of config.json says.
    pub class: &'static str,
    /// What `model_type` of config.json says.
    pub model_type: &'static str,
    /// What `general.architecture` of a GGUF file says; also the prefix of its keys.
    pub gguf: &'static str,
    /// Biases of q, k and v.
    pub qkv_bias: Bias,
    /// Bias of the attention output.
    pub o_bias: Bias,
    /// Biases of gate, up and down.
    pub mlp_bias: Bias,
    /// Elements of a head where config.json does not say.
    pub head_dim: HeadDim,
    /// True if each head of q and k is normalized before it is rotated.
    pub qk_norm: bool,
    /// Kinds of rotary embedding, as `rope_type` of config.json has them.
    pub rope: &'static [&'static str],
    /// Whether GGUF files store the two halves of each query and key head interleaved.
    pub gguf_interleaves_heads: bool,
    pub modules: &'static Modules,
}

/// Whether projections have a bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bias {
    /// No module has a bias.
    Never,
    /// Whatever config.json says.
    Always,
    /// As this field of config.json says; none where it says nothing.
    Configured(&'static str),
}

impl Bias {
    /// Whether there is one, given the fields of config.json.
    pub(crate) fn is_on(self, field: impl Fn(&str) -> bool) -> bool {
        match self {
            Bias::Never => false,
            Bias::Always => true,
            Bias::Configured(name) => field(name),
        }
    }
}

/// How many elements a head has where `head_dim` is not given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HeadDim {
    /// `hidden_size` over `num_attention_heads`.
    Divided,
    /// So many.
    Fixed(u32),
}

/// A module by its name in Hugging Face's files and in GGUF's. Those of a layer are named from the layer on.
#[derive(Debug, PartialEq)]
pub struct Module {
    /// `self_attn.q_proj`, `model.norm`.
    pub hugging_face: &'static str,
    /// `attn_q`, `output_norm`.
    pub gguf: &'static str,
}

/// The modules of a model that have parameters.
#[derive(Debug, PartialEq)]
pub struct Modules {
    /// One row a token.
    pub embedding: Module,
    /// Norm before attention, of each layer.
    pub input_norm: Module,
    pub q: Module,
    pub k: Module,
    pub v: Module,
    /// Norm of each query head, in families that have one.
    pub q_norm: Module,
    /// Norm of each key head, in families that have one.
    pub k_norm: Module,
    pub o: Module,
    /// Norm before the MLP.
    pub post_norm: Module,
    /// Gate of the MLP.
    pub gate: Module,
    /// What it gates.
    pub up: Module,
    /// Back to the residual stream.
    pub down: Module,
    /// Norm before the head.
    pub norm: Module,
    /// Logits; a tied model has the embedding instead.
    pub head: Module,
}

const fn module(hugging_face: &'static str, gguf: &'static str) -> Module {
    Module { hugging_face, gguf }
}

/// As Llama named them, and others after it.
static LLAMA_MODULES: Modules = Modules {
    embedding: module("model.embed_tokens", "token_embd"),
    input_norm: module("input_layernorm", "attn_norm"),
    q: module("self_attn.q_proj", "attn_q"),
    k: module("self_attn.k_proj", "attn_k"),
    v: module("self_attn.v_proj", "attn_v"),
    q_norm: module("self_attn.q_norm", "attn_q_norm"),
    k_norm: module("self_attn.k_norm", "attn_k_norm"),
    o: module("self_attn.o_proj", "attn_output"),
    post_norm: module("post_attention_layernorm", "ffn_norm"),
    gate: module("mlp.gate_proj", "ffn_gate"),
    up: module("mlp.up_proj", "ffn_up"),
    down: module("mlp.down_proj", "ffn_down"),
    norm: module("model.norm", "output_norm"),
    head: module("lm_head", "output"),
};

/// The kind of rotary embedding whose low frequencies are divided: see [`crate::rope::Llama3`].
pub const LLAMA3: &str = "llama3";

/// Every family.
pub static FAMILIES: [Family; 3] = [
    Family {
        class: "Qwen2ForCausalLM",
        model_type: "qwen2",
        gguf: "qwen2",
        qkv_bias: Bias::Always,
        o_bias: Bias::Never,
        mlp_bias: Bias::Never,
        head_dim: HeadDim::Divided,
        qk_norm: false,
        rope: &["default"],
        gguf_interleaves_heads: false,
        modules: &LLAMA_MODULES,
    },
    Family {
        class: "Qwen3ForCausalLM",
        model_type: "qwen3",
        gguf: "qwen3",
        qkv_bias: Bias::Configured("attention_bias"),
        o_bias: Bias::Configured("attention_bias"),
        mlp_bias: Bias::Never,
        head_dim: HeadDim::Fixed(128),
        qk_norm: true,
        rope: &["default"],
        gguf_interleaves_heads: false,
        modules: &LLAMA_MODULES,
    },
    Family {
        class: "LlamaForCausalLM",
        model_type: "llama",
        gguf: "llama",
        qkv_bias: Bias::Configured("attention_bias"),
        o_bias: Bias::Configured("attention_bias"),
        mlp_bias: Bias::Configured("mlp_bias"),
        head_dim: HeadDim::Divided,
        qk_norm: false,
        rope: &["default", LLAMA3],
        gguf_interleaves_heads: true,
        modules: &LLAMA_MODULES,
    },
];

impl Family {
    /// The family that config.json names, by class or by model type.
    pub fn of_config(name: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.class == name || family.model_type == name)
    }

    /// The family that a GGUF file names.
    pub fn of_gguf(name: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.gguf == name)
    }

    /// Every family as people read a list of them, by a name of each.
    pub fn list(name: impl Fn(&Self) -> &'static str) -> String {
        let names: Vec<&str> = FAMILIES.iter().map(name).collect();
        match names.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
            _ => names.concat(),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.class)
    }
}

impl Module {
    /// The Hugging Face name of a parameter of a module outside the layers.
    pub fn parameter(&self, part: &str) -> String {
        format!("{}.{part}", self.hugging_face)
    }

    /// The Hugging Face name of a parameter of a layer's module.
    pub fn layer_parameter(&self, layer: u32, part: &str) -> String {
        format!("model.layers.{layer}.{}.{part}", self.hugging_face)
    }
}
