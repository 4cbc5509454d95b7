//! Safetensors files, and Hugging Face directories: `config.json` and one or several of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use precast_kernels::Dtype;
use rayon::prelude::*;
use safetensors::SafeTensorError;
use safetensors::tensor::{Dtype as Stored, Metadata};

use super::file::WeightFile;
use super::{CheckpointError, Scratch, finite, missing};
use crate::base::impostors::{Disguise, read_text};
use crate::base::lines::bounded;

/// Bytes that say how long a header is.
const LENGTH_BYTES: u64 = 8;
/// Headers that the library reads are no longer.
const MOST_HEADER_BYTES: u64 = 100_000_000;
/// Problems that are listed.
const LISTED: usize = 20;

struct Tensor {
    file: usize,
    dtype: Stored,
    shape: Vec<u64>,
    /// Where its first element is in the file.
    start: u64,
}

/// Safetensors files, and what lies where in them.
pub(crate) struct Safetensors {
    files: Vec<(PathBuf, WeightFile)>,
    tensors: BTreeMap<String, Tensor>,
}

impl Safetensors {
    /// Opens a file and reads its header.
    pub fn of_file(path: PathBuf) -> Result<Self, CheckpointError> {
        let mut source = Self { files: Vec::new(), tensors: BTreeMap::new() };
        source.open_file(path, |_| true)?;
        Ok(source)
    }

    /// Opens the files of a Hugging Face directory and reads their headers; returns its `config.json` too.
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
            source.open_file(single, |_| true)?;
        } else {
            source.follow(directory, &index)?;
        }
        Ok((source, json))
    }

    /// Opens the files of an index and takes each tensor from the file that its `weight_map` names, and from no other.
    fn follow(&mut self, directory: &Path, index: &Path) -> Result<(), CheckpointError> {
        let json = read_json(index)?;
        let map = weight_map(&json).map_err(|reason| CheckpointError::Json { path: index.to_owned(), reason })?;
        let files: BTreeSet<&str> = map.values().copied().collect();
        let mut problems = Vec::new();
        for file in files {
            self.open_file(directory.join(file), |name| {
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

    /// Opens a file and takes the tensors whose names are `wanted`.
    fn open_file(&mut self, path: PathBuf, mut wanted: impl FnMut(&str) -> bool) -> Result<(), CheckpointError> {
        let io = |error| CheckpointError::Io { what: "read", path: path.clone(), error };
        let file = WeightFile::open(&path).map_err(io)?;
        let head = head(&file).map_err(io)?;
        let damaged = |error| match Disguise::of(&head) {
            Some(what) => CheckpointError::Disguised { path: path.clone(), what },
            None => CheckpointError::Safetensors { path: path.clone(), error },
        };
        let (start, metadata) = parse(&head, file.bytes()).map_err(damaged)?;
        let tensors = metadata.tensors();
        for (name, info) in tensors.into_iter().filter(|(name, _)| wanted(name)) {
            self.tensors.insert(
                name,
                Tensor {
                    file: self.files.len(),
                    dtype: info.dtype,
                    shape: info.shape.iter().map(|dim| *dim as u64).collect(),
                    start: start + info.data_offsets.0 as u64,
                },
            );
        }
        self.files.push((path, file));
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

    /// Elements of a tensor in a dtype.
    pub fn read<'a>(
        &'a self,
        name: &str,
        elements: Range<u64>,
        dtype: Dtype,
        scratch: &'a mut Scratch,
    ) -> Result<&'a [u8], CheckpointError> {
        let tensor = &self.tensors[name];
        let (path, file) = &self.files[tensor.file];
        let width = match tensor.dtype {
            Stored::F32 => 4,
            Stored::F16 | Stored::BF16 => 2,
            other => {
                let (name, dtype) = (name.to_owned(), format!("{other:?}"));
                return Err(CheckpointError::Dtype { path: path.clone(), name, dtype });
            }
        };
        let range = tensor.start + width * elements.start..tensor.start + width * elements.end;
        let io = |error| CheckpointError::Io { what: "read", path: path.clone(), error };
        if matches!((tensor.dtype, dtype), (Stored::F32, Dtype::F32) | (Stored::BF16, Dtype::Bf16)) {
            return file.part(range, &mut scratch.raw).map_err(io);
        }
        let bytes = file.part(range, &mut scratch.raw).map_err(io)?;
        scratch.values.resize((elements.end - elements.start) as usize, 0.0);
        let values = &mut scratch.values;
        match tensor.dtype {
            Stored::F32 => widen(bytes, values, f32::from_le_bytes),
            Stored::F16 => widen(bytes, values, |element| f16::from_le_bytes(element).to_f32()),
            _ => widen(bytes, values, |element| bf16::from_le_bytes(element).to_f32()),
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
        let elements = self.tensors[name].shape.iter().product();
        let bytes = self.read(name, 0..elements, dtype, scratch)?;
        let (path, _) = &self.files[self.tensors[name].file];
        finite::check(name, bytes, dtype).map_err(|what| CheckpointError::NotFinite { path: path.clone(), what })?;
        Ok(bytes)
    }
}

/// Length of the header and header, as far as they are there.
fn head(file: &WeightFile) -> std::io::Result<Vec<u8>> {
    let length = file.head(LENGTH_BYTES)?;
    let header_bytes = length.try_into().map_or(0, u64::from_le_bytes);
    // A longer one is refused by its length alone.
    file.head(LENGTH_BYTES + header_bytes.min(MOST_HEADER_BYTES))
}

/// Where the data starts, and what is in it: as the library reads files that are in memory whole.
fn parse(head: &[u8], file_bytes: u64) -> Result<(u64, Metadata), SafeTensorError> {
    let (length, header) = head.split_first_chunk().ok_or(SafeTensorError::HeaderTooSmall)?;
    let header_bytes = u64::from_le_bytes(*length);
    if header_bytes > MOST_HEADER_BYTES {
        return Err(SafeTensorError::HeaderTooLarge);
    }
    let header = header.get(..header_bytes as usize).ok_or(SafeTensorError::InvalidHeaderLength)?;
    let header = std::str::from_utf8(header).map_err(SafeTensorError::InvalidHeader)?;
    let metadata: Metadata = serde_json::from_str(header).map_err(SafeTensorError::InvalidHeaderDeserialization)?;
    let end = metadata.tensors().values().map(|info| info.data_offsets.1 as u64).max().unwrap_or(0);
    let start = LENGTH_BYTES + header_bytes;
    if start.checked_add(end) == Some(file_bytes) {
        Ok((start, metadata))
    } else {
        Err(SafeTensorError::MetadataIncompleteBuffer)
    }
}

fn widen<const N: usize>(bytes: &[u8], values: &mut [f32], element: impl Fn([u8; N]) -> f32 + Sync) {
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
