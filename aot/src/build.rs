//! Models to a bundle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use precast_fatbins::{CubinError, Digest, Manifest, ModuleEntry};
use precast_kernels::{Arch, Key, KeyVariant, OPTIONS};
use precast_plan::{ModelConfig, build_keys};
use rayon::prelude::*;

use crate::budget::{self, OverBudget};
use crate::cache::Cache;
use crate::compile::{CompileError, Task};
use crate::models::Model;
use crate::nvrtc::Nvrtc;

/// What to build.
#[derive(Clone, Debug)]
pub struct Request {
    /// For which models.
    pub models: Vec<Model>,
    /// Kernels besides theirs.
    pub keys: Vec<Key>,
    /// For which GPUs; the simulated one is always there.
    pub archs: Vec<Arch>,
}

/// A bundle in the making: a manifest and the cubins it names.
#[derive(Debug)]
pub struct Built {
    /// What it holds.
    pub manifest: Manifest,
    /// Cubins by digest.
    pub cubins: BTreeMap<Digest, Vec<u8>>,
    /// How many were compiled, and not found in the cache.
    pub compiled: usize,
}

/// A bundle that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Kernels that do not compile: all of them.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n\n"))]
    Compile(Vec<CompileError>),
    /// The compiler made something else than it was asked for.
    #[error("{task}: {error}")]
    Cubin {
        /// Key, variant and architecture.
        task: String,
        error: CubinError,
    },
    /// Kernels that spill, or that no block of fits a multiprocessor.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
}

impl Request {
    /// The kernels of models and no others.
    pub fn of_models(models: Vec<Model>, archs: Vec<Arch>) -> Self {
        Self { models, keys: Vec::new(), archs }
    }

    /// Every (key, variant) for an architecture: the one list of what runs over the models launch, and what is asked for
    /// by name.
    pub fn keys(&self, arch: Arch) -> BTreeSet<KeyVariant> {
        let configs: Vec<ModelConfig> = self.models.iter().map(|model| model.config.clone()).collect();
        let mut keys = build_keys(&configs, arch);
        keys.extend(self.keys.iter().flat_map(|key| key.built(arch)));
        keys
    }

    /// Every compilation, sorted.
    pub fn tasks(&self) -> Vec<Task> {
        let mut tasks: Vec<Task> = self
            .archs
            .par_iter()
            .filter(|arch| **arch != Arch::Sim)
            .flat_map_iter(|arch| self.keys(*arch).into_iter().map(|pair| Task { pair, arch: *arch }))
            .collect();
        tasks.sort();
        tasks.dedup();
        tasks
    }
}

/// Compiles every key and variant of every model, in parallel, through the cache. `progress` is told how many
/// of how many are done.
///
/// # Errors
/// [`BuildError`] with every kernel that does not compile, or every one that is over budget.
pub fn build(
    request: &Request,
    nvrtc: &Nvrtc,
    cache: &Cache,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Built, BuildError> {
    let tasks = request.tasks();
    let (done, compiled) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let cubins: Vec<Result<Vec<u8>, CompileError>> = tasks
        .par_iter()
        .map(|task| {
            let key = task.cache_key(nvrtc.identity());
            let cubin = match cache.get(&key) {
                Some(cubin) => Ok(cubin),
                None => task.compile(nvrtc).inspect(|cubin| {
                    compiled.fetch_add(1, Ordering::Relaxed);
                    cache.put(&key, cubin);
                }),
            };
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, tasks.len());
            cubin
        })
        .collect();
    let (cubins, failed): (Vec<_>, Vec<_>) = cubins.into_iter().partition(Result::is_ok);
    if !failed.is_empty() {
        return Err(BuildError::Compile(failed.into_iter().filter_map(Result::err).collect()));
    }
    let mut modules = Vec::new();
    let mut by_digest = BTreeMap::new();
    for (task, cubin) in tasks.iter().zip(cubins.into_iter().flatten()) {
        let module = ModuleEntry::compiled(&task.pair, task.arch, &cubin)
            .map_err(|error| BuildError::Cubin { task: task.to_string(), error })?;
        by_digest.insert(Digest::of(&cubin), cubin);
        modules.push(module);
    }
    budget::check_all(&modules)?;
    modules.extend(request.keys(Arch::Sim).iter().map(ModuleEntry::simulated));
    Ok(Built {
        manifest: manifest(request, nvrtc.compiler(), modules),
        cubins: by_digest,
        compiled: compiled.into_inner(),
    })
}

/// A manifest over modules, sorted.
pub(crate) fn manifest(request: &Request, compiler: &str, mut modules: Vec<ModuleEntry>) -> Manifest {
    modules.sort_by(|a, b| a.order().cmp(&b.order()));
    let models: BTreeSet<String> = request.models.iter().map(|model| model.name.clone()).collect();
    Manifest {
        compiler: compiler.to_owned(),
        options: OPTIONS.iter().map(|option| (*option).to_owned()).collect(),
        models: models.into_iter().collect(),
        modules,
    }
}

impl Built {
    /// Digest of the manifest, and so of everything the bundle holds.
    pub fn digest(&self) -> Digest {
        self.manifest.digest()
    }

    /// The bundle file.
    pub fn encode(&self) -> Vec<u8> {
        precast_fatbins::encode(&self.manifest, |module| self.cubin(module))
    }

    /// The two sections of the bundle: (fatbin containers, manifest).
    pub fn parts(&self) -> (Vec<u8>, Vec<u8>) {
        precast_fatbins::parts(&self.manifest, |module| self.cubin(module))
    }

    fn cubin(&self, module: &ModuleEntry) -> &[u8] {
        module.code.as_ref().and_then(|code| self.cubins.get(&code.digest)).map_or(&[], Vec::as_slice)
    }
}
