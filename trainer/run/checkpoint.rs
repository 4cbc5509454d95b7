//! Checkpoints of a run: master weights, moments and position, so that a resumed run equals an uninterrupted one to the
//! last bit. `checkpoint-N` is a directory of one file a tensor, `state.json`, and `precast.sha256`, which lists them.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use precast_fatbins::files::{Aside, Listing};
use precast_fatbins::{Digest, input};
use precast_plan::Tensor;
use safetensors::tensor::Dtype as Stored;
use serde::{Deserialize, Serialize};

use super::identity::Identity;
use super::out::Out;
use crate::checkpoint::{CheckpointError, safetensors_header};
use crate::error::Failure;
use crate::session::Session;

const PREFIX: &str = "checkpoint-";
const STATE: &str = "state.json";
/// Bytes of a tensor that are in memory at once.
const PART_BYTES: usize = 16 << 20;

/// Where a run was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    pub step: u64,
    /// Steps that the run was to take, which a cosine follows from.
    pub steps: u64,
    /// What the run is.
    pub run: Identity,
    /// Running digest of the tokens of those steps.
    #[serde(with = "precast_fatbins::hex")]
    pub tokens_sha256: Digest,
    /// Digest of the lines of `metrics.jsonl` of those steps.
    #[serde(with = "precast_fatbins::hex")]
    pub metrics_sha256: Digest,
}

/// The name of the checkpoint after a step.
pub fn name(step: u64) -> String {
    format!("{PREFIX}{step}")
}

/// Steps of the checkpoints in an output directory, ascending.
///
/// # Errors
/// [`Failure::Io`].
pub fn steps(out: &Path) -> Result<Vec<u64>, Failure> {
    let mut steps = Vec::new();
    for entry in std::fs::read_dir(out).map_err(Failure::io("read", out))?.flatten() {
        let step: Option<u64> = entry.file_name().to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse().ok());
        // Other spellings of a number are names that no run writes.
        steps.extend(step.filter(|step| entry.file_name() == *name(*step) && entry.path().is_dir()));
    }
    steps.sort_unstable();
    Ok(steps)
}

/// Removes all but the latest checkpoints.
///
/// # Errors
/// [`Failure::Io`].
pub fn prune(out: &mut Out, keep: u64) -> Result<(), Failure> {
    let steps = steps(out.path())?;
    for old in &steps[..steps.len().saturating_sub(keep as usize)] {
        out.remove(&name(*old))?;
    }
    Ok(())
}

/// Bytes of a checkpoint's tensors.
pub fn bytes(tensors: &[(&str, Tensor)]) -> u64 {
    tensors.iter().map(|(_, tensor)| tensor.bytes()).sum()
}

fn header(name: &str, tensor: Tensor) -> Vec<u8> {
    safetensors_header([(name.to_owned(), vec![tensor.elems as usize])], Stored::F32, None)
}

/// Writes a run after `state.step` steps, tensor by tensor and part by part, beside its place in the output directory.
///
/// # Errors
/// [`Failure`] of the device or the disk.
pub fn fill(out: &Path, session: &mut Session, state: &State) -> Result<Aside, Failure> {
    let path = out.join(name(state.step));
    let io = || Failure::io("write", path.clone());
    let mut aside = Aside::new(&path).map_err(io())?;
    for (name, tensor) in session.state() {
        let mut file = aside.create(&format!("{name}.safetensors")).map_err(io())?;
        let mut write = |part: &[u8]| file.write_all(part).map_err(io());
        write(&header(name, tensor))?;
        session.read_parts(tensor, &mut write)?;
        aside.close(file);
    }
    let json = serde_json::to_string_pretty(state).expect("a state serialises") + "\n";
    aside.write(STATE, json.as_bytes()).map_err(io())?;
    Ok(aside)
}

/// A checkpoint of which every byte is as it was written.
pub struct Saved {
    path: PathBuf,
    /// Where the run was.
    pub state: State,
}

impl Saved {
    /// Reads and verifies a checkpoint.
    ///
    /// # Errors
    /// [`Failure::Damaged`] names the file.
    pub fn open(out: &Path, step: u64) -> Result<Self, Failure> {
        let path = out.join(name(step));
        let others: Vec<u64> = steps(out)?.into_iter().filter(|other| *other < step).collect();
        let damaged =
            |error| Failure::Damaged { path: path.clone(), before: others.last().map(|step| name(*step)), error };
        let listing = Listing::read(&path).map_err(damaged)?;
        listing.check(&path).map_err(damaged)?;
        let file = path.join(STATE);
        let json = |reason: String| CheckpointError::Json { path: file.clone(), reason };
        let text = input::read_text(&file, input::SETTINGS_BYTES).map_err(Failure::io("read", &file))?;
        let state: State = serde_json::from_str(&text).map_err(|error| json(error.to_string()))?;
        if state.step != step {
            return Err(json(format!("it is of step {}: the directory was renamed", state.step)).into());
        }
        Ok(Self { path, state })
    }

    /// Sends a checkpoint's tensors to the device, part by part.
    ///
    /// # Errors
    /// [`Failure`] of the files or the device.
    pub fn restore(&self, session: &mut Session) -> Result<(), Failure> {
        for (name, tensor) in session.state() {
            let path = self.path.join(format!("{name}.safetensors"));
            let io = || Failure::io("read", path.clone());
            let mut file = File::open(&path).map_err(io())?;
            // The header of a file of this size and nothing else.
            let expected = header(name, tensor);
            let mut found = vec![0; expected.len()];
            let whole = file.metadata().map_err(io())?.len() == expected.len() as u64 + tensor.elems * 4;
            if !whole || file.read_exact(&mut found).is_err() || found != expected {
                let problems = vec![format!("  {name} is not the {} f32 values of this student", tensor.elems)];
                return Err(CheckpointError::Tensors { path, problems }.into());
            }
            let mut part = vec![0; PART_BYTES.min(4 * tensor.elems as usize)];
            let mut done = 0;
            while done < tensor.elems {
                let elems = (tensor.elems - done).min(PART_BYTES as u64 / 4);
                let part = &mut part[..4 * elems as usize];
                file.read_exact(part).map_err(io())?;
                session.write(tensor.slice(done, elems), part)?;
                done += elems;
            }
        }
        session.restored()
    }
}
