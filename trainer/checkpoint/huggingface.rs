//! Safetensors files, and Hugging Face directories: `config.json` and one or several of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use precast_kernels::Dtype;
use rayon::prelude::*;
use safetensors::SafeTensors;
use safetensors::tensor::Dtype as Stored;

use super::{CheckpointError, Scratch, finite, missing};
use crate::data::{Mapped, map};
use crate::disguise::{Disguise, read_text};
use crate::error::bounded;

/// Problems that are listed.
const LISTED: usize = 20;

struct Tensor {
    file: usize,
    dtype: Stored,
    shape: Vec<u64>,
    range: Range<usize>,
}

/// Mapped safetensors files, and what lies where in them.
pub(crate) struct Safetensors {
    files: Vec<(PathBuf, Mapped)>,
    tensors: BTreeMap<String, Tensor>,
}

impl Safetensors {
    /// Maps a file and reads its header.
    pub fn of_file(path: PathBuf) -> Result<Self, CheckpointError> {
        let mut source = Self { files: Vec::new(), tensors: BTreeMap::new() };
        source.map(path, |_| true)?;
        Ok(source)
    }

    /// Maps the files of a Hugging Face directory and reads their headers; returns its `config.json` too.
    pub fn open(directory: &Path) -> Result<(Self, serde_json::Value), CheckpointError> {
        let config = directory.join("config.json");
        if !config.exists() {
            return Err(missing::model(directory));
        }
        let json = read_json(&config)?;
        let index = directory.join("model.safetensors.index.json");
        let single = directory.join("model.safetensors");
        if !single.exists() && !index.exists() {
            return Err(missing::weights(directory));
        }
        let mut source = Self { files: Vec::new(), tensors: BTreeMap::new() };
        // As transformers has it: an index counts only where the single file is not there.
        if single.exists() || !index.exists() {
            source.map(single, |_| true)?;
        } else {
            source.follow(directory, &index)?;
        }
        Ok((source, json))
    }

    /// Maps the files of an index and takes each tensor from the file that its `weight_map` names, and from no other.
    fn follow(&mut self, directory: &Path, index: &Path) -> Result<(), CheckpointError> {
        let json = read_json(index)?;
        let map = weight_map(&json).map_err(|reason| CheckpointError::Json { path: index.to_owned(), reason })?;
        let files: BTreeSet<&str> = map.values().copied().collect();
        let mut problems = Vec::new();
        for file in files {
            self.map(directory.join(file), |name| {
                let named = map.get(name);
                match named {
                    Some(named) if *named == file => {}
                    Some(named) => problems.push(format!("  {name} is in {file}, weight_map says {named}")),
                    None => problems.push(format!("  {name} is in {file}, weight_map does not name it")),
                }
                named == Some(&file)
            })?;
        }
        let missing = map.iter().filter(|(name, _)| !self.tensors.contains_key(**name));
        problems.extend(missing.map(|(name, file)| format!("  {name} is not in {file}")));
        match problems.is_empty() {
            true => Ok(()),
            false => Err(CheckpointError::Index { path: index.to_owned(), problems: bounded(problems, LISTED) }),
        }
    }

    /// Maps a file and takes the tensors whose names are `wanted`.
    fn map(&mut self, path: PathBuf, mut wanted: impl FnMut(&str) -> bool) -> Result<(), CheckpointError> {
        let map = map(&path).map_err(CheckpointError::io("read", &path))?;
        let damaged = |error| match Disguise::of(&map) {
            Some(what) => CheckpointError::Disguised { path: path.clone(), what },
            None => CheckpointError::Safetensors { path: path.clone(), error },
        };
        let parsed = SafeTensors::deserialize(&map).map_err(damaged)?;
        let start = map.as_ptr().addr();
        for (name, view) in parsed.iter().filter(|(name, _)| wanted(name)) {
            let offset = view.data().as_ptr().addr() - start;
            self.tensors.insert(
                name.to_owned(),
                Tensor {
                    file: self.files.len(),
                    dtype: view.dtype(),
                    shape: view.shape().iter().map(|dim| *dim as u64).collect(),
                    range: offset..offset + view.data().len(),
                },
            );
        }
        self.files.push((path, map));
        Ok(())
    }

    pub fn shape(&self, name: &str) -> Option<Vec<u64>> {
        Some(self.tensors.get(name)?.shape.clone())
    }

    /// The format of each tensor.
    pub fn formats(&self) -> impl Iterator<Item = String> {
        self.tensors.values().map(|tensor| format!("{:?}", tensor.dtype))
    }

    pub fn names(&self) -> Vec<String> {
        self.tensors.keys().cloned().collect()
    }

    /// The dtype in which a tensor is in memory as it is.
    pub fn stored(&self, name: &str) -> Option<Dtype> {
        match self.tensors.get(name)?.dtype {
            Stored::F32 => Some(Dtype::F32),
            Stored::BF16 => Some(Dtype::Bf16),
            _ => None,
        }
    }

    pub fn files(&self) -> Vec<&Path> {
        self.files.iter().map(|(path, _)| path.as_path()).collect()
    }

    /// The dtype of every tensor, where all have the same and a run can compute in it.
    pub fn dtype(&self) -> Option<Dtype> {
        let all = |dtype| self.tensors.values().all(|tensor| tensor.dtype == dtype);
        [(Stored::F32, Dtype::F32), (Stored::BF16, Dtype::Bf16)]
            .into_iter()
            .find(|(stored, _)| all(*stored))
            .map(|(_, d)| d)
    }

    /// A tensor's elements in a dtype.
    pub fn read<'a>(&'a self, name: &str, dtype: Dtype, scratch: &'a mut Scratch) -> Result<&'a [u8], CheckpointError> {
        let tensor = &self.tensors[name];
        let (path, map) = &self.files[tensor.file];
        let bytes = &map[tensor.range.clone()];
        match (tensor.dtype, dtype) {
            (Stored::F32, Dtype::F32) | (Stored::BF16, Dtype::Bf16) => return Ok(bytes),
            (Stored::F32, _) => widen(bytes, scratch, f32::from_le_bytes),
            (Stored::F16, _) => widen(bytes, scratch, |element| f16::from_le_bytes(element).to_f32()),
            (Stored::BF16, _) => widen(bytes, scratch, |element| bf16::from_le_bytes(element).to_f32()),
            (other, _) => {
                let (name, dtype) = (name.to_owned(), format!("{other:?}"));
                return Err(CheckpointError::Dtype { path: path.clone(), name, dtype });
            }
        }
        Ok(scratch.encode(dtype))
    }

    /// The same, or why one of them is not finite in that dtype.
    pub fn read_finite<'a>(
        &'a self,
        name: &str,
        dtype: Dtype,
        scratch: &'a mut Scratch,
    ) -> Result<&'a [u8], CheckpointError> {
        let bytes = self.read(name, dtype, scratch)?;
        let (path, _) = &self.files[self.tensors[name].file];
        finite::check(name, bytes, dtype).map_err(|what| CheckpointError::NotFinite { path: path.clone(), what })?;
        Ok(bytes)
    }
}

fn widen<const N: usize>(bytes: &[u8], scratch: &mut Scratch, element: impl Fn([u8; N]) -> f32 + Sync) {
    let values = scratch.values(bytes.len() / N);
    values.par_iter_mut().zip(bytes.par_chunks_exact(N)).for_each(|(value, chunk)| {
        let mut bytes = [0; N];
        bytes.copy_from_slice(chunk);
        *value = element(bytes);
    });
}

/// Tensor names to file names. Those with a path in them are refused: an index names neighbours.
fn weight_map(json: &serde_json::Value) -> Result<BTreeMap<&str, &str>, String> {
    let map = json.get("weight_map").and_then(|map| map.as_object());
    let map = map.ok_or("no weight_map: expected tensor names to file names")?;
    map.iter()
        .map(|(name, file)| match file.as_str() {
            Some(file) if !file.contains('/') && !matches!(file, "" | "." | "..") => Ok((name.as_str(), file)),
            _ => Err(format!("weight_map names {file} for {name}, which is not a file beside it")),
        })
        .collect()
}

fn read_json(path: &Path) -> Result<serde_json::Value, CheckpointError> {
    let text = read_text(path).map_err(CheckpointError::io("read", path))?;
    serde_json::from_str(&text).map_err(|error| CheckpointError::Json {
        path: path.to_owned(),
        reason: format!("not JSON ({error}): fetch it again"),
    })
}
