//! Shape of a model.

use precast_kernels::{attention, qk_norm};
use serde::Deserialize;
use serde_json::Value;

use super::delta::DeltaHeads;
use super::error::ConfigError;
use super::experts::{self, ExpertsConfig};
use super::layer::{LayerConfig, LayerKind, RopeConfig};
use super::rewritten::rewritten;
use super::scales::{self, Multipliers};
use super::unsupported::given;
use super::{delta, fields, layer, rope, unsupported};
use crate::columns::logit_columns;
use crate::family::{Bias, FAMILIES, Family, QkNorm};
use crate::rope::{RopeTables, Scaling, frequencies, tables};

/// Every property of a model that determines its plan.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    pub family: &'static Family,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Width of the MLP, or of each expert.
    pub intermediate: u32,
    /// Experts in place of each layer's MLP, in families that have them.
    pub experts: Option<ExpertsConfig>,
    /// Its layers, from the lowest upward.
    pub layers: Vec<LayerConfig>,
    pub heads: u32,
    /// Key/value heads.
    pub kv_heads: u32,
    /// Width of a head.
    pub head_dim: u32,
    /// Elements of a head that are rotated, from its first on.
    pub rotary: u32,
    /// Heads of the gated delta rule, in families that have it.
    pub delta_heads: Option<DeltaHeads>,
    /// Rows of the embedding table.
    pub vocab: u32,
    /// Id whose row of the embedding table gets no gradient from lookups: `padding_idx` of torch.nn.Embedding.
    pub padding: Option<u32>,
    /// Longest sequence that the model supports.
    pub max_positions: u32,
    /// Epsilon of the norms.
    pub rms_norm_eps: f32,
    /// Rotary embeddings, of which each layer has one at most.
    pub ropes: Vec<RopeConfig>,
    /// True if the head is the embedding table.
    pub tied: bool,
    /// Factor of the scores of queries and keys.
    pub score_scale: f32,
    pub multipliers: Multipliers,
    /// Biases on q, k and v.
    pub qkv_bias: bool,
    /// Bias on the attention output.
    pub o_bias: bool,
    /// Biases on gate, up and down.
    pub mlp_bias: bool,
}

/// Most elements of a matrix: twice those of the largest known vocabulary and width.
const MOST_MATRIX: u64 = 1 << 33;
/// Most layers: four times those of the deepest known models. A plan's dependencies grow with the square of its
/// launches.
const MOST_LAYERS: u32 = 512;

/// Fields of `config.json` that are read, as spelled there.
#[derive(Deserialize)]
struct Raw {
    hidden_size: u32,
    intermediate_size: u32,
    num_hidden_layers: u32,
    num_attention_heads: u32,
    num_key_value_heads: Option<u32>,
    head_dim: Option<u32>,
    vocab_size: u32,
    pad_token_id: Option<i64>,
    max_position_embeddings: Option<u32>,
    rms_norm_eps: Option<f64>,
    tie_word_embeddings: Option<bool>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
}

impl ModelConfig {
    /// Reads a Hugging Face `config.json`, with or without a byte order mark; of a model that also sees images,
    /// that of its text model; of a dense Granite 4.0, that of Granite.
    ///
    /// The rotary base is read from `rope_parameters.rope_theta` (newer files) or `rope_theta`, its scaling from
    /// `rope_parameters` or `rope_scaling` (older files).
    ///
    /// # Errors
    /// [`ConfigError`] for another architecture, any feature that would change the mathematics (rope scaling or windows
    /// that the family has not, dropout, another activation, quantized weights), or inconsistent numbers.
    pub fn from_json(text: &str) -> Result<Self, ConfigError> {
        let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
        let mut value: Value = serde_json::from_str(text)?;
        unsupported::refuse_model(&value["model_type"])?;
        if let Some(rewritten) = rewritten(&value)? {
            value = rewritten.config;
        } else if given(&value, "moe_intermediate_size").is_none() {
            // A number where text should be is named by its line and column.
            serde_json::from_str::<Raw>(text)?;
        }
        let family = family(&value)?;
        fields::refuse_null(&value, family)?;
        experts::spell(&mut value, family)?;
        fields::fill(&mut value, family.model_type, &fields::REQUIRED);
        let experts = experts::experts(&mut value, family)?;
        let raw: Raw = Deserialize::deserialize(&value)?;
        unsupported::refuse(&value, family)?;
        let bias = |bias: Bias| bias.is_on(|field| raw.flag(field));
        let divided = || raw.hidden_size.checked_div(raw.num_attention_heads);
        let head_dim = raw.head_dim.or_else(divided).unwrap_or(0);
        let ropes = rope::ropes(&value, family)?;
        let original = ropes[0].original().filter(|_| family.yarn.is_some());
        let config = Self {
            family,
            hidden: raw.hidden_size,
            intermediate: raw.intermediate_size,
            experts,
            layers: layer::layers(&value, family, raw.layers()?)?,
            heads: raw.num_attention_heads,
            // Of null transformers makes the number of heads.
            kv_heads: raw.num_key_value_heads.unwrap_or(raw.num_attention_heads),
            head_dim,
            rotary: rope::rotary(&value, family, head_dim)?,
            delta_heads: delta::heads(&value, family)?,
            vocab: raw.vocab_size,
            padding: raw.padding()?,
            max_positions: raw.max_position_embeddings.unwrap_or(u32::MAX).min(original.unwrap_or(u32::MAX)),
            rms_norm_eps: raw.rms_norm_eps.unwrap_or(1e-6) as f32,
            ropes,
            tied: raw.tie_word_embeddings.unwrap_or(false),
            score_scale: scales::scores(&value, family, head_dim)?,
            multipliers: scales::multipliers(&value, family, raw.hidden_size)?,
            qkv_bias: bias(family.qkv_bias),
            o_bias: bias(family.o_bias),
            mlp_bias: bias(family.mlp_bias),
        };
        config.check()?;
        Ok(config)
    }

    /// Returns the width of one row of the packed queries, keys and values.
    pub fn qkv_width(&self) -> u32 {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Returns the width of what attention's first GEMM computes: queries, keys, values, and gates of the output.
    pub fn projected_width(&self) -> u32 {
        self.qkv_width() + if self.family.delta_rule { self.attention_width() } else { 0 }
    }

    /// Returns the width of the attention output before its projection.
    pub fn attention_width(&self) -> u32 {
        self.heads * self.head_dim
    }

    /// Returns the MLPs of a layer that have weights: one, or one for each expert.
    pub fn mlps(&self) -> u32 {
        self.experts.map_or(1, ExpertsConfig::matrices)
    }

    /// True if a layer has the gated delta rule.
    pub fn has_delta_rule(&self) -> bool {
        self.layers.iter().any(|layer| layer.kind == LayerKind::DeltaRule)
    }

    /// Returns the heads of a layer of the gated delta rule; none of another.
    pub fn heads_of(&self, layer: &LayerConfig) -> Option<DeltaHeads> {
        self.delta_heads.filter(|_| layer.kind == LayerKind::DeltaRule)
    }

    /// Returns the number of layers.
    pub fn depth(&self) -> u32 {
        self.layers.len() as u32
    }

    /// Returns a model with so many of its lowest layers, or with as many as it has.
    pub fn cut(&self, layers: u32) -> Self {
        let layers = self.layers.iter().take(layers as usize).copied().collect();
        Self { layers, ..self.clone() }
    }

    /// Returns what its layers do, each kind once.
    pub fn kinds(&self) -> Vec<LayerConfig> {
        let mut kinds: Vec<LayerConfig> = Vec::new();
        for layer in &self.layers {
            if !kinds.contains(layer) {
                kinds.push(*layer);
            }
        }
        kinds
    }

    /// Returns a model that launches what this one does: its first layer and the first of each kind behind it, and
    /// sequences of any length. More add launches but no keys.
    pub fn representative(&self) -> Self {
        let mut layers = self.layers[..1].to_vec();
        for layer in &self.layers[1..] {
            if !layers[1..].contains(layer) {
                layers.push(*layer);
            }
        }
        Self { layers, max_positions: u32::MAX, ..self.clone() }
    }

    /// Returns the columns of this model's logits.
    pub fn logit_columns(&self) -> u32 {
        logit_columns(self.vocab)
    }

    /// Returns the elements of the head's matrix on a device: a row for each column of the logits.
    pub(crate) fn head_elems(&self) -> u64 {
        u64::from(self.logit_columns()) * u64::from(self.hidden)
    }

    /// Returns the frequencies of each rotary embedding, of each pair of rotated elements, radians per position.
    pub fn rope_frequencies(&self) -> Vec<Vec<f32>> {
        self.ropes.iter().map(|rope| frequencies(rope.theta, rope.scaling, self.rotary)).collect()
    }

    /// Returns the field of config.json that bounds sequences.
    pub(crate) fn bound(&self) -> &'static str {
        match self.ropes[0].original() == Some(self.max_positions) && self.family.yarn.is_some() {
            true => "original_max_position_embeddings",
            false => "max_position_embeddings",
        }
    }

    /// Returns the tables of each rotary embedding, of so many positions.
    pub fn rope_tables(&self, seq_len: u32) -> Vec<RopeTables> {
        let factors = self.ropes.iter().map(|rope| rope.scaling.map_or(1.0, Scaling::attention_factor));
        let tables = |(frequencies, factor): (Vec<f32>, f32)| tables(&frequencies, factor, seq_len);
        self.rope_frequencies().into_iter().zip(factors).map(tables).collect()
    }

    fn check(&self) -> Result<(), ConfigError> {
        let inconsistent = |what: String| Err(ConfigError::Inconsistent(what));
        let sizes = [
            ("hidden_size", self.hidden),
            ("intermediate_size", self.intermediate),
            ("num_hidden_layers", self.depth()),
            ("num_attention_heads", self.heads),
            ("num_key_value_heads", self.kv_heads),
            ("vocab_size", self.vocab),
        ];
        if let Some((name, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
            return inconsistent(format!("{name} is 0"));
        }
        if let Some((name, size)) = sizes.into_iter().find(|(_, size)| *size > 1 << 20) {
            return inconsistent(format!("{name} is {size}, larger than any model this was made for (2^20)"));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return inconsistent(format!(
                "{} query heads do not share {} key/value heads evenly",
                self.heads, self.kv_heads
            ));
        }
        if !attention::supports(self.head_dim) {
            return Err(ConfigError::Unsupported {
                field: "head_dim".to_owned(),
                value: self.head_dim.to_string(),
                reason: "the attention kernels take multiples of 16 up to 128, and 256",
            });
        }
        if self.family.delta_rule && !qk_norm::gated::supports(self.head_dim, self.rotary) {
            return Err(ConfigError::Unsupported {
                field: "partial_rotary_factor".to_owned(),
                value: format!("{} of head_dim {}", self.rotary, self.head_dim),
                reason: "a multiple of 16 is rotated of heads wider than 64",
            });
        }
        if self.family.qk_norm == QkNorm::Row && !qk_norm::row::supports(self.attention_width()) {
            return Err(ConfigError::Unsupported {
                field: "num_attention_heads".to_owned(),
                value: self.heads.to_string(),
                reason: "norms of all heads of a query take heads times head_dim up to 8192",
            });
        }
        let delta = self.delta_heads.map_or(0, DeltaHeads::projected);
        let mlps = u64::from(self.intermediate) * u64::from(2 * self.mlps());
        let width = self.vocab.max(self.intermediate).max(self.projected_width()).max(delta);
        let width = if self.experts.is_some() { mlps.max(width.into()) } else { width.into() };
        if u64::from(self.hidden) * width > MOST_MATRIX {
            return inconsistent(format!(
                "a matrix of {} x {width} is larger than any model's this was made for (2^33 elements)",
                self.hidden
            ));
        }
        if !(self.rms_norm_eps.is_finite() && self.rms_norm_eps > 0.0) {
            return inconsistent(format!("rms_norm_eps is {}", self.rms_norm_eps));
        }
        if let Some(rope) = self.ropes.iter().find(|rope| !(rope.theta.is_finite() && rope.theta > 1.0)) {
            return inconsistent(format!("rope_theta is {}", rope.theta));
        }
        Ok(())
    }
}

impl Raw {
    /// Returns the number of layers, which a model can have.
    fn layers(&self) -> Result<u32, ConfigError> {
        match self.num_hidden_layers {
            layers @ ..=MOST_LAYERS => Ok(layers),
            layers => Err(ConfigError::Inconsistent(format!(
                "num_hidden_layers is {layers}, at most {MOST_LAYERS} are planned"
            ))),
        }
    }

    /// Returns the row that `pad_token_id` names; a negative one counts from the table's end, as torch has it.
    fn padding(&self) -> Result<Option<u32>, ConfigError> {
        let Some(id) = self.pad_token_id else { return Ok(None) };
        let row = if id < 0 { id + i64::from(self.vocab_size) } else { id };
        match u32::try_from(row) {
            Ok(row) if row < self.vocab_size => Ok(Some(row)),
            _ => Err(ConfigError::Inconsistent(format!(
                "pad_token_id is {id}, and the embedding has {} rows: name one of them, or null",
                self.vocab_size
            ))),
        }
    }

    /// Reads a flag; a missing field is false.
    fn flag(&self, field: &str) -> bool {
        let value = match field {
            "attention_bias" => self.attention_bias,
            "mlp_bias" => self.mlp_bias,
            other => unreachable!("no family reads `{other}`"),
        };
        value.unwrap_or(false)
    }
}

/// Finds the family by `model_type`, as transformers does, and refuses `architectures` of another.
fn family(config: &Value) -> Result<&'static Family, ConfigError> {
    let classes: Option<Vec<String>> = Deserialize::deserialize(&config["architectures"])?;
    let model_type = &config["model_type"];
    let named = model_type.as_str().unwrap_or("none");
    let unknown = |name: &str| ConfigError::Architecture { name: name.to_owned(), model_type: named.to_owned() };
    let Some(class) = classes.iter().flatten().next() else {
        return Family::of_model_type(named).ok_or_else(|| unknown(named));
    };
    let family = FAMILIES.iter().find(|family| family.class == class).ok_or_else(|| unknown(class))?;
    if model_type.as_str() == Some(family.model_type) {
        return Ok(family);
    }
    Err(ConfigError::Inconsistent(format!(
        "model_type is {model_type}, and architectures names {class}, which is {:?}: transformers goes by \
        model_type; correct the wrong one",
        family.model_type
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(changes: &[(&str, serde_json::Value)]) -> String {
        let mut value = serde_json::json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
            "rms_norm_eps": 1e-5, "hidden_act": "silu", "max_position_embeddings": 128,
        });
        for (name, change) in changes {
            value[name] = change.clone();
        }
        value.to_string()
    }

    fn read(changes: &[(&str, serde_json::Value)]) -> Result<ModelConfig, ConfigError> {
        ModelConfig::from_json(&json(changes))
    }

    /// Changes to another family.
    fn of(family: &str, class: &str) -> [(&'static str, serde_json::Value); 2] {
        [("model_type", family.into()), ("architectures", serde_json::json!([class]))]
    }

    #[test]
    fn biases_follow_the_family() {
        let llama = read(&[]).unwrap();
        assert!(!llama.qkv_bias && !llama.o_bias && !llama.mlp_bias);
        let biased = read(&[("attention_bias", true.into()), ("mlp_bias", true.into())]).unwrap();
        assert!(biased.qkv_bias && biased.o_bias && biased.mlp_bias);
        let qwen2 = read(&of("qwen2", "Qwen2ForCausalLM")).unwrap();
        assert!(qwen2.qkv_bias && !qwen2.o_bias && !qwen2.mlp_bias);
        let qwen3 = |bias: bool| {
            let [model_type, class] = of("qwen3", "Qwen3ForCausalLM");
            read(&[model_type, class, ("attention_bias", bias.into())]).unwrap()
        };
        assert!(!qwen3(false).qkv_bias && !qwen3(false).o_bias);
        assert!(qwen3(true).qkv_bias && qwen3(true).o_bias && !qwen3(true).mlp_bias);
    }

    #[test]
    fn head_dim_is_explicit_or_follows() {
        assert_eq!(read(&[]).unwrap().head_dim, 16);
        assert_eq!(read(&[("head_dim", 128.into())]).unwrap().head_dim, 128);
        // As transformers writes it: not hidden_size / num_attention_heads.
        let [model_type, class] = of("qwen3", "Qwen3ForCausalLM");
        assert_eq!(read(&[model_type.clone(), class.clone()]).unwrap().head_dim, 128);
        assert_eq!(read(&[model_type, class, ("head_dim", 64.into())]).unwrap().head_dim, 64);
    }

    #[test]
    fn heads_of_keys_are_those_of_transformers() {
        let heads = |model_type: &str, class: &str, change: fn(&mut Value)| {
            let [model_type, class] = of(model_type, class);
            let mut config = serde_json::from_str(&json(&[
                model_type,
                class,
                ("num_attention_heads", 64.into()),
                ("head_dim", 16.into()),
            ]))
            .unwrap();
            change(&mut config);
            ModelConfig::from_json(&config.to_string()).unwrap().kv_heads
        };
        let absent: fn(&mut Value) = |config| drop(config.as_object_mut().unwrap().remove("num_key_value_heads"));
        let null: fn(&mut Value) = |config| config["num_key_value_heads"] = Value::Null;
        assert_eq!(heads("llama", "LlamaForCausalLM", absent), 64);
        assert_eq!(heads("qwen2", "Qwen2ForCausalLM", absent), 32);
        assert_eq!(heads("qwen3", "Qwen3ForCausalLM", absent), 32);
        assert_eq!(heads("qwen3", "Qwen3ForCausalLM", null), 64);
    }

    #[test]
    fn a_padding_token_is_a_row_of_the_table() {
        let padding = |id: i64| read(&[("pad_token_id", id.into())]).map(|config| config.padding);
        assert_eq!(read(&[]).unwrap().padding, None);
        assert_eq!(padding(0).unwrap(), Some(0));
        assert_eq!(padding(-1).unwrap(), Some(99));
        let beyond = padding(100).unwrap_err().to_string();
        assert_eq!(
            beyond,
            "inconsistent config.json: pad_token_id is 100, and the embedding has 100 rows: name one of them, or null"
        );
        assert!(padding(-101).is_err());
    }

    #[test]
    fn ministral_3_is_bounded_by_the_length_within_which_queries_are_not_scaled() {
        let [model_type, class] = of("ministral3", "Ministral3ForCausalLM");
        let bound = |positions: u32, rope: Value| {
            let positions = ("max_position_embeddings", positions.into());
            let config = read(&[model_type.clone(), class.clone(), positions, ("rope_parameters", rope)]);
            config.map(|config| (config.max_positions, config.bound())).map_err(|error| error.to_string())
        };
        let original = "original_max_position_embeddings";
        let mut said = serde_json::json!({"type": "yarn", "factor": 4.0, "llama_4_scaling_beta": 0.1});
        said[original] = 4096.into();
        assert_eq!(bound(262_144, Value::Null), Ok((16_384, original)));
        assert_eq!(bound(262_144, said.clone()), Ok((4096, original)));
        assert_eq!(bound(128, said.clone()), Ok((128, "max_position_embeddings")));
        said.as_object_mut().unwrap().remove("type");
        assert!(bound(128, said).unwrap_err().contains("rope_parameters.rope_type is missing"));
    }

    #[test]
    fn queries_too_wide_for_a_norm_of_all_heads_are_refused_by_name() {
        let [model_type, class] = of("olmo2", "Olmo2ForCausalLM");
        let read = |heads: u32| {
            let (heads, width) = (("num_attention_heads", heads.into()), ("head_dim", 128.into()));
            read(&[model_type.clone(), class.clone(), heads, width]).map(|config| config.heads)
        };
        assert_eq!(read(64).unwrap(), 64);
        let error = read(72).unwrap_err().to_string();
        assert!(error.starts_with("unsupported num_attention_heads = 72: norms of all heads"), "{error}");
    }

    #[test]
    fn the_model_type_alone_names_a_family() {
        let read = |name: &str| read(&[("architectures", Value::Null), ("model_type", name.into())]);
        assert_eq!(read("qwen2").unwrap().family.model_type, "qwen2");
        let unknown = read("mixtral").unwrap_err().to_string();
        assert!(unknown.starts_with("unsupported architecture `mixtral` of model_type mixtral: "), "{unknown}");
    }

    #[test]
    fn what_would_change_the_mathematics_is_refused_by_name() {
        let refused = [
            ("architectures", serde_json::json!(["MixtralForCausalLM"])),
            ("hidden_act", "gelu".into()),
            ("attention_dropout", 0.1.into()),
            ("use_sliding_window", true.into()),
            ("layer_types", serde_json::json!(["full_attention", "sliding_attention"])),
            ("architectures", serde_json::json!(["DeepseekV3ForCausalLM"])),
            ("architectures", serde_json::json!(["Qwen2ForCausalLM"])),
            ("model_type", "mixtral".into()),
            ("model_type", "gpt_oss".into()),
            ("model_type", "gemma4".into()),
            ("model_type", "olmo_hybrid".into()),
            ("model_type", "lfm2".into()),
            ("model_type", "phi3".into()),
            ("model_type", "qwen3_next".into()),
            ("model_type", "qwen2".into()),
            ("model_type", serde_json::json!(null)),
            ("hidden_act", serde_json::json!(null)),
            ("rms_norm_eps", serde_json::json!(null)),
            ("quantization_config", serde_json::json!({"quant_method": "gptq"})),
            ("head_dim", 20.into()),
            ("head_dim", 144.into()),
            ("num_key_value_heads", 3.into()),
            ("num_attention_heads", 0.into()),
            ("hidden_size", "wide".into()),
            ("rms_norm_eps", 0.0.into()),
        ];
        let messages: Vec<String> =
            refused.into_iter().map(|(field, value)| read(&[(field, value)]).unwrap_err().to_string()).collect();
        insta::assert_snapshot!(messages.join("\n"));
    }
}
