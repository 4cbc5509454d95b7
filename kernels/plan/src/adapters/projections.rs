//! Adapters of projections.

use std::collections::BTreeMap;

use crate::config::ModelConfig;
use crate::family::{Family, Module};
use crate::parameters::{Stack, all_stacks};

/// A projection of each layer that may be adapted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    Q,
    K,
    V,
    O,
    Gate,
    Up,
    Down,
    /// Queries, keys and values of the gated delta rule.
    InQkv,
    /// Gates of its output.
    InZ,
    /// Its step sizes.
    InB,
    /// Its decays.
    InA,
    /// Its output.
    Out,
}

impl Target {
    pub const ALL: [Target; 12] = [
        Target::Q,
        Target::K,
        Target::V,
        Target::O,
        Target::Gate,
        Target::Up,
        Target::Down,
        Target::InQkv,
        Target::InZ,
        Target::InB,
        Target::InA,
        Target::Out,
    ];

    /// Returns the projections that layers of a model have.
    pub fn of(config: &ModelConfig) -> Vec<Self> {
        let stacks: Vec<Stack> = all_stacks(config).flatten().collect();
        let parts = || stacks.iter().flat_map(|stack| &stack.parts);
        let has = |target: &Self| parts().any(|part| part.module == target.module(config.family));
        Self::ALL.into_iter().filter(has).collect()
    }

    fn module(self, family: &Family) -> &'static Module {
        let modules = family.modules;
        match self {
            Target::Q => &modules.q,
            Target::K => &modules.k,
            Target::V => &modules.v,
            Target::O => &modules.o,
            Target::Gate => &modules.gate,
            Target::Up => &modules.up,
            Target::Down => &modules.down,
            Target::InQkv => &modules.delta_rule.qkv,
            Target::InZ => &modules.delta_rule.z,
            Target::InB => &modules.delta_rule.b,
            Target::InA => &modules.delta_rule.a,
            Target::Out => &modules.delta_rule.out,
        }
    }

    /// Returns its name in PEFT's `target_modules`, the last part of the module's name: `q_proj`.
    pub fn name(self, family: &Family) -> &'static str {
        let module = self.module(family).hugging_face;
        module.rsplit('.').next().unwrap_or(module)
    }

    /// Returns the Hugging Face name of its matrix in a layer.
    pub fn parameter(self, family: &Family, layer: u32) -> String {
        self.module(family).layer_parameter(layer, "weight")
    }
}

/// The adapter of one projection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adapter {
    /// Rows of A and columns of B, 1 to [`Self::MOST_RANK`].
    pub rank: u32,
    /// Factor of `B (A x)`.
    pub scale: f32,
}

impl Adapter {
    pub const MOST_RANK: u32 = 256;
}

/// The adapters of a model, by the Hugging Face name of the adapted matrix.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Adapters(BTreeMap<String, Adapter>);

impl Adapters {
    pub const fn none() -> Self {
        Self(BTreeMap::new())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the adapter of a matrix, if it has one.
    pub fn of(&self, parameter: &str) -> Option<Adapter> {
        self.0.get(parameter).copied()
    }

    /// Returns each adapted matrix with its adapter.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Adapter)> {
        self.0.iter().map(|(name, adapter)| (name.as_str(), *adapter))
    }

    /// Builds equal adapters of these projections in every layer that has them.
    pub fn uniform(config: &ModelConfig, targets: &[Target], rank: u32, scale: f32) -> Self {
        let of_layer = |(layer, stacks): (u32, [Stack; 4])| {
            let modules = stacks.into_iter().flat_map(|stack| stack.parts).map(|part| part.module);
            let adapted = modules.filter(|module| targets.iter().any(|target| target.module(config.family) == *module));
            adapted.map(|module| module.layer_parameter(layer, "weight")).collect::<Vec<_>>()
        };
        let names = (0..).zip(all_stacks(config)).flat_map(of_layer);
        names.map(|name| (name, Adapter { rank, scale })).collect()
    }
}

impl FromIterator<(String, Adapter)> for Adapters {
    fn from_iter<I: IntoIterator<Item = (String, Adapter)>>(adapters: I) -> Self {
        Self(adapters.into_iter().collect())
    }
}
