//! An adapter of a model, new or from a PEFT directory.

use std::fmt;
use std::path::{Path, PathBuf};

use precast_fatbins::Digest;
use precast_kernels::{Dtype, Format};
use precast_plan::{Factor, ModelConfig};

use super::write::TENSORS;
use super::{Adapted, Layout, Lora, config, initial, layout};
use crate::base::lines::bounded;
use crate::checkpoint::{self, CheckpointError, Read, Scratch, Tensors, farthest, is_zero};

/// Problems that are listed.
const LISTED: usize = 20;

/// An adapter of a model: which projections it is on, and where its values come from.
pub struct Adapter {
    pub layout: Layout,
    /// Of a new adapter: what its initial values are drawn by.
    pub(super) seed: u64,
    pub(super) file: Option<File>,
}

/// A PEFT directory.
pub(super) struct File {
    directory: PathBuf,
    tensors: Tensors,
    digest: Digest,
    dropout: f64,
    /// The model that it was trained on, where that is not the one that it is opened for.
    other_base: Option<String>,
    /// Its tensors that are wholly zero: each B of one that has not been trained.
    zeros: usize,
}

impl Adapter {
    /// A new one, with initial values by a seed.
    ///
    /// # Errors
    /// [`CheckpointError`] for a target that no layer of the model has.
    pub fn new(model: &ModelConfig, lora: &Lora, seed: u64) -> Result<Self, CheckpointError> {
        match lora.targets.absent(model) {
            Some(target) => Err(CheckpointError::Wrong(format!(
                "--lora-targets: no layer of {} has {target}: leave it out, or name all",
                model.family
            ))),
            None => Ok(Self { layout: Layout::new(model, lora), seed, file: None }),
        }
    }

    /// Opens a PEFT directory and checks that it holds every tensor of its configuration, for a model that is at a
    /// path, and no others, all of them finite.
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub fn open(directory: &Path, (path, model): (&Path, &ModelConfig)) -> Result<Self, CheckpointError> {
        let file = directory.join(TENSORS);
        if let Some(reason) = missing(directory) {
            let expected = "Expected a PEFT directory: adapter_config.json, adapter_model.safetensors";
            return Err(CheckpointError::Wrong(format!(
                "{} is not an adapter: {reason}. {expected}",
                directory.display()
            )));
        }
        let config::Read { layout, dropout, base } = config::read(directory, model)?;
        let other_base = base.filter(|base| is_other(Path::new(base), path));
        let tensors = Tensors::of_file(file.clone())?;
        let problems = problems(&layout, &tensors);
        if !problems.is_empty() {
            return Err(CheckpointError::Wrong(format!(
                "{} does not hold the adapter that its adapter_config.json describes, for the model {}:\n{}\n\
                 Name the model that the adapter was trained on, or save the adapter again with PEFT (save_pretrained)",
                directory.display(),
                path.display(),
                bounded(problems, LISTED).join("\n")
            )));
        }
        let digest = checkpoint::digest(&[file])?;
        let (mut zeros, mut scratch) = (0, Scratch::default());
        for (adapted, factor) in layout.tensors() {
            let bytes = tensors.read_finite(&adapted.tensor(factor), &mut scratch)?;
            zeros += usize::from(is_zero(bytes, Format::Dense(Dtype::F32)));
        }
        let file = File { directory: directory.to_owned(), tensors, digest, dropout, other_base, zeros };
        Ok(Self { layout, seed: 0, file: Some(file) })
    }

    /// One of its matrices, f32, row by row.
    ///
    /// # Errors
    /// [`CheckpointError`] where it cannot be read or is not finite.
    pub fn read<'a>(&'a self, adapted: &Adapted, factor: Factor, scratch: &'a mut Scratch) -> Read<'a> {
        match &self.file {
            None => Ok(bytemuck::cast_slice(initial::read(adapted, factor, self.seed, scratch))),
            Some(file) => file.tensors.read_finite(&adapted.tensor(factor), scratch),
        }
    }

    /// Returns `max |w - v|` over the values v of this adapter and w of one that a directory has.
    ///
    /// # Errors
    /// [`CheckpointError`] where one cannot be read.
    pub fn largest_update(&self, directory: &Path) -> Result<f32, CheckpointError> {
        let written = Tensors::of_file(directory.join(TENSORS))?;
        let [mut one, mut other] = [(); 2].map(|()| Scratch::default());
        self.layout.tensors().try_fold(0f32, |largest, (adapted, factor)| {
            let began = self.read(adapted, factor, &mut one)?;
            let ended = written.read_finite(&adapted.tensor(factor), &mut other)?;
            Ok(largest.max(farthest(began, ended, Dtype::F32)))
        })
    }

    /// True if it adds nothing yet: every B is 0.
    ///
    /// # Errors
    /// [`CheckpointError`] where one cannot be read.
    pub fn adds_nothing(&self) -> Result<bool, CheckpointError> {
        let mut scratch = Scratch::default();
        for adapted in &self.layout.each {
            let b = self.read(adapted, Factor::B, &mut scratch)?;
            if !is_zero(b, Format::Dense(Dtype::F32)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The digest of the tensors that it was read from.
    pub fn digest(&self) -> Option<Digest> {
        self.file.as_ref().map(|file| file.digest)
    }

    /// Says that it was trained on another model than this one, which it is added to: its shape does not tell.
    pub fn other_base_note(&self, base: &Path) -> Option<String> {
        let File { directory, other_base, .. } = self.file.as_ref()?;
        let config = directory.join(config::CONFIG);
        let (config, base, other) = (config.display(), base.display(), other_base.as_ref()?);
        Some(format!(
            "{config}: the adapter was trained on {other}, and is added to {base}: right only if that has its weights"
        ))
    }

    /// What people should know of it.
    pub fn notes(&self) -> Vec<String> {
        let Some(File { directory, dropout, zeros, .. }) = &self.file else { return Vec::new() };
        let dropped = format!(
            "{}: lora_dropout {dropout} is not applied: nothing is dropped",
            directory.join(config::CONFIG).display()
        );
        let tensors = self.layout.tensors().count();
        let empty = format!("{}: {zeros} of {tensors} tensors are wholly zero", directory.display());
        [(*dropout > 0.0).then_some(dropped), (*zeros > 0).then_some(empty)].into_iter().flatten().collect()
    }
}

impl fmt::Display for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            None => write!(f, "new, {}", self.layout),
            Some(file) => write!(f, "{}: {}", file.directory.display(), self.layout),
        }
    }
}

/// True if a base that is named is another model than that at a path. A name of something that is not here, as of a
/// Hugging Face repository, may be of a directory with that last part.
fn is_other(named: &Path, path: &Path) -> bool {
    match (named.canonicalize(), path.canonicalize()) {
        (Ok(named), Ok(path)) => named != path,
        _ => named.file_name() != path.file_name(),
    }
}

/// Why a path is no adapter; nothing if it may be one.
fn missing(directory: &Path) -> Option<String> {
    let has = |name: &str| directory.join(name).exists();
    let reason = match directory {
        _ if !directory.exists() => "there is nothing",
        _ if !directory.is_dir() => "it is a file",
        _ if !has(config::CONFIG) && has("config.json") => "it is a model: there is no adapter_config.json in it",
        _ if !has(config::CONFIG) => "there is no adapter_config.json in it",
        _ if !has(TENSORS) && has("adapter_model.bin") => {
            "it has adapter_model.bin, and PyTorch files are not read: load it with PEFT and save it again \
             (save_pretrained writes safetensors)"
        }
        _ if !has(TENSORS) => "there is no adapter_model.safetensors in it",
        _ => return None,
    };
    Some(reason.to_owned())
}

/// What is wrong with the names and shapes of tensors, a line each.
fn problems(layout: &Layout, tensors: &Tensors) -> Vec<String> {
    let expected: Vec<(String, [u64; 2], &Adapted)> =
        layout.tensors().map(|(adapted, factor)| (adapted.tensor(factor), adapted.shape(factor), adapted)).collect();
    let mut problems = Vec::new();
    for (name, shape, adapted) in &expected {
        match tensors.shape(name) {
            None => problems.push(format!("  {name} is missing")),
            Some(found) if found != shape => problems.push(format!(
                "  {name} is {found:?}: rank {} on {} of the model, [{}, {}], gives {shape:?}",
                adapted.rank, adapted.projection.module, adapted.projection.rows, adapted.projection.columns
            )),
            Some(_) => {}
        }
    }
    for name in tensors.names().filter(|name| !expected.iter().any(|(one, ..)| one == name)) {
        problems.push(format!("  {name} is not expected: {}", why_not_expected(name)));
    }
    problems
}

fn why_not_expected(name: &str) -> &'static str {
    match name {
        _ if name.contains("lora_embedding_") => "the embedding has no adapter here",
        _ if name.contains("lm_head") => "the head has no adapter here",
        _ if name.contains("lora_magnitude_vector") => "it belongs to DoRA",
        _ if !name.starts_with(layout::BASE) => "PEFT's names begin with base_model.model.",
        _ => "adapter_config.json does not target it in this model",
    }
}
