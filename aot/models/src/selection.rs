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
use crate::model::Model;

/// Name of the lock of kernels that no model launches.
pub const UNLAUNCHED: &str = "unlaunched";

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

    /// Returns what has a lock: each model, and the selected kernels that no built-in model launches.
    pub fn locked(&self) -> Vec<Part> {
        let built_in: Vec<String> = Model::built_in().into_iter().map(|model| model.name).collect();
        let part = |name: &str, strictness, command: String, selection: Self| Part {
            name: name.to_owned(),
            keys: selection.build_keys(),
            strictness,
            command,
        };
        let of_model = |model: &Model| {
            // A user's model needs no lock.
            let is_built_in = built_in.contains(&model.name);
            let (strictness, command) = match is_built_in {
                true => (Strictness::Required, LOCK.to_owned()),
                false => (Strictness::Optional, format!("{LOCK} --model {}", quoted(&model.name))),
            };
            part(&model.name, strictness, command, Self { models: vec![model.clone()], ..Self::default() })
        };
        let mut parts: Vec<Part> = self.models.iter().map(of_model).collect();
        if !self.keys.is_empty() {
            let unlaunched = kernels::unlaunched();
            let keys = self.keys.iter().filter(|key| unlaunched.contains(key)).cloned().collect();
            // A selection may name fewer kernels than are locked.
            parts.push(part(UNLAUNCHED, Strictness::Partial, LOCK.to_owned(), Self { keys, ..Self::default() }));
        }
        parts
    }
}
