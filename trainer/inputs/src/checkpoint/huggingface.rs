//! Safetensors files, and Hugging Face directories: `config.json` and one or several of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use precast_plan::config::{Rewritten, rewritten};
use safetensors::SafeTensorError;
use safetensors::tensor::Metadata;

use super::file::WeightFile;
use super::kind::Kind;
use super::store::{Tensor, Tensors};
use super::{CheckpointError, fused, missing};
use crate::base::impostors::{Disguise, read_text};
use crate::base::lines::bounded;
use crate::base::notes::note;

/// Settings of completions, and the tokens that end them.
pub(super) const GENERATION_CONFIG: &str = "generation_config.json";
/// Bytes that say how long a header is.
const LENGTH_BYTES: u64 = 8;
/// Headers that the library reads are no longer.
const MOST_HEADER_BYTES: u64 = 100_000_000;
/// Problems that are listed.
const LISTED: usize = 20;

impl Tensors {
    /// Opens a safetensors file and reads its header.
    pub fn of_file(path: PathBuf) -> Result<Self, CheckpointError> {
        let mut tensors = Self::default();
        tensors.open_file(path, |_| true)?;
        Ok(tensors)
    }

    /// Opens the files of a Hugging Face directory and reads their headers; returns its `config.json` too.
    pub(super) fn open(directory: &Path) -> Result<(Self, serde_json::Value), CheckpointError> {
        let config = directory.join("config.json");
        if !config.exists() {
            return Err(missing::model(directory));
        }
        let mut json = read_json(&config)?;
        let index = directory.join("model.safetensors.index.json");
        let single = directory.join("model.safetensors");
        // As transformers has it: an index counts only where the single file is not there.
        let mut tensors = match (single.exists(), index.exists()) {
            (true, _) => Self::of_file(single)?,
            (false, true) => Self::follow(directory, &index)?,
            (false, false) => return Err(missing::weights(directory)),
        };
        missing::refuse_adapter_in(directory)?;
        if let Some(other) = rewritten(&json).map_err(|error| CheckpointError::of(&config, error))? {
            let Rewritten { config: other, note: what } = other;
            let (path, class) = (config.display(), other["architectures"][0].as_str().unwrap_or_default());
            note(format_args!("{path}: {what} {class}"));
            (json, tensors.list) = (other, text_tensors(tensors.list));
        }
        tensors.list = fused::split(tensors.list);
        Ok((tensors, json))
    }

    /// Opens the files of an index and takes each tensor from the file that its `weight_map` names, and from no other.
    fn follow(directory: &Path, index: &Path) -> Result<Self, CheckpointError> {
        let json = read_json(index)?;
        let map = weight_map(&json).map_err(|reason| CheckpointError::of(index, reason))?;
        let files: BTreeSet<&str> = map.values().copied().collect();
        let (mut tensors, mut problems) = (Self::default(), Vec::new());
        for file in files {
            tensors.open_file(directory.join(file), |name| {
                let named = map.get(name);
                match named {
                    Some(named) if *named == file => {}
                    Some(named) => problems.push(format!("  {name} is in {file}, weight_map says {named}")),
                    None => problems.push(format!("  {name} is in {file}, weight_map does not name it")),
                }
                named == Some(&file)
            })?;
        }
        let missing = map.iter().filter(|(name, _)| !tensors.list.contains_key(**name));
        problems.extend(missing.map(|(name, file)| format!("  {name} is not in {file}")));
        if problems.is_empty() {
            return Ok(tensors);
        }
        let (index, problems) = (index.display(), bounded(problems, LISTED).join("\n"));
        Err(CheckpointError::Wrong(format!("{index} does not match the files beside it:\n{problems}")))
    }

    /// Opens a file and takes the tensors whose names are `wanted`.
    fn open_file(&mut self, path: PathBuf, mut wanted: impl FnMut(&str) -> bool) -> Result<(), CheckpointError> {
        let io = |error| CheckpointError::Io { what: "read", path: path.clone(), error };
        let file = WeightFile::open(&path).map_err(io)?;
        let head = head(&file).map_err(io)?;
        let damaged = |error| match Disguise::of(&head) {
            Some(what) => CheckpointError::disguised(&path, what),
            None => CheckpointError::of(&path, format_args!("damaged safetensors file ({error}): fetch it again")),
        };
        let (start, metadata) = parse(&head, file.bytes).map_err(damaged)?;
        for (name, info) in metadata.tensors().into_iter().filter(|(name, _)| wanted(name)) {
            let format = format!("{:?}", info.dtype);
            let unread = || format!("tensor {name} has dtype {format}: supported are F32, F16 and BF16");
            let kind = Kind::of(info.dtype).ok_or_else(unread);
            let shape = info.shape.iter().map(|dim| *dim as u64).collect();
            let start = start + info.data_offsets.0 as u64;
            self.list.insert(name, Tensor { file: self.files.len(), start, shape, format, kind });
        }
        self.files.push((path, file));
        Ok(())
    }
}

/// Takes of a model that also sees images the tensors of its text model, without its heads of several tokens, by the
/// names that they have without it: files of transformers 4 and 5 put them in different places.
fn text_tensors(all: BTreeMap<String, Tensor>) -> BTreeMap<String, Tensor> {
    let of_images = |name: &str| {
        let name = name.strip_prefix("model.").unwrap_or(name);
        ["vision_tower.", "multi_modal_projector.", "visual.", "mtp."].iter().any(|prefix| name.starts_with(prefix))
    };
    let text_name = |name: String| match (name.strip_prefix("model.language_model."), &name) {
        (Some(rest), _) => format!("model.{rest}"),
        (None, name) => name.strip_prefix("language_model.").unwrap_or(name).to_owned(),
    };
    all.into_iter().filter(|(name, _)| !of_images(name)).map(|(name, tensor)| (text_name(name), tensor)).collect()
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

/// Tensor names to file names. Those with a path in them are refused: an index names neighbors.
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

/// The `generation_config.json` of a directory; null where there is none.
pub(super) fn generation_config(directory: &Path) -> Result<serde_json::Value, CheckpointError> {
    let path = directory.join(GENERATION_CONFIG);
    if path.exists() { read_json(&path) } else { Ok(serde_json::Value::Null) }
}

fn read_json(path: &Path) -> Result<serde_json::Value, CheckpointError> {
    let text = read_text(path).map_err(CheckpointError::io("read", path))?;
    serde_json::from_str(&text)
        .map_err(|error| CheckpointError::of(path, format_args!("not JSON ({error}): fetch it again")))
}
