//! Which projections of a model an adapter is on, and at which rank and scale.

use std::fmt;
use std::str::FromStr;

use itertools::Itertools;
use precast_fatbins::Digest;
use precast_plan::{Adapters, Factor, ModelConfig, Parameters};
use serde::Serialize;

/// The largest rank.
pub const MOST_RANK: u32 = precast_plan::Adapter::MOST_RANK;

/// Both matrices of an adapter.
const FACTORS: [Factor; 2] = [Factor::A, Factor::B];

/// A projection of a model, `[rows, columns]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection {
    /// `model.layers.0.self_attn.q_proj`
    pub module: String,
    pub rows: u32,
    pub columns: u32,
}

impl Projection {
    /// All of a model, layer by layer.
    pub fn all(config: &ModelConfig) -> Vec<Self> {
        let projection = |name: &str, shape: &[u64]| match (name.strip_suffix(".weight"), shape) {
            (Some(module), [rows, columns]) if module.starts_with("model.layers.") => {
                Some(Self { module: module.to_owned(), rows: *rows as u32, columns: *columns as u32 })
            }
            _ => None,
        };
        let parameters = Parameters::new(config).list;
        parameters.iter().filter_map(|parameter| projection(&parameter.name, &parameter.shape)).collect()
    }

    /// Returns PEFT's name for it: `q_proj`.
    pub fn short(&self) -> &str {
        self.module.rsplit_once('.').map_or(&self.module, |(_, short)| short)
    }
}

/// A projection with an adapter: `W x + scale B A x`.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapted {
    pub projection: Projection,
    /// 1 to [`MOST_RANK`].
    pub rank: u32,
    pub alpha: f64,
}

impl Adapted {
    /// The shape of one of its matrices.
    pub fn shape(&self, factor: Factor) -> [u64; 2] {
        match factor {
            Factor::A => [self.rank.into(), self.projection.columns.into()],
            Factor::B => [self.projection.rows.into(), self.rank.into()],
        }
    }

    /// The name of one of its matrices in PEFT's files.
    pub fn tensor(&self, factor: Factor) -> String {
        let factor = match factor {
            Factor::A => "lora_A",
            Factor::B => "lora_B",
        };
        format!("{BASE}{}.{factor}.weight", self.projection.module)
    }

    /// The name of the parameter that it is added to.
    pub fn parameter(&self) -> String {
        format!("{}.weight", self.projection.module)
    }
}

/// Prefix of the names of modules in PEFT's files.
pub(super) const BASE: &str = "base_model.model.";

/// The projections of a model that have adapters, in the order of the model, and what their scales follow from.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    pub each: Vec<Adapted>,
    /// True if a scale is `alpha / sqrt(rank)` in place of `alpha / rank`.
    pub rslora: bool,
}

impl Layout {
    /// The layout that options ask for.
    pub fn new(config: &ModelConfig, lora: &Lora) -> Self {
        let Lora { rank, alpha, targets, rslora } = lora;
        let targeted = Projection::all(config).into_iter().filter(|projection| targets.0.contains(&projection.short()));
        let each = targeted.map(|projection| Adapted { projection, rank: *rank, alpha: *alpha });
        Self { each: each.collect(), rslora: *rslora }
    }

    /// Returns the factor of `B A x`.
    pub fn scale(&self, adapted: &Adapted) -> f32 {
        let rank = f64::from(adapted.rank);
        (adapted.alpha / if self.rslora { rank.sqrt() } else { rank }) as f32
    }

    /// The digest of all of it.
    pub fn digest(&self) -> Digest {
        let of_one = |one: &Adapted| format!("{} {} {}\n", one.projection.module, one.rank, one.alpha);
        let text: String = self.each.iter().map(of_one).collect();
        Digest::of(format!("{text}rslora {}\n", self.rslora).as_bytes())
    }

    /// What a plan needs to know of it.
    pub fn adapters(&self) -> Adapters {
        let adapter = |adapted: &Adapted| precast_plan::Adapter { rank: adapted.rank, scale: self.scale(adapted) };
        self.each.iter().map(|adapted| (adapted.parameter(), adapter(adapted))).collect()
    }

    /// Every matrix: of which projection, which factor.
    pub fn tensors(&self) -> impl Iterator<Item = (&Adapted, Factor)> {
        self.each.iter().flat_map(|adapted| FACTORS.map(|factor| (adapted, factor)))
    }

    /// Elements of all matrices: what trains.
    pub fn count(&self) -> u64 {
        self.tensors().map(|(adapted, factor)| adapted.shape(factor).iter().product::<u64>()).sum()
    }
}

/// `rank 16 on q_proj and v_proj, 1,081,344 parameters`
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = self.each.iter().map(|adapted| adapted.rank);
        match (ranks.clone().min(), ranks.max()) {
            (Some(least), Some(most)) if least != most => write!(f, "ranks {least} to {most}")?,
            (least, _) => write!(f, "rank {}", least.unwrap_or(0))?,
        }
        let shorts = self.each.iter().map(|adapted| adapted.projection.short()).unique();
        let scale = if self.rslora { ", scale alpha / sqrt(rank)" } else { "" };
        write!(f, " on {}{scale}: {} parameters train", shorts.format(", "), self.count())
    }
}

/// What `--lora-rank`, `--lora-alpha`, `--lora-targets` and `--lora-rslora` say of a new adapter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lora {
    #[serde(rename = "lora_rank")]
    pub rank: u32,
    #[serde(rename = "lora_alpha")]
    pub alpha: f64,
    #[serde(rename = "lora_targets", serialize_with = "crate::base::record_text::display")]
    pub targets: Targets,
    #[serde(rename = "lora_rslora")]
    pub rslora: bool,
}

/// What an adapter may be on: all projections, or one of each layer, by the name that PEFT has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target(&'static str);

/// Every one of them.
const ALL: &str = "all";

/// Every projection that an adapter can be on. All families name them so; the last five are of the gated delta rule.
const TARGETS: [&str; 12] = [
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
    "in_proj_qkv",
    "in_proj_z",
    "in_proj_b",
    "in_proj_a",
    "out_proj",
];

impl Target {
    pub const ALL: Self = Self(ALL);

    /// Returns all names of targets.
    pub fn names() -> impl Iterator<Item = &'static str> {
        [ALL].into_iter().chain(TARGETS)
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let target = Self::names().find(|name| *name == text).map(Self);
        target.ok_or_else(|| format!("unknown target `{text}`: all, or names of {}", TARGETS.join(", ")))
    }
}

/// The projections that an adapter is on, in one order, however they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Targets(Vec<&'static str>);

impl Targets {
    /// Returns a target that was named and that no layer of a model has.
    pub(super) fn absent(&self, model: &ModelConfig) -> Option<&'static str> {
        let all = Projection::all(model);
        let mut named = self.0.iter().filter(|_| self.0.len() < TARGETS.len());
        named.find(|target| all.iter().all(|projection| projection.short() != **target)).copied()
    }
}

impl FromIterator<Target> for Targets {
    fn from_iter<I: IntoIterator<Item = Target>>(targets: I) -> Self {
        let targets: Vec<Target> = targets.into_iter().collect();
        let has = |short| [ALL, short].into_iter().any(|name| targets.contains(&Target(name)));
        Self(TARGETS.into_iter().filter(|short| has(short)).collect())
    }
}

impl fmt::Display for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.len() == TARGETS.len() { f.write_str(ALL) } else { f.write_str(&self.0.join(",")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_read_back_in_one_order() {
        let targets = |text: &str| {
            text.split(',').map(str::parse).collect::<Result<Targets, _>>().map(|targets| targets.to_string())
        };
        assert_eq!(targets("all").as_deref(), Ok("all"));
        assert_eq!(targets("v_proj, q_proj,v_proj").as_deref(), Ok("q_proj,v_proj"));
        assert_eq!(targets(&TARGETS.join(",")).as_deref(), Ok("all"));
        for wrong in ["", "q_proj,", "lm_head", "query"] {
            assert!(targets(wrong).unwrap_err().contains("q_proj, k_proj"), "{wrong}");
        }
    }
}
