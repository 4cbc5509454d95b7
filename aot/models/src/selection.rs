//! Selects the kernels of a build: those of models, and further ones by name.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;

use precast_aot::lock::{Part, Strictness};
use precast_aot::{Embed, Request, instruct, variable};
use precast_core::shell::quoted;
use precast_kernels::{Arch, BuildKeys, KERNELS, Key};
use precast_plan::{ModelConfig, build_keys};

use crate::kernels;
use crate::model::{Model, SHARED_LOCK};

/// Directory of the lock files: they are a part of this package.
const LOCKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/locks");

/// Command that writes the lock files.
pub const LOCK: &str = "precast-aot lock";

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
    /// Selects for a build of the trainer: the built-in models, or those named in `PRECAST_BUILT_IN`, and those in
    /// `PRECAST_MODELS`; both separated by colons.
    ///
    /// # Errors
    /// Names that are no built-in model, no file and no architecture.
    pub fn of_build(archs: Vec<&str>) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let mut models = Model::built_in();
        if let Some(named) = variable("PRECAST_BUILT_IN") {
            let named: Vec<&str> = named.split(':').collect();
            if let Some(unknown) = named.iter().find(|name| models.iter().all(|model| model.name != **name)) {
                let names: Vec<&str> = models.iter().map(|model| &*model.name).collect();
                let names = names.join(", ");
                return Err(format!("PRECAST_BUILT_IN names `{unknown}`, and built in are {names}").into());
            }
            models.retain(|model| named.contains(&&*model.name));
        }
        let named = variable("PRECAST_MODELS").unwrap_or_default();
        for name in named.split(':').filter(|name| !name.is_empty()) {
            if Path::new(name).exists() {
                instruct(format_args!("rerun-if-changed={name}"));
            }
            models.push(Model::find(name)?);
        }
        let archs = archs.into_iter().map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self::of_models(models, archs))
    }

    /// Selects the kernels of models and no others.
    pub fn of_models(models: Vec<Model>, archs: Vec<Arch>) -> Self {
        Self { models, keys: Vec::new(), archs }
    }

    /// Selects what `precast-aot lock` locks: the kernels of all built-in models, and those that none of them launches.
    pub fn everything() -> Self {
        Self { models: Model::built_in(), keys: kernels::unlaunched(), archs: Vec::new() }
    }

    /// Returns the kernels that runs over the models launch, and those selected by name.
    pub fn build_keys(&self) -> BuildKeys {
        let configs: Vec<ModelConfig> = self.models.iter().map(|model| model.config.clone()).collect();
        let mut keys = build_keys(&configs);
        keys.extend(BuildKeys::of(self.keys.iter().cloned()));
        keys
    }

    /// Returns what the compiler is asked for.
    pub fn request(&self) -> Request {
        let models: BTreeSet<String> = self.models.iter().map(|model| model.name.clone()).collect();
        let archs: Vec<&str> = self.archs.iter().filter_map(|arch| arch.feature()).collect();
        let named: String = models.iter().map(|model| format!(" --model {}", quoted(model))).collect();
        let publish = format!(
            "precast-aot publish --arch {}{named} --to FILE.tar, then precast-aot fetch --from FILE.tar here",
            archs.join(",")
        );
        Request {
            publish,
            kernels: &KERNELS,
            built_for: models.into_iter().collect(),
            keys: self.build_keys(),
            archs: self.archs.clone(),
        }
    }

    /// Returns what the trainer's build script embeds.
    pub fn embed(&self) -> Embed {
        // Behind a veil: a program that drops this keeps a table of its code, whose size would follow the path's.
        Embed::of(self.request()).locked_in(std::hint::black_box(LOCKS), self.locked())
    }

    /// Returns what has a lock: built-in models together, with selected kernels that none of them launches, and each
    /// other model.
    pub fn locked(&self) -> Vec<Part> {
        let built_in: Vec<String> = Model::built_in().into_iter().map(|model| model.name).collect();
        let (models, own): (Vec<Model>, Vec<Model>) =
            self.models.iter().cloned().partition(|model| built_in.contains(&model.name));
        let unlaunched = if self.keys.is_empty() { Vec::new() } else { kernels::unlaunched() };
        let keys: Vec<Key> = self.keys.iter().filter(|key| unlaunched.contains(key)).cloned().collect();
        let mut parts = Vec::new();
        if !(models.is_empty() && keys.is_empty()) {
            let keys = Self { models, keys, ..Self::default() }.build_keys();
            let (name, command) = (SHARED_LOCK.to_owned(), LOCK.to_owned());
            parts.push(Part { name, keys, strictness: Strictness::Shared, command });
        }
        // A user's model needs no lock.
        parts.extend(own.into_iter().map(|model| {
            let (name, command) = (model.name.clone(), format!("{LOCK} --model {}", quoted(&model.name)));
            let keys = Self::of_models(vec![model], Vec::new()).build_keys();
            Part { name, keys, strictness: Strictness::Optional, command }
        }));
        parts
    }
}
