//! `adapter_config.json`, as PEFT writes and reads it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::Path;

use itertools::Itertools;
use precast_plan::ModelConfig;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::layout::{Adapted, Layout, MOST_RANK, Projection};
use super::pattern::{Modules, Pairs, ends_in};
use crate::base::impostors::read_text;
use crate::checkpoint::CheckpointError;

/// Its name in an adapter's directory.
pub(super) const CONFIG: &str = "adapter_config.json";

/// What is followed of it. PEFT's defaults stand for what is not there.
#[derive(Debug, Deserialize)]
struct File {
    peft_type: Option<String>,
    r: Option<u64>,
    lora_alpha: Option<f64>,
    use_rslora: Option<bool>,
    target_modules: Option<Modules>,
    exclude_modules: Option<Modules>,
    layers_to_transform: Option<Layers>,
    layers_pattern: Option<Modules>,
    rank_pattern: Option<Pairs<u64>>,
    alpha_pattern: Option<Pairs<f64>>,
    lora_dropout: Option<f64>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a number or numbers of layers")]
enum Layers {
    One(u32),
    Many(Vec<u32>),
}

impl Layers {
    /// None where no layers are chosen.
    fn list(&self) -> Option<Vec<u32>> {
        match self {
            Self::One(layer) => Some(vec![*layer]),
            Self::Many(layers) => Some(layers.clone()).filter(|layers| !layers.is_empty()),
        }
    }
}

/// PEFT's defaults.
const RANK: u64 = 8;
const ALPHA: f64 = 8.0;

/// Keys that do not change what an adapter computes.
const ABOUT: [&str; 11] = [
    "auto_mapping",
    "base_model_name_or_path",
    "ensure_weight_tying",
    "eva_config",
    "inference_mode",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "task_type",
];

/// What an adapter may say, and why that is not followed.
const REFUSED: [(&str, &str); 18] = [
    ("modules_to_save", "trains whole modules beside the adapter, and the base stays as it is here"),
    ("use_dora", "is DoRA, which scales the rows of the base"),
    ("bias", "trains biases, and the base stays as it is here"),
    ("lora_bias", "adds biases to the adapter"),
    ("fan_in_fan_out", "says that layers store their weights transposed, and no layer of these models does"),
    ("layer_replication", "repeats layers of the base"),
    ("trainable_token_indices", "trains rows of the embedding, and the base stays as it is here"),
    ("target_parameters", "puts adapters on parameters that are no linear layers"),
    ("loftq_config", "changes the base"),
    ("corda_config", "changes the base"),
    ("lora_ga_config", "changes the base"),
    ("kasa_config", "changes the base"),
    ("velora_config", "changes how gradients are computed"),
    ("monteclora_config", "samples the adapter"),
    ("arrow_config", "routes between adapters"),
    ("alora_invocation_tokens", "applies the adapter to some tokens only"),
    ("use_qalora", "pools the inputs of the adapter"),
    ("use_bdlora", "makes the adapter block diagonal"),
];

/// Initial values that leave the base as it is.
const INITIAL: [&str; 3] = ["gaussian", "orthogonal", "eva"];

/// Modules that are no projections of layers: none of them has an adapter here.
const OTHERS: [&str; 2] = ["model.embed_tokens", "lm_head"];

/// What `adapter_config.json` says of a model's adapter.
pub(super) struct Read {
    pub layout: Layout,
    /// The dropout that it was trained with.
    pub dropout: f64,
    /// The path or name of the model that it was trained on, if it names one.
    pub base: Option<String>,
}

/// Reads the `adapter_config.json` of a directory, for a model.
///
/// # Errors
/// [`CheckpointError`] that names what is not followed.
pub(super) fn read(directory: &Path, model: &ModelConfig) -> Result<Read, CheckpointError> {
    let path = directory.join(CONFIG);
    let text = read_text(&path).map_err(CheckpointError::io("read", &path))?;
    let wrong = |reason: String| CheckpointError::Wrong(format!("{}: {reason}", path.display()));
    let unread = |error| wrong(format!("{error}: save the adapter again with PEFT (save_pretrained)"));
    let file: File = serde_json::from_str(&text).map_err(unread)?;
    file.followed().and_then(|()| file.layout(model)).map_err(wrong)
}

/// The error for a setting that does more than `W x + scale B A x`.
fn wrong(setting: impl Display, reason: impl Display) -> String {
    format!("{setting} {reason}. Merge it into its model with PEFT (merge_and_unload) and train a new adapter on that")
}

/// True if a value asks for nothing: null, false, an empty list or an empty map.
fn is_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

impl File {
    /// Refuses what is not followed.
    fn followed(&self) -> Result<(), String> {
        let kind = self.peft_type.as_deref().unwrap_or("missing");
        if kind != "LORA" {
            return Err(wrong(format!("peft_type is {kind}: it"), "must be LORA"));
        }
        for (name, value) in self.rest.iter().filter(|(_, value)| !is_off(value)) {
            let refused = REFUSED.iter().find(|(refused, _)| refused == name);
            match (name.as_str(), value) {
                ("bias", Value::String(which)) if which == "none" => {}
                ("init_lora_weights", Value::Bool(true)) => {}
                ("init_lora_weights", Value::String(style)) if INITIAL.contains(&style.as_str()) => {}
                ("init_lora_weights", style) => {
                    return Err(format!(
                        "init_lora_weights {style} changes the base, so that this adapter belongs to another model. \
                        Convert it with PEFT \
                         (save_pretrained with path_initial_model_for_weight_conversion), or merge it \
                         (merge_and_unload) and train a \
                         new adapter on that"
                    ));
                }
                ("task_type", Value::String(task)) if task != "CAUSAL_LM" => {
                    return Err(wrong(format!("task_type {task}"), "is not that of these models, CAUSAL_LM"));
                }
                _ if ABOUT.contains(&name.as_str()) => {}
                _ => match refused {
                    Some((_, why)) => return Err(wrong(name, why)),
                    None => return Err(wrong(format!("{name} {value}"), "is not known to this program")),
                },
            }
        }
        // Without Megatron's own configuration the name of its module says nothing.
        Ok(())
    }

    fn layout(&self, model: &ModelConfig) -> Result<Read, String> {
        let targeted = self.targeted(model)?;
        let of = |setting: &'static str| move |reason: String| wrong(setting, reason);
        let rank_of = self.rank_pattern.clone().unwrap_or_default().compiled().map_err(of("rank_pattern"))?;
        let alpha_of = self.alpha_pattern.clone().unwrap_or_default().compiled().map_err(of("alpha_pattern"))?;
        let (rank, alpha) = (self.r.unwrap_or(RANK), self.lora_alpha.unwrap_or(ALPHA));
        let mut each = Vec::new();
        for projection in targeted {
            let module = &projection.module;
            let rank = rank_of(module).map_err(of("rank_pattern"))?.unwrap_or(rank);
            let alpha = alpha_of(module).map_err(of("alpha_pattern"))?.unwrap_or(alpha);
            let (least, most) = (1, u64::from(MOST_RANK));
            if !(least..=most).contains(&rank) {
                let reason = format!("is not between {least} and {most} ({module})");
                return Err(wrong(format!("rank {rank}"), reason));
            }
            if !(alpha.is_finite() && alpha > 0.0) {
                return Err(wrong(format!("alpha {alpha}"), format!("must be a number above 0 ({module})")));
            }
            each.push(Adapted { projection, rank: rank as u32, alpha });
        }
        let layout = Layout { each, rslora: self.use_rslora.unwrap_or(false) };
        let base = self.rest.get("base_model_name_or_path").and_then(Value::as_str).filter(|base| !base.is_empty());
        Ok(Read { layout, dropout: self.lora_dropout.unwrap_or(0.0), base: base.map(str::to_owned) })
    }

    /// The projections that have adapters.
    fn targeted(&self, model: &ModelConfig) -> Result<Vec<Projection>, String> {
        let all = Projection::all(model);
        let modules: Vec<&str> = all.iter().map(|projection| projection.module.as_str()).collect();
        let untargeted = |reason: String| {
            let remedy = "Precast trains adapters on q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj";
            format!("target_modules {reason}. {remedy}")
        };
        let Some(targets) = &self.target_modules else { return Err(untargeted("is missing".to_owned())) };
        let mut chosen = match targets {
            Modules::Pattern(every) if every == "all-linear" => modules.clone(),
            targets => {
                if let Some(other) = targets.of(&OTHERS).map_err(untargeted)?.first() {
                    return Err(untargeted(format!("has {other}, which is no projection of a layer")));
                }
                if let Modules::Names(names) = targets
                    && let Some(name) = names.iter().find(|name| !modules.iter().any(|module| ends_in(module, name)))
                {
                    return Err(untargeted(format!("has {name}, which the model has not")));
                }
                targets.of(&modules).map_err(untargeted)?
            }
        };
        if let Some(excluded) = &self.exclude_modules {
            let excluded = excluded.of(&modules).map_err(|reason| wrong("exclude_modules", reason))?;
            chosen.retain(|module| !excluded.contains(module));
        }
        if let Some(layers) = self.layers_to_transform.as_ref().and_then(Layers::list) {
            let pattern = |pattern: &str| matches!(pattern, "" | "layers" | "model.layers");
            let usual = match &self.layers_pattern {
                None => true,
                Some(Modules::Pattern(one)) => pattern(one),
                Some(Modules::Names(many)) => many.iter().all(|one| pattern(one)),
            };
            if !usual {
                return Err(wrong("layers_pattern", "is not `layers`, where these models have their layers"));
            }
            if matches!(targets, Modules::Pattern(_)) {
                return Err(wrong("layers_to_transform", "is given beside a pattern of target_modules"));
            }
            if let Some(layer) = layers.iter().find(|layer| **layer >= model.depth()) {
                let last = model.depth() - 1;
                return Err(format!(
                    "layers_to_transform {layer} is not there: the model has layers 0 to {last}. Name the model that \
                    the adapter was \
                     trained on"
                ));
            }
            let layer = |module: &str| module.strip_prefix("model.layers.")?.split_once('.')?.0.parse::<u32>().ok();
            chosen.retain(|module| layer(module).is_some_and(|layer| layers.contains(&layer)));
        }
        let chosen: Vec<String> = chosen.into_iter().map(str::to_owned).collect();
        if chosen.is_empty() {
            return Err(untargeted("has no module of the model".to_owned()));
        }
        Ok(all.into_iter().filter(|projection| chosen.contains(&projection.module)).collect())
    }
}

/// The `adapter_config.json` of a layout on a model with these projections.
pub(super) fn written(layout: &Layout, all: &[Projection], base: &Path) -> Value {
    let rank = most(layout.each.iter().map(|adapted| u64::from(adapted.rank)));
    let alpha = most(layout.each.iter().map(|adapted| adapted.alpha.to_bits()));
    let alpha = f64::from_bits(alpha);
    let differing = |value: &dyn Fn(&Adapted) -> Option<Value>| -> Map<String, Value> {
        layout.each.iter().filter_map(|adapted| Some((adapted.projection.module.clone(), value(adapted)?))).collect()
    };
    let ranks = differing(&|adapted| (u64::from(adapted.rank) != rank).then(|| adapted.rank.into()));
    let alphas = differing(&|adapted| (adapted.alpha != alpha).then(|| number(adapted.alpha)));
    json!({
        "alpha_pattern": alphas,
        "base_model_name_or_path": base.display().to_string(),
        "bias": "none",
        "fan_in_fan_out": false,
        "inference_mode": true,
        "init_lora_weights": true,
        "lora_alpha": number(alpha),
        "lora_dropout": 0.0,
        "modules_to_save": null,
        "peft_type": "LORA",
        "r": rank,
        "rank_pattern": ranks,
        "target_modules": targets(layout, all),
        "task_type": "CAUSAL_LM",
        "use_dora": false,
        "use_rslora": layout.rslora,
    })
}

/// A whole number as one, as PEFT writes alpha.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 { (value as i64).into() } else { value.into() }
}

/// Short names where each means the same projections of every layer, else whole ones.
fn targets(layout: &Layout, all: &[Projection]) -> Vec<String> {
    let shorts: BTreeSet<&str> = layout.each.iter().map(|adapted| adapted.projection.short()).collect();
    let meant = all.iter().filter(|projection| shorts.contains(projection.short())).count();
    match meant == layout.each.len() {
        true => shorts.into_iter().map(str::to_owned).collect(),
        false => layout.each.iter().map(|adapted| adapted.projection.module.clone()).collect(),
    }
}

/// The value that comes most often; of several the smallest.
fn most(values: impl Iterator<Item = u64>) -> u64 {
    let most = values.counts().into_iter().max_by_key(|(value, count)| (*count, Reverse(*value)));
    most.map_or(0, |(value, _)| value)
}
