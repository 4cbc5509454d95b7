//! Agreement among ranks before the first step.

use std::fs;

use precast_system::input;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::held_out::sha256;
use super::resume::Resumed;
use crate::base::roles::Models;
use crate::device::session::Session;
use crate::inputs::checkpoint::Checkpoint;
use crate::inputs::data::Dataset;
use crate::options::{Before, Change, Options, Purpose, RunConfig, change};
use crate::ranks::{RankError, Ranks};
use crate::run::checkpoint::Saved;
use crate::run::failure::Failure;
use crate::run::identity::Identity;
use crate::run::out::Out;
use crate::run::record::{DeviceRecord, RunRecord, binary_digest};

/// Point at which a run begins.
pub(super) struct Begin {
    /// Steps that are done.
    pub step: u64,
    /// State that a rank that does not own the output directory restores.
    pub saved: Option<Saved>,
    /// Contents of `run.json`, for such a rank.
    pub record: Option<RunRecord>,
}

/// Message that rank 0 broadcasts of the run that continues, and of the output directory.
#[derive(Serialize, Deserialize)]
struct Announcement {
    /// After which step it continues, and what it takes over.
    resumes: Option<(u64, Before)>,
    /// A file that is in the output directory for a moment, and what it holds.
    probe: (String, String),
}

/// Resolves what is asked for by the ranks and by the run so far, and tries whether all ranks have the same output
/// directory.
pub(super) fn agree(
    asked: &Options,
    resumed: Option<&Resumed>,
    out: Option<&Out>,
    ranks: &Ranks,
) -> Result<(RunConfig, Begin), Failure> {
    let resumes = resumed.map(|resumed| (resumed.saved.state.step, resumed.saved.state.before()));
    let resolve =
        |resumes: Option<(u64, Before)>| asked.resolve(Purpose::Run, ranks.share(1), resumes.map(|(_, before)| before));
    if ranks.are_alone() {
        let step = resumes.map_or(0, |(step, _)| step);
        return Ok((resolve(resumes)?, Begin { step, saved: None, record: None }));
    }
    // Rank 0 refuses what cannot be before it writes anything.
    let config = out.map(|_| resolve(resumes)).transpose()?;
    let probe = out.map(put_probe).transpose()?;
    let announced = probe.as_ref().map(|(_, file)| Announcement { resumes, probe: file.clone() });
    let own = announced.map_or_else(Vec::new, |announced| serde_json::to_vec(&announced).expect("plain data"));
    let malformed = RankError::io("read what rank 0 broadcasts");
    let announced: Announcement = serde_json::from_slice(&ranks.broadcast(&own)?).map_err(malformed)?;
    let config = config.map_or_else(|| resolve(announced.resumes), Ok)?;
    if out.is_none() {
        let (name, text) = &announced.probe;
        let found = input::read_text(&config.out.join(name), input::SETTINGS_BYTES);
        if found.as_ref().ok() != Some(text) {
            let (rank, out) = (ranks.place.rank, config.out.display());
            let why = found.err().map_or_else(|| "another file is there".to_owned(), |error| error.to_string());
            return Err(RankError::Usage(format!(
                "--out {out} is not the same directory on rank {rank} as on rank 0, which every rank writes \
                checkpoints to: {why}. \
                 Give a directory of a file system that all hosts share"
            ))
            .into());
        }
    }
    ranks.barrier()?;
    drop(probe);
    let (saved, record) = match announced.resumes.filter(|_| out.is_none()) {
        Some((step, _)) => (Some(Saved::open(&config.out, step)?), Some(RunRecord::read(&config.out)?)),
        None => (None, None),
    };
    Ok((config, Begin { step: announced.resumes.map_or(0, |(step, _)| step), saved, record }))
}

/// Puts a file into the output directory, by which another process knows that it sees the same one: its name, and what
/// it holds. It is there for as long as the directory that it lies in.
fn put_probe(out: &Out) -> Result<(tempfile::TempDir, (String, String)), Failure> {
    let io = || Failure::io("write", out.path());
    // As what is put aside: the next start removes what a kill leaves.
    let directory = tempfile::Builder::new().prefix(".precast-aside-probe-").tempdir_in(out.path()).map_err(io())?;
    let text = format!("{}-{:?}", std::process::id(), std::time::SystemTime::now());
    fs::write(directory.path().join("probe"), &text).map_err(io())?;
    let below = directory.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok((directory, (format!("{below}/probe"), text)))
}

/// Compares what ranks were started with and what they have read.
pub(super) fn check_alike(
    config: &RunConfig,
    identity: &Identity,
    models: &Models<Checkpoint>,
    held_out: Option<&Dataset>,
    ranks: &Ranks,
) -> Result<(), RankError> {
    if ranks.count() == 1 {
        return Ok(());
    }
    let options = config.to_json();
    let options = options.as_object().into_iter().flatten();
    let options = options.filter(|(name, _)| change(name) != Change::OnAnyHost);
    let options = options.map(|(name, value)| (name.clone(), value.to_string()));
    let sizes = models.iter().map(|(role, model)| {
        let bytes: u64 = model.weight_files().iter().filter_map(|path| Some(fs::metadata(path).ok()?.len())).sum();
        (format!("size of the {}'s weights", config.name_of(role)), format!("{bytes} bytes"))
    });
    let program = binary_digest().map_or_else(|| "unknown".to_owned(), |digest| digest.to_string());
    let held_out = held_out.map(|data| ("held-out data".to_owned(), sha256(data, config).to_string()));
    let all = [("program".to_owned(), program)].into_iter().chain(identity.values()).chain(options).chain(sizes);
    let all = all.chain(held_out);
    ranks.check_alike(&all.collect::<Vec<_>>())
}

/// Compares kernels, devices and weights.
pub(super) fn check_devices(session: &Session, identity: &Identity, ranks: &Ranks) -> Result<(), RankError> {
    let DeviceRecord { name, compute_capability, driver, arch, .. } = DeviceRecord::of(session.device());
    let of_device = [("compute_capability", compute_capability), ("driver", driver), ("arch", arch)];
    let of_device = [("name", Some(name))].into_iter().chain(of_device);
    let of_device = of_device.map(|(name, value)| (name.to_owned(), json!(value).to_string()));
    // The simulated GPU's is what a plan launches, which a rank that updates nothing launches less of.
    let is_real = session.device().compute_capability.is_some();
    let bundle = is_real.then(|| ("bundle".to_owned(), session.bundle.to_string()));
    ranks.check_alike(&of_device.chain(bundle).chain(identity.values()).collect::<Vec<_>>())
}
