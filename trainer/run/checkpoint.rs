//! Checkpoints of a run: master weights, moments and position, so that a resumed run equals an uninterrupted one to the
//! last bit. `checkpoint-N` is a directory of one file a tensor, `state.json`, and `precast.sha256`, which lists them.

use std::io::Write;
use std::path::{Path, PathBuf};

use precast_fatbins::Digest;
use precast_kernels::Dtype;
use precast_plan::Moments;
use precast_plan::training::CAST;
use precast_system::files::{Aside, Listing};
use precast_system::input;
use serde::{Deserialize, Serialize};

use super::error::RunError;
use super::identity::{Identity, PACKING};
use super::out::Out;
use super::samples_file::Extent;
use super::saved_tensor::{SavedTensor, file_name, header};
use crate::base::checkpoint_name::PREFIX;
pub use crate::base::checkpoint_name::name;
use crate::base::io::IoError;
use crate::device::session::Session;
use crate::inputs::checkpoint::CheckpointError;
use crate::options::Before;
use crate::ranks::{RankError, Ranks};

const STATE: &str = "state.json";

/// Position and identity of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    pub step: u64,
    /// Steps that the run was to take, which a cosine follows from.
    pub steps: u64,
    /// Identity of the run.
    pub run: Identity,
    /// Running digest of the tokens of those steps.
    pub tokens_sha256: Digest,
    /// Digest of the lines of `metrics.jsonl` of those steps.
    pub metrics_sha256: Digest,
    /// Bytes of `samples.jsonl` of those steps; none of a run that writes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<Extent>,
    /// Pieces of each rank's files, where several ranks wrote it: first element and number of elements of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<Vec<(u64, u64)>>,
}

impl State {
    /// Returns the state that a run that continues takes over from the run so far.
    pub fn before(&self) -> Before {
        let replicas = self.run.value("replicas").and_then(|text| text.parse().ok()).unwrap_or(1);
        // A run of a version without that option has no packing.
        let packing = self.run.value(PACKING).and_then(|text| text.parse().ok()).unwrap_or_default();
        Before { steps: self.steps, replicas, packing }
    }
}

/// Steps of the checkpoints in an output directory, ascending.
///
/// # Errors
/// [`IoError`].
pub fn steps(out: &Path) -> Result<Vec<u64>, IoError> {
    let mut steps = Vec::new();
    for entry in std::fs::read_dir(out).map_err(IoError::of("read", out))?.flatten() {
        let step: Option<u64> = entry.file_name().to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse().ok());
        // Other spellings of a number are names that no run writes.
        steps.extend(step.filter(|step| entry.file_name() == *name(*step) && entry.path().is_dir()));
    }
    steps.sort_unstable();
    Ok(steps)
}

/// Removes all but the latest checkpoints, and the best one.
///
/// # Errors
/// [`RunError::Io`].
pub fn prune(out: &mut Out, keep: u64, best: Option<u64>) -> Result<(), RunError> {
    let steps = steps(out.path())?;
    for old in steps[..steps.len().saturating_sub(keep as usize)].iter().filter(|old| Some(**old) != best) {
        out.remove(&name(*old))?;
    }
    Ok(())
}

/// Bytes of a checkpoint's tensors, of so many elements each.
pub fn bytes(elems: u64, moments: Moments) -> u64 {
    (Dtype::F32.bytes() + 2 * moments.dtype().bytes()) * elems
}

/// Pieces of each rank, as a checkpoint lists them.
pub fn shards(session: &Session, ranks: &Ranks) -> Vec<Vec<(u64, u64)>> {
    if ranks.count() == 1 {
        return Vec::new();
    }
    let shards = &session.plan.shards;
    let pieces = |rank| shards.pieces(rank).iter().map(|piece| (piece.start, piece.elems)).collect();
    (0..ranks.count()).map(pieces).collect()
}

/// Writes what this rank has of the tensors, part by part, into a directory: one that rank 0 has aside of its place.
fn fill_own(aside: &mut Aside, session: &mut Session, ranks: &Ranks, path: &Path) -> Result<(), RunError> {
    let io = || RunError::io("write", path);
    let (rank, count) = (ranks.place.rank as usize, ranks.count() as usize);
    for (name, dtype, pieces) in session.state() {
        let mut file = aside.create(&file_name(name, rank, count)).map_err(io())?;
        let mut write = |part: &[u8]| file.write_all(part).map_err(io());
        let elems = pieces.iter().map(|(_, piece)| piece.elems).sum();
        write(&header(name, elems, dtype))?;
        for (_, piece) in pieces {
            session.read_parts(piece, &mut write)?;
        }
        aside.close(file);
    }
    Ok(())
}

/// Writes a run after `state.step` steps beside its place in the output directory: each rank what it has, into one
/// directory. Rank 0 gets that, whole.
///
/// # Errors
/// [`RunError`] of the device, the disk or another rank.
pub fn fill(out: &Path, session: &mut Session, state: &State, ranks: &Ranks) -> Result<Option<Aside>, RunError> {
    let path = out.join(name(state.step));
    let io = || RunError::io("write", path.clone());
    if !ranks.is_first() {
        let shared = String::from_utf8_lossy(&ranks.broadcast(&[])?).into_owned();
        // By its name: where this rank has another path to it, the last part is the same.
        let shared = out.join(shared);
        let mut aside = Aside::within(&shared, &path).map_err(RunError::io("write", &shared))?;
        fill_own(&mut aside, session, ranks, &shared)?;
        let listing = aside.leave().map_err(RunError::io("write", &shared))?;
        ranks.all_gather(listing.text().as_bytes())?;
        return Ok(None);
    }
    let mut aside = Aside::new(&path).map_err(io())?;
    let shared = aside.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    ranks.broadcast(shared.as_bytes())?;
    fill_own(&mut aside, session, ranks, &path)?;
    for listing in ranks.all_gather(&[])?.iter().skip(1) {
        let files = Listing::parse(&String::from_utf8_lossy(listing));
        aside.include(files.ok_or_else(|| RankError::io("hear what other ranks wrote")("it does not read"))?);
    }
    let json = serde_json::to_string_pretty(state).expect("a state serializes") + "\n";
    aside.write(STATE, json.as_bytes()).map_err(io())?;
    Ok(Some(aside))
}

/// A checkpoint of which every byte is as it was written.
pub struct Saved {
    path: PathBuf,
    /// Position and identity of the run.
    pub state: State,
}

impl Saved {
    /// Reads and verifies a checkpoint.
    ///
    /// # Errors
    /// [`RunError::Unusable`] names the file.
    pub fn open(out: &Path, step: u64) -> Result<Self, RunError> {
        let path = out.join(name(step));
        let all = steps(out)?;
        let before = all.iter().rfind(|other| **other < step);
        let damaged = |error| {
            let none = "There is no earlier checkpoint: remove this one and start the run again with --overwrite";
            let advice = match before {
                _ if all.last() != Some(&step) => {
                    "Remove it, and --resume takes the best of the others; or give --final last".to_owned()
                }
                Some(before) => format!("Remove it to continue from {}", name(*before)),
                None => none.to_owned(),
            };
            RunError::Unusable(format!("{} is damaged: {error}\n{advice}", path.display()))
        };
        let listing = Listing::read(&path).map_err(&damaged)?;
        listing.check(&path).map_err(damaged)?;
        let file = path.join(STATE);
        let json = |reason: String| CheckpointError::of(&file, reason);
        let text = input::read_text(&file, input::SETTINGS_BYTES).map_err(RunError::io("read", &file))?;
        let state: State = serde_json::from_str(&text).map_err(|error| json(error.to_string()))?;
        if state.step != step {
            return Err(json(format!("it was written after step {}: the directory was renamed", state.step)).into());
        }
        Ok(Self { path, state })
    }

    /// Sends what this rank has of a checkpoint's tensors to the device, part by part, whoever wrote it.
    ///
    /// # Errors
    /// [`RunError`] of the files or the device.
    pub fn restore(&self, session: &mut Session) -> Result<(), RunError> {
        let elems = session.plan.shards.elems();
        for (name, dtype, targets) in session.restored_state() {
            let mut tensor = self.tensor(name, elems, dtype)?;
            for (start, target) in targets {
                let mut done = 0;
                tensor.read_parts((start, target.elems), |part| {
                    let count = part.len() as u64 / dtype.bytes();
                    session.write(target.slice(done, count), part)?;
                    done += count;
                    Ok::<_, RunError>(())
                })?;
            }
        }
        // The working copy is made of what was written.
        Ok(session.run(CAST)?)
    }

    /// Opens the master weights, of so many elements.
    ///
    /// # Errors
    /// [`RunError`] where the files do not hold as many.
    pub fn masters(&self, elems: u64) -> Result<SavedTensor, RunError> {
        self.tensor("master", elems, Dtype::F32)
    }

    fn tensor(&self, name: &str, elems: u64, dtype: Dtype) -> Result<SavedTensor, RunError> {
        let whole = [vec![(0, elems)]];
        let shards = if self.state.shards.is_empty() { &whole[..] } else { &self.state.shards };
        if let Some(problem) = fault(shards, elems) {
            return Err(CheckpointError::tensors(&self.path, &[format!("  {name} {problem}")]).into());
        }
        SavedTensor::open(&self.path, (name, dtype), shards)
    }
}

/// Says why pieces of ranks are not a tensor of so many elements, whole; none where they are.
fn fault(shards: &[Vec<(u64, u64)>], elems: u64) -> Option<String> {
    let mut pieces: Vec<(u64, u64)> = shards.iter().flatten().copied().filter(|(_, elems)| *elems > 0).collect();
    pieces.sort_unstable();
    let found = pieces.iter().fold(0, |found: u64, (_, elems)| found.saturating_add(*elems));
    if found != elems {
        return Some(format!("has {found} values and this student {elems}"));
    }
    let mut end = 0;
    let is_one = pieces.iter().all(|(start, elems)| {
        let is_behind = *start == end;
        end += elems;
        is_behind
    });
    (!is_one).then(|| "is in pieces that overlap or leave gaps".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::inputs::data::Packing;

    #[test]
    fn pieces_that_are_not_one_tensor_are_refused() {
        let fault = |pieces: &[(u64, u64)]| fault(&[pieces.to_vec(), vec![(3, 4)]], 9);
        assert_eq!(fault(&[(0, 3), (7, 2), (5, 0)]), None);
        let not_one = Some("is in pieces that overlap or leave gaps".to_owned());
        assert_eq!(
            [fault(&[(0, 4), (8, 1)]), fault(&[(0, 3), (3, 2)]), fault(&[(u64::MAX, 5)])],
            [(); 3].map(|()| not_one.clone())
        );
        assert_eq!(fault(&[(0, u64::MAX)]).unwrap(), format!("has {} values and this student 9", u64::MAX));
    }

    /// Versions without that option padded rows, and their runs go on so.
    #[test]
    fn a_run_that_names_no_packing_has_none() {
        let packing = |run| {
            let none = "0".repeat(64);
            let state = json!({"step": 1, "steps": 2, "run": run, "tokens_sha256": none, "metrics_sha256": none});
            serde_json::from_value::<State>(state).unwrap().before().packing
        };
        assert_eq!(packing(json!({"packing": "chat 1", "lr": "0.1"})), Packing::None);
        assert_eq!(packing(json!({"packing": "chat 1", PACKING: "rows"})), Packing::Rows);
    }
}
