//! Model families, one row each: everything that configurations, parameters and file readers depend on.

use std::fmt;

use precast_kernels::{Gamma, Gate};

use crate::rope::Yarn;

#[derive(PartialEq)]
pub struct Family {
    /// Entry of `architectures` in config.json.
    pub class: &'static str,
    /// `model_type` of config.json.
    pub model_type: &'static str,
    /// `general.architecture` of a GGUF file; also the prefix of its keys.
    pub gguf: &'static str,
    /// Biases of q, k and v.
    pub qkv_bias: Bias,
    /// Bias of the attention output.
    pub o_bias: Bias,
    /// Biases of gate, up and down.
    pub mlp_bias: Bias,
    /// Activation of the MLP's gate.
    pub gate: Gate,
    /// Form in which norms store what they multiply by.
    pub gamma: Gamma,
    /// Norms of q and k before they are rotated.
    pub qk_norm: QkNorm,
    /// Supported kinds of rotary embedding, as in `rope_type` of config.json.
    pub rope: &'static [&'static str],
    /// Base of the rotary embedding if config.json has none.
    pub rope_theta: f64,
    /// Scaling of the rotary embedding if config.json has none, in the family that scales queries by position too: by 1
    /// within the original length, to which sequences are bounded.
    pub yarn: Option<Yarn>,
    /// True if some layers may have no rotary embedding: `no_rope_layers`, or each of `no_rope_layer_interval`.
    pub no_rope: bool,
    /// Layers that a window of `sliding_window` keys bounds.
    pub windows: Windows,
    /// True if config.json scales scores, embedding, branches of the residual stream and logits.
    pub multipliers: bool,
    /// True if rows of the embedding are multiplied by the root of their width, and scores by that of
    /// `query_pre_attn_scalar`.
    pub root_scales: bool,
    /// True if some layers have the gated delta rule in place of attention, whose output a gate multiplies, and a part
    /// of a head is rotated.
    pub delta_rule: bool,
    /// Experts in place of MLPs.
    pub experts: Experts,
    /// True if GGUF files interleave the two halves of each query and key head.
    pub gguf_interleaves_heads: bool,
    pub modules: &'static Modules,
}

/// Presence of a projection's bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bias {
    /// No model has a bias.
    Never,
    /// Every model has one.
    Always,
    /// This field of config.json decides; no bias if it is missing.
    Configured(&'static str),
}

impl Bias {
    /// True if there is a bias, given the fields of config.json.
    pub(crate) fn is_on(self, field: impl Fn(&str) -> bool) -> bool {
        match self {
            Bias::Never => false,
            Bias::Always => true,
            Bias::Configured(name) => field(name),
        }
    }
}

/// Experts of a layer, in place of its MLP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Experts {
    None,
    /// Those that a router chooses.
    Routed,
    /// Those, and one for all tokens, with a gate of its own.
    RoutedAndShared,
}

/// Elements of queries, or of keys, that are normalized together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QkNorm {
    /// None: they are not normalized.
    None,
    /// A head's.
    Head,
    /// A token's.
    Row,
}

/// Layers whose queries see a window of keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Windows {
    /// None.
    Never,
    /// All, if config.json has a window.
    Every,
    /// Those that `layer_types` names, else all, if config.json has a window.
    Listed,
    /// All but each of so many, or those that `layer_types` names; they have a rotary embedding of their own.
    Between { full: u32, theta: f64 },
}

/// A module by its names in Hugging Face's files and in GGUF's; within a layer the names are relative to it.
#[derive(Debug, PartialEq)]
pub struct Module {
    /// `self_attn.q_proj`, `model.norm`.
    pub hugging_face: &'static str,
    /// `attn_q`, `output_norm`.
    pub gguf: &'static str,
}

/// Modules of a model with parameters.
#[derive(Debug, PartialEq)]
pub struct Modules {
    /// Embedding table, one row per token.
    pub embedding: Module,
    /// Norm before attention, in each layer of families that have one.
    pub input_norm: Option<Module>,
    pub q: Module,
    pub k: Module,
    pub v: Module,
    /// Norm of queries, in families that have one.
    pub q_norm: Module,
    /// Norm of keys, in families that have one.
    pub k_norm: Module,
    pub o: Module,
    /// Norm of what attention adds to the residual stream, in families that have one.
    pub o_norm: Option<Module>,
    /// Layers of the gated delta rule, in families that have some.
    pub delta_rule: DeltaRuleModules,
    /// Norm before the MLP, in families that have one.
    pub post_norm: Option<Module>,
    /// Gate of the MLP.
    pub gate: Module,
    /// Up projection of the MLP, which the gate multiplies.
    pub up: Module,
    /// Down projection of the MLP.
    pub down: Module,
    /// Experts in place of the MLP, in families that have them.
    pub experts: ExpertModules,
    /// Norm of what the MLP adds to the residual stream, in families that have one.
    pub down_norm: Option<Module>,
    /// Norm before the head.
    pub norm: Module,
    /// Head; a tied model uses the embedding.
    pub head: Module,
}

/// Modules of a layer of the gated delta rule.
#[derive(Debug, PartialEq)]
pub struct DeltaRuleModules {
    /// Queries, keys and values, before their convolution.
    pub qkv: Module,
    /// Gates of the output.
    pub z: Module,
    /// Step sizes.
    pub b: Module,
    /// Decays.
    pub a: Module,
    /// Convolution of queries, keys and values.
    pub conv: Module,
    /// Parameters of the decays, `A_log` and `dt_bias`; in GGUF files `ssm_a` and `ssm_dt.bias`.
    pub decay: Module,
    /// Norm of each head of the output.
    pub norm: Module,
    pub out: Module,
}

/// Modules of a layer with experts, where `*` is the number of one. GGUF files have one tensor of all.
#[derive(Debug, PartialEq)]
pub struct ExpertModules {
    /// A row for each expert.
    pub router: Module,
    pub gate: Module,
    pub up: Module,
    pub down: Module,
    /// Row of the shared expert's gate.
    pub shared_router: Module,
    pub shared_gate: Module,
    pub shared_up: Module,
    pub shared_down: Module,
}

const fn module(hugging_face: &'static str, gguf: &'static str) -> Module {
    Module { hugging_face, gguf }
}

/// Names of Llama and later families.
const LLAMA_MODULES: Modules = Modules {
    embedding: module("model.embed_tokens", "token_embd"),
    input_norm: Some(module("input_layernorm", "attn_norm")),
    q: module("self_attn.q_proj", "attn_q"),
    k: module("self_attn.k_proj", "attn_k"),
    v: module("self_attn.v_proj", "attn_v"),
    q_norm: module("self_attn.q_norm", "attn_q_norm"),
    k_norm: module("self_attn.k_norm", "attn_k_norm"),
    o: module("self_attn.o_proj", "attn_output"),
    o_norm: None,
    delta_rule: DeltaRuleModules {
        qkv: module("linear_attn.in_proj_qkv", "attn_qkv"),
        z: module("linear_attn.in_proj_z", "attn_gate"),
        b: module("linear_attn.in_proj_b", "ssm_beta"),
        a: module("linear_attn.in_proj_a", "ssm_alpha"),
        conv: module("linear_attn.conv1d", "ssm_conv1d"),
        decay: module("linear_attn", "ssm_a"),
        norm: module("linear_attn.norm", "ssm_norm"),
        out: module("linear_attn.out_proj", "ssm_out"),
    },
    post_norm: Some(module("post_attention_layernorm", "ffn_norm")),
    gate: module("mlp.gate_proj", "ffn_gate"),
    up: module("mlp.up_proj", "ffn_up"),
    down: module("mlp.down_proj", "ffn_down"),
    experts: ExpertModules {
        router: module("mlp.gate", "ffn_gate_inp"),
        gate: module("mlp.experts.*.gate_proj", "ffn_gate_exps"),
        up: module("mlp.experts.*.up_proj", "ffn_up_exps"),
        down: module("mlp.experts.*.down_proj", "ffn_down_exps"),
        shared_router: module("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
        shared_gate: module("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
        shared_up: module("mlp.shared_expert.up_proj", "ffn_up_shexp"),
        shared_down: module("mlp.shared_expert.down_proj", "ffn_down_shexp"),
    },
    down_norm: None,
    norm: module("model.norm", "output_norm"),
    head: module("lm_head", "output"),
};

/// Names of Gemma 3: norms before and behind attention and MLP.
const GEMMA3_MODULES: Modules = Modules {
    o_norm: Some(module("post_attention_layernorm", "post_attention_norm")),
    post_norm: Some(module("pre_feedforward_layernorm", "ffn_norm")),
    down_norm: Some(module("post_feedforward_layernorm", "post_ffw_norm")),
    ..LLAMA_MODULES
};

/// Names of Qwen3.5.
const QWEN3_5_MODULES: Modules =
    Modules { post_norm: Some(module("post_attention_layernorm", "post_attention_norm")), ..LLAMA_MODULES };

/// Names of OLMo 2: norms behind attention and MLP only.
const OLMO2_MODULES: Modules = Modules { input_norm: None, post_norm: None, ..GEMMA3_MODULES };

/// Rotary embedding with divided low frequencies: see [`crate::rope::Llama3`].
pub const LLAMA3: &str = "llama3";
/// Rotary embedding with all frequencies divided by a factor.
pub const LINEAR: &str = "linear";
/// Rotary embedding with divided low frequencies and scaled scores: see [`crate::rope::Yarn`].
pub const YARN: &str = "yarn";

/// Llama, of which other rows are variations.
const LLAMA: Family = Family {
    class: "LlamaForCausalLM",
    model_type: "llama",
    gguf: "llama",
    qkv_bias: Bias::Configured("attention_bias"),
    o_bias: Bias::Configured("attention_bias"),
    mlp_bias: Bias::Configured("mlp_bias"),
    gate: Gate::Silu,
    gamma: Gamma::Weight,
    qk_norm: QkNorm::None,
    rope: &["default", LLAMA3],
    rope_theta: 10_000.0,
    yarn: None,
    no_rope: false,
    windows: Windows::Never,
    multipliers: false,
    root_scales: false,
    delta_rule: false,
    experts: Experts::None,
    gguf_interleaves_heads: true,
    modules: &LLAMA_MODULES,
};

/// Mistral, of which Ministral is a variation.
const MISTRAL: Family = Family {
    class: "MistralForCausalLM",
    model_type: "mistral",
    qkv_bias: Bias::Never,
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    rope: &["default"],
    windows: Windows::Every,
    ..LLAMA
};

/// Scaling of Ministral 3.
const MINISTRAL3_YARN: Yarn = Yarn {
    factor: 16.0,
    attention_factor: 1.0,
    beta_fast: 32.0,
    beta_slow: 1.0,
    truncate: true,
    original_max_position_embeddings: 16_384,
};

/// OLMo 2, of which OLMo 3 is a variation.
const OLMO2: Family = Family {
    class: "Olmo2ForCausalLM",
    model_type: "olmo2",
    gguf: "olmo2",
    mlp_bias: Bias::Never,
    qk_norm: QkNorm::Row,
    rope: &["default"],
    gguf_interleaves_heads: false,
    modules: &OLMO2_MODULES,
    ..LLAMA
};

/// Qwen3, of which the one with experts is a variation.
const QWEN3: Family = Family {
    class: "Qwen3ForCausalLM",
    model_type: "qwen3",
    gguf: "qwen3",
    mlp_bias: Bias::Never,
    qk_norm: QkNorm::Head,
    rope: &["default"],
    gguf_interleaves_heads: false,
    ..LLAMA
};

/// Qwen3.5, of which the one with experts is a variation.
const QWEN3_5: Family = Family {
    class: "Qwen3_5ForCausalLM",
    model_type: "qwen3_5_text",
    gguf: "qwen35",
    mlp_bias: Bias::Never,
    gamma: Gamma::OnePlus,
    qk_norm: QkNorm::Head,
    rope: &["default"],
    delta_rule: true,
    gguf_interleaves_heads: false,
    modules: &QWEN3_5_MODULES,
    ..LLAMA
};

/// The first family that GGUF files name is the one that they are read as.
pub static FAMILIES: [Family; 14] = [
    Family {
        class: "Qwen2ForCausalLM",
        model_type: "qwen2",
        gguf: "qwen2",
        qkv_bias: Bias::Always,
        o_bias: Bias::Never,
        mlp_bias: Bias::Never,
        rope: &["default"],
        gguf_interleaves_heads: false,
        ..LLAMA
    },
    QWEN3,
    LLAMA,
    MISTRAL,
    Family { class: "MinistralForCausalLM", model_type: "ministral", windows: Windows::Listed, ..MISTRAL },
    Family {
        class: "Ministral3ForCausalLM",
        model_type: "ministral3",
        gguf: "mistral3",
        rope: &[YARN],
        rope_theta: 1e6,
        yarn: Some(MINISTRAL3_YARN),
        ..MISTRAL
    },
    Family {
        class: "SmolLM3ForCausalLM",
        model_type: "smollm3",
        gguf: "smollm3",
        rope: &["default"],
        rope_theta: 2_000_000.0,
        no_rope: true,
        ..LLAMA
    },
    Family {
        class: "GraniteForCausalLM",
        model_type: "granite",
        gguf: "granite",
        rope: &["default"],
        multipliers: true,
        ..LLAMA
    },
    OLMO2,
    Family {
        class: "Olmo3ForCausalLM",
        model_type: "olmo3",
        rope: &["default", YARN],
        rope_theta: 5e5,
        windows: Windows::Between { full: 4, theta: 5e5 },
        ..OLMO2
    },
    Family {
        class: "Gemma3ForCausalLM",
        model_type: "gemma3_text",
        gguf: "gemma3",
        mlp_bias: Bias::Never,
        gate: Gate::GeluTanh,
        gamma: Gamma::OnePlus,
        qk_norm: QkNorm::Head,
        rope: &["default", LINEAR],
        rope_theta: 1e6,
        windows: Windows::Between { full: 6, theta: 1e4 },
        root_scales: true,
        gguf_interleaves_heads: false,
        modules: &GEMMA3_MODULES,
        ..LLAMA
    },
    QWEN3_5,
    Family {
        class: "Qwen3MoeForCausalLM",
        model_type: "qwen3_moe",
        gguf: "qwen3moe",
        experts: Experts::Routed,
        ..QWEN3
    },
    Family {
        class: "Qwen3_5MoeForCausalLM",
        model_type: "qwen3_5_moe_text",
        gguf: "qwen35moe",
        experts: Experts::RoutedAndShared,
        ..QWEN3_5
    },
];

impl Family {
    /// Finds the family of a `model_type` of config.json.
    pub fn of_model_type(name: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.model_type == name)
    }

    /// Finds the family that a GGUF file names.
    pub fn of_gguf(name: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.gguf == name)
    }

    /// True if GGUF files of it are read and written.
    pub fn has_gguf(&self) -> bool {
        !self.rope.contains(&YARN)
    }

    /// Lists families for people, by one name each.
    pub fn list(is_listed: impl Fn(&Self) -> bool, name: impl Fn(&Self) -> &'static str) -> String {
        let mut names: Vec<&str> = FAMILIES.iter().filter(|family| is_listed(family)).map(name).collect();
        names.dedup();
        match names.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
            _ => names.concat(),
        }
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.class)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.class)
    }
}

impl Module {
    /// Returns the Hugging Face name of a parameter of a module outside the layers.
    pub fn parameter(&self, part: &str) -> String {
        format!("{}.{part}", self.hugging_face)
    }

    /// Returns the Hugging Face name of a parameter of a layer's module.
    pub fn layer_parameter(&self, layer: u32, part: &str) -> String {
        format!("model.layers.{layer}.{}.{part}", self.hugging_face)
    }
}
