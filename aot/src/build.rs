//! Compiles the kernels of a program into a bundle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use precast_core::{Arch, BuildKeys, Kernels, KeyVariant, OPTIONS};
use precast_fatbins::{CubinError, Digest, Manifest, ModuleEntry, Origin};
use rayon::prelude::*;

use crate::budget::{self, OverBudget};
use crate::cache::Cache;
use crate::compile::{CompileError, Task};
use crate::nvrtc::Nvrtc;

/// Kernels and architectures to build.
#[derive(Clone, Debug)]
pub struct Request {
    /// Kernels of the program.
    pub kernels: &'static Kernels,
    /// Names of what they are built for, sorted, as the program gives them.
    pub built_for: Vec<String>,
    /// Kernels to build.
    pub keys: BuildKeys,
    /// GPUs to build for; the simulated one is always added.
    pub archs: Vec<Arch>,
    /// Commands that make such a bundle where there is a compiler, and bring it to a build without one.
    pub publish: String,
}

/// A manifest and the cubins that it names, not yet encoded.
#[derive(Debug)]
pub struct Built {
    /// Manifest over all modules.
    pub manifest: Manifest,
    /// Cubins by digest.
    pub cubins: BTreeMap<Digest, Vec<u8>>,
    /// Number of cubins compiled rather than found in the cache.
    pub compiled: usize,
}

/// A failed build.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Every kernel that does not compile.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n\n"))]
    Compile(Vec<CompileError>),
    /// The compiler's cubin does not match its task.
    #[error("{task}: {error}")]
    Cubin {
        /// Key, variant and architecture.
        task: String,
        /// Fault of the machine code.
        error: CubinError,
    },
    /// Kernels that spill, or of which not one CTA fits a multiprocessor.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
}

impl Request {
    /// Requests the examples of all kernels of a program.
    pub fn of_examples(kernels: &'static Kernels, archs: Vec<Arch>) -> Self {
        let keys = BuildKeys::of(kernels.examples());
        let publish = "PRECAST_BUNDLE=DIR/precast.bundle cargo build, and PRECAST_FATBINS=DIR here".to_owned();
        Self { kernels, built_for: Vec::new(), keys, archs, publish }
    }

    /// Returns every (key, variant) that an architecture needs.
    pub fn keys(&self, arch: Arch) -> BTreeSet<KeyVariant> {
        self.keys.on(arch)
    }

    /// Returns every compilation, sorted.
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

/// Compiles every (key, variant) in parallel, through the cache. `progress` receives the number of finished
/// compilations and their total.
///
/// # Errors
/// [`BuildError`] with every kernel that does not compile, or every one over budget.
pub fn build(
    request: &Request,
    nvrtc: &Nvrtc,
    cache: &Cache,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Built, BuildError> {
    let tasks = request.tasks();
    let keys: Vec<Digest> = tasks.iter().map(|task| task.cache_key(task.compiler(nvrtc))).collect();
    // Kernels of one file are compiled at once.
    let mut seen = BTreeSet::new();
    let units: Vec<(&Digest, &Task)> = keys.iter().zip(&tasks).filter(|(key, _)| seen.insert(*key)).collect();
    let (done, compiled) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let cubins: Vec<Result<(&Digest, Vec<u8>), CompileError>> = units
        .par_iter()
        .map(|(key, task)| {
            let cubin = match cache.get(key) {
                Some(cubin) => Ok(cubin),
                None => task.compile(nvrtc).inspect(|cubin| {
                    compiled.fetch_add(1, Ordering::Relaxed);
                    cache.put(key, cubin);
                }),
            };
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, units.len());
            cubin.map(|cubin| (*key, cubin))
        })
        .collect();
    let (cubins, failed): (Vec<_>, Vec<_>) = cubins.into_iter().partition(Result::is_ok);
    if !failed.is_empty() {
        return Err(BuildError::Compile(failed.into_iter().filter_map(Result::err).collect()));
    }
    let cubins: BTreeMap<&Digest, Vec<u8>> = cubins.into_iter().flatten().collect();
    let mut modules = Vec::new();
    for (task, key) in tasks.iter().zip(&keys) {
        let module = ModuleEntry::compiled(&task.pair, task.arch, &cubins[key])
            .map_err(|error| BuildError::Cubin { task: task.to_string(), error })?;
        modules.push(module);
    }
    let by_digest = cubins.into_values().map(|cubin| (Digest::of(&cubin), cubin)).collect();
    budget::check_all(&modules, request.kernels)?;
    modules.extend(request.keys(Arch::Sim).iter().map(ModuleEntry::simulated));
    Ok(Built {
        manifest: manifest(request, nvrtc.compiler(), modules),
        cubins: by_digest,
        compiled: compiled.into_inner(),
    })
}

/// Returns the kernels of a request for the simulated GPU alone, which takes no compiler.
pub(crate) fn simulated(request: &Request) -> Built {
    let modules = request.keys(Arch::Sim).iter().map(ModuleEntry::simulated).collect();
    Built { manifest: manifest(request, "none", modules), cubins: BTreeMap::new(), compiled: 0 }
}

/// Builds a manifest over modules, sorted.
pub(crate) fn manifest(request: &Request, compiler: &str, mut modules: Vec<ModuleEntry>) -> Manifest {
    modules.sort_by(|a, b| a.order().cmp(&b.order()));
    Manifest {
        origin: Some(Origin::of(request.kernels)),
        compiler: compiler.to_owned(),
        options: OPTIONS.iter().map(|option| (*option).to_owned()).collect(),
        built_for: request.built_for.clone(),
        modules,
    }
}

impl Built {
    /// Returns the digest of the manifest, which covers everything in the bundle.
    pub fn digest(&self) -> Digest {
        self.manifest.digest()
    }

    /// Encodes the bundle file.
    pub fn encode(&self) -> Vec<u8> {
        precast_fatbins::encode(&self.manifest, |module| self.cubin(module))
    }

    /// Encodes the bundle's two sections: (fatbin containers, manifest).
    pub fn parts(&self) -> (Vec<u8>, Vec<u8>) {
        precast_fatbins::parts(&self.manifest, |module| self.cubin(module))
    }

    /// Returns the bundle of one architecture, equal to a build for it alone.
    pub fn only(&self, arch: Arch) -> Self {
        let mut manifest = self.manifest.clone();
        manifest.modules.retain(|module| [arch.name(), Arch::Sim.name()].contains(&&*module.arch));
        Self { manifest, cubins: self.cubins.clone(), compiled: 0 }
    }

    fn cubin(&self, module: &ModuleEntry) -> &[u8] {
        module.code.as_ref().and_then(|code| self.cubins.get(&code.digest)).map_or(&[], Vec::as_slice)
    }
}
