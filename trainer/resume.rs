//! Checkpoints of a run: master weights, moments and position, so that a resumed run equals an uninterrupted
//! one to the last bit.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use precast_fatbins::files::write_directory;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype as Stored, TensorView};
use serde::{Deserialize, Serialize};

use crate::checkpoint::{CheckpointError, check_space};
use crate::config::RunConfig;
use crate::error::Failure;
use crate::session::Session;

/// What a run must have in common with the one it continues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Steps done.
    pub step: u64,
    /// Everything that decides which tokens come when, and in what arithmetic.
    pub run: Vec<(String, String)>,
}

impl State {
    /// The state of a run after `step` steps.
    pub fn new(config: &RunConfig, data: &str, step: u64) -> Self {
        let run = [
            ("batch_size", config.batch_size.to_string()),
            ("seq_len", config.seq_len.to_string()),
            ("grad_accum", config.grad_accum.to_string()),
            ("precision", config.precision.to_string()),
            ("seed", config.seed.to_string()),
            ("shuffle", config.shuffle.to_string()),
            ("data", data.to_owned()),
        ];
        Self { step, run: run.map(|(name, value)| (name.to_owned(), value)).into() }
    }
}

fn directory(out: &Path) -> PathBuf {
    out.join("checkpoint")
}

/// Saves a run after `state.step` steps. The directory appears whole or not at all.
///
/// # Errors
/// [`Failure`] of the device or the disk.
pub fn save(out: &Path, session: &mut Session, state: &State) -> Result<(), Failure> {
    let tensors = session.state();
    let needed: u64 = tensors.iter().map(|(_, tensor)| tensor.elems * tensor.dtype.bytes()).sum();
    check_space(out, "a checkpoint", needed)?;
    let mut contents = Vec::new();
    for (name, tensor) in tensors {
        contents.push((name, tensor.elems as usize, session.read(tensor)?));
    }
    let path = directory(out);
    let written = write_directory::<std::io::Error>(&path, |aside| {
        let json = serde_json::to_string_pretty(state).expect("a state serialises");
        std::fs::write(aside.join("state.json"), json)?;
        let views: Vec<_> = contents
            .iter()
            .map(|(name, elems, bytes)| TensorView::new(Stored::F32, vec![*elems], bytes).map(|view| (*name, view)))
            .collect::<Result<_, _>>()
            .map_err(std::io::Error::other)?;
        let file = aside.join("state.safetensors");
        safetensors::serialize_to_file(views, None::<HashMap<String, String>>, &file).map_err(std::io::Error::other)
    });
    written.map_err(Failure::io("write", path))
}

/// The steps done at a run's last checkpoint, if it is of the `expected` run. Its weights are not read.
///
/// # Errors
/// [`Failure`] where there is none, its state does not read, or it is of another run.
pub fn check(out: &Path, expected: &State) -> Result<u64, Failure> {
    let path = directory(out);
    if !path.join("state.json").exists() {
        return Err(Failure::Usage(format!(
            "--resume: no checkpoint at {}; start the run without --resume",
            path.display()
        )));
    }
    let io = |error| CheckpointError::Io { what: "read", path: path.clone(), error };
    let text = std::fs::read_to_string(path.join("state.json")).map_err(io)?;
    let json = |reason: String| CheckpointError::Json { path: path.join("state.json"), reason };
    let state: State = serde_json::from_str(&text).map_err(|error| json(error.to_string()))?;
    let differing: Vec<String> = state
        .run
        .iter()
        .zip(&expected.run)
        .filter(|(saved, asked)| saved != asked)
        .map(|(saved, asked)| format!("{} was {}, is {}", saved.0, saved.1, asked.1))
        .collect();
    if !differing.is_empty() {
        let what = differing.join("; ");
        return Err(Failure::Usage(format!("--resume: {} is of another run: {what}", path.display())));
    }
    Ok(state.step)
}

/// Restores the last checkpoint of a run and returns the steps done.
///
/// # Errors
/// [`Failure`] where there is none, it is damaged, or it is of another run.
pub fn restore(out: &Path, session: &mut Session, expected: &State) -> Result<u64, Failure> {
    let done = check(out, expected)?;
    let path = directory(out);
    let file = path.join("state.safetensors");
    let bytes = std::fs::read(&file).map_err(CheckpointError::io("read", &file))?;
    let damaged = |error| CheckpointError::Safetensors { path: file.clone(), error };
    let tensors = SafeTensors::deserialize(&bytes).map_err(damaged)?;
    let mut parts: Vec<&[u8]> = Vec::new();
    for (name, tensor) in session.state() {
        let view = tensors.tensor(name).map_err(damaged)?;
        if view.shape() != [tensor.elems as usize] || view.dtype() != Stored::F32 {
            let problems = vec![format!("  {name} is {:?}, this student has {}", view.shape(), tensor.elems)];
            return Err(CheckpointError::Tensors { path, problems }.into());
        }
        parts.push(view.data());
    }
    let [master, m, v] = parts[..] else { unreachable!("a session has three state tensors") };
    session.restore([master, m, v])?;
    Ok(done)
}
