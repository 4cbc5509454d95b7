//! Selects the kernels of a build: those of models, and further ones by name.

use std::collections::BTreeSet;
use std::sync::Arc;

use precast_aot::lock::Part;
use precast_aot::{Keys, Request};
use precast_kernels::{Arch, KERNELS, Key, KeyVariant};
use precast_plan::{ModelConfig, build_keys};

use crate::kernels;
use crate::model::Model;

/// Name of the lock of kernels that no model launches.
pub const UNLAUNCHED: &str = "unlaunched";

/// Models, further keys and architectures to build.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    pub models: Vec<Model>,
    /// Kernels beyond those of the models.
    pub keys: Vec<Key>,
    /// GPUs to build for; the simulated one is always added.
    pub archs: Vec<Arch>,
}

impl Selection {
    /// Selects the kernels of models and no others.
    pub fn of_models(models: Vec<Model>, archs: Vec<Arch>) -> Self {
        Self { models, keys: Vec::new(), archs }
    }

    /// Returns every (key, variant) that an architecture needs: those that runs over the models launch, and those
    /// selected by name.
    pub fn keys(&self, arch: Arch) -> BTreeSet<KeyVariant> {
        let configs: Vec<ModelConfig> = self.models.iter().map(|model| model.config.clone()).collect();
        let mut keys = build_keys(&configs, arch);
        keys.extend(self.keys.iter().flat_map(|key| key.built(arch)));
        keys
    }

    /// Returns what the compiler is asked for.
    pub fn request(&self) -> Request {
        let selection = self.clone();
        let models: BTreeSet<String> = self.models.iter().map(|model| model.name.clone()).collect();
        Request {
            kernels: &KERNELS,
            built_for: models.into_iter().collect(),
            keys: Arc::new(move |arch| selection.keys(arch)),
            archs: self.archs.clone(),
        }
    }

    /// Returns what has a lock: each model, and the selected kernels that no built-in model launches.
    pub fn locked(&self) -> Vec<Part> {
        let part = |name: &str, is_whole, selection: Self| {
            let keys: Keys = Arc::new(move |arch| selection.keys(arch));
            Part { name: name.to_owned(), keys, is_whole }
        };
        let of_model = |model: &Model| part(&model.name, true, Self { models: vec![model.clone()], ..Self::default() });
        let mut parts: Vec<Part> = self.models.iter().map(of_model).collect();
        if !self.keys.is_empty() {
            let unlaunched = kernels::unlaunched();
            let keys = self.keys.iter().filter(|key| unlaunched.contains(key)).cloned().collect();
            // A selection may name fewer kernels than are locked.
            parts.push(part(UNLAUNCHED, false, Self { keys, ..Self::default() }));
        }
        parts
    }
}
