//! The model's shape, as a Hugging Face `config.json` says it.

use precast_kernels::Gate;
use precast_plan::family::{Bias, Experts, Family, Windows};
use precast_plan::pads_by_default;
use serde_json::{Value, json};

use super::keys::{self, KEYS_OF_SCALES, PATTERN_KEY, WINDOW_BASE_KEY, WINDOW_KEY, key_of};
use super::metadata::{Metadata, required};
use super::rope;
use super::{Gguf, delta_rule, experts};
use crate::checkpoint::fault::Fault;
use crate::checkpoint::single_file::SingleFile;

const ARCHITECTURE_KEY: &str = "general.architecture";
const TYPE_KEY: &str = "general.type";
const SPLIT_KEY: &str = "split.count";

/// The family of a file, which has to hold a whole model.
pub(super) fn family(metadata: &Metadata) -> Result<&'static Family, Fault> {
    if let Some(parts) = metadata.integer(SPLIT_KEY)?.filter(|parts| *parts > 1) {
        let remedy = "the model is split over files; merge them with llama.cpp's llama-gguf-split --merge";
        return Err(metadata.refuse(SPLIT_KEY, parts, remedy));
    }
    if let Some(kind) = metadata.string(TYPE_KEY)?.filter(|kind| kind != "model") {
        return Err(metadata.refuse(TYPE_KEY, kind, "only files of whole models are read (type `model`)"));
    }
    let name = required(ARCHITECTURE_KEY, metadata.string(ARCHITECTURE_KEY)?)?;
    let reason = match Family::of_gguf(&name) {
        Some(family) if family.has_gguf() => return Ok(family),
        Some(family) => format!("files of {family} are not read. Give its Hugging Face directory"),
        None => format!("supported are {}", Family::list(Family::has_gguf, |family| family.gguf)),
    };
    Err(metadata.refuse(ARCHITECTURE_KEY, &name, reason))
}

/// Query heads, at least one, and key heads.
pub(super) fn head_counts(family: &Family, metadata: &Metadata) -> Result<(u64, u64), Fault> {
    let (key, kv_key) = (key_of(family, "attention.head_count"), key_of(family, "attention.head_count_kv"));
    let heads = required(&key, metadata.integer(&key)?)?;
    let kv_heads = metadata.integer(&kv_key)?;
    for (key, count) in [(key, heads), (kv_key, kv_heads.unwrap_or(heads))] {
        if count == 0 {
            return Err(metadata.refuse(&key, count, "there must be a head"));
        }
    }
    Ok((heads, kv_heads.unwrap_or(heads)))
}

/// Refuses what would make the model compute something else than its family does.
fn check_supported(family: &Family, metadata: &Metadata, head_dim: u64) -> Result<(), Fault> {
    keys::check(family, metadata)?;
    let key = key_of(family, "rope.dimension_count");
    if let Some(count) = metadata.integer(&key)?.filter(|count| *count != head_dim && !family.delta_rule) {
        let expected = format!("rotary embeddings of less than a head ({head_dim}) are not supported");
        return Err(metadata.refuse(&key, count, expected));
    }
    let key = key_of(family, "attention.value_length");
    if let Some(length) = metadata.integer(&key)?.filter(|length| *length != head_dim) {
        return Err(metadata.refuse(&key, length, format!("keys have {head_dim} and values must have as many")));
    }
    Ok(())
}

/// Rotary base that llama.cpp assumes where no key says one, of layers with a window too.
const BASE: f64 = 10000.0;

/// Returns the number whose root llama.cpp divides scores of Gemma by, which no key holds: the width of a head, but in
/// the model of 27B, which it knows by its layers.
pub(super) fn query_scalar(layers: u64, hidden: u64, heads: u64, head_dim: u64) -> u64 {
    if layers == 62 { hidden / heads } else { head_dim }
}

/// Adds what layers do in families with windows on some, as llama.cpp computes it.
fn add_windows(gguf: &Gguf, full: u32, config: &mut Value) -> Result<(), Fault> {
    let Gguf { metadata, family, .. } = gguf;
    let window = metadata.integer(&key_of(family, WINDOW_KEY))?.filter(|window| *window > 0);
    let pattern = metadata.integer(&key_of(family, PATTERN_KEY))?.unwrap_or(full.into());
    config["sliding_window"] = window.into();
    match window {
        // Without a window llama.cpp takes each layer for one that sees all keys.
        None => config["sliding_window_pattern"] = 1.into(),
        Some(_) if pattern != u64::from(full) => config["sliding_window_pattern"] = pattern.into(),
        Some(_) => {}
    }
    config["rope_local_base_freq"] = metadata.decimal(&key_of(family, WINDOW_BASE_KEY))?.unwrap_or(BASE).into();
    Ok(())
}

/// See [`Gguf::config`].
pub(super) fn config(gguf: &Gguf) -> Result<Value, Fault> {
    let Gguf { metadata, family, tensors, .. } = gguf;
    let integer = |rest: &str| {
        let key = key_of(family, rest);
        required(&key, metadata.integer(&key)?)
    };
    let hidden_size = integer("embedding_length")?;
    let (heads, kv_heads) = head_counts(family, metadata)?;
    let head_dim = match metadata.integer(&key_of(family, "attention.key_length"))? {
        Some(length) => length,
        None if hidden_size.is_multiple_of(heads) => hidden_size / heads,
        None => {
            let expected = format!("{hidden_size} (embedding_length) must be a multiple of it");
            return Err(metadata.refuse(&key_of(family, "attention.head_count"), heads, expected));
        }
    };
    check_supported(family, metadata, head_dim)?;
    let epsilon_key = key_of(family, "attention.layer_norm_rms_epsilon");
    let [embedding, head] = [&family.modules.embedding, &family.modules.head].map(|module| module.parameter("weight"));
    let missing = || Fault::Wrong(format!("the file has no tensor {embedding}"));
    let vocab = tensors.shape(&embedding).ok_or_else(missing)?[0];
    let mut config = json!({
        "architectures": [family.class],
        "model_type": family.model_type,
        "hidden_size": hidden_size,
        "num_hidden_layers": delta_rule::depth(family, metadata)?,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "vocab_size": vocab,
        "rope_theta": metadata.decimal(&key_of(family, "rope.freq_base"))?.unwrap_or(BASE),
        "rms_norm_eps": required(&epsilon_key, metadata.decimal(&epsilon_key)?)?,
        "max_position_embeddings": integer("context_length")?,
        "tie_word_embeddings": tensors.shape(&head).is_none(),
        "torch_dtype": "float32",
    });
    let (field, activation) = match family.gate {
        Gate::Silu => ("hidden_act", "silu"),
        Gate::GeluTanh => ("hidden_activation", "gelu_pytorch_tanh"),
    };
    config[field] = activation.into();
    if family.root_scales {
        config["query_pre_attn_scalar"] = query_scalar(integer("block_count")?, hidden_size, heads, head_dim).into();
    }
    if let Windows::Between { full, .. } = family.windows {
        add_windows(gguf, full, &mut config)?;
    }
    match family.experts {
        Experts::None => config["intermediate_size"] = integer("feed_forward_length")?.into(),
        _ => experts::add(gguf, &mut config)?,
    }
    delta_rule::add(gguf, head_dim, &mut config)?;
    for (name, id) in ["bos_token_id", "eos_token_id"].into_iter().zip(gguf.token_ids()?) {
        if let Some(id) = id {
            config[name] = id.into();
        }
    }
    if let Some(scaling) = rope::scaling(gguf, head_dim, &config)? {
        config["rope_scaling"] = scaling;
    }
    if pads_by_default(family) {
        config["pad_token_id"] = Value::Null;
    }
    if family.multipliers {
        for (rest, field) in KEYS_OF_SCALES {
            // Readers scale by 1 where a file is silent, but for scores, which config.json and llama.cpp differ in.
            let (key, is_of_scores) = (key_of(family, rest), rest == "attention.scale");
            let scale = metadata.decimal(&key)?;
            let scale = if is_of_scores { Some(required(&key, scale)?) } else { scale };
            scale.into_iter().for_each(|scale| config[field] = scale.into());
        }
    }
    if let Bias::Configured(field) = family.qkv_bias {
        config[field] = tensors.names().any(|name| name.ends_with(".bias")).into();
    }
    Ok(config)
}
