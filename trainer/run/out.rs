//! The output directory of a run: one process uses it, one run owns it, and what is not of a run stays.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use precast_fatbins::files::{
    self, Aside, Claim, ClaimError, Existing, Listing, ListingError, is_aside, walk, write_whole,
};
use precast_fatbins::{Digest, input};
use serde_json::Value;

use crate::error::Failure;
use crate::metrics::Metrics;
use crate::record::{self, RunRecord};
use crate::report;

/// Held by the process that uses the directory.
const LOCK: &str = ".precast.lock";
/// Grows with every step, so that its digest is that of the lines so far.
const METRICS: &str = "metrics.jsonl";
/// What the run is; it lists all other files.
const RECORD: &str = "run.json";
/// A report grows with its run: this is more than the longest one has.
const MOST_REPORT_BYTES: u64 = 4 << 30;

/// What a run does with an output directory that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Refuses it.
    Fresh,
    /// Continues the run in it.
    Resume,
    /// Replaces the run in it.
    Overwrite,
}

/// An output directory that must not be used as it is asked for.
#[derive(Debug, thiserror::Error)]
pub enum OutError {
    /// Another process uses it.
    #[error(
        "{} is in use by another run{}: wait for it, or choose another --out",
        path.display(),
        pid.map(|pid| format!(", process {pid}")).unwrap_or_default()
    )]
    Busy {
        /// The directory.
        path: PathBuf,
        /// The process.
        pid: Option<u32>,
    },
    /// There are files in it.
    #[error(
        "{} is not empty (it holds {holds}): --resume continues the run in it, --overwrite replaces it; or choose another --out",
        path.display()
    )]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// A file in it.
        holds: String,
    },
    /// There is something where a directory is to be written whole.
    #[error(
        "{} is not empty (it holds {holds}): --overwrite replaces what Precast wrote; or choose another --out",
        path.display()
    )]
    Occupied {
        /// The directory.
        path: PathBuf,
        /// A file in it.
        holds: String,
    },
    /// It is no directory.
    #[error("{} is not a directory: choose another --out", path.display())]
    NoDirectory {
        /// What.
        path: PathBuf,
    },
    /// There is nothing to continue.
    #[error("--resume: {reason} at {}; start the run without --resume{}", path.display(), if *run { ", with --overwrite" } else { "" })]
    Nothing {
        /// The directory.
        path: PathBuf,
        /// `no run`, `no checkpoint`.
        reason: &'static str,
        /// Whether there is a run.
        run: bool,
    },
    /// An input would be among the outputs.
    #[error("{} lies in --out {}: an input is never written over; choose another --out", input.display(), path.display())]
    Input {
        /// The input.
        input: PathBuf,
        /// The directory.
        path: PathBuf,
    },
    /// Something in it is not what a run wrote.
    #[error("{0}\nNothing was changed. Move it away, or choose another --out")]
    NotOurs(ListingError),
    /// The file system refuses.
    #[error("cannot {what} {}: {error}", path.display())]
    Io {
        /// make, lock, move.
        what: &'static str,
        /// What.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl OutError {
    fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Io { what, path, error }
    }
}

/// The output directory of this process's run.
#[derive(Debug)]
pub struct Out {
    dir: PathBuf,
    claim: Option<Claim>,
    /// This process made it: where it stays empty, it goes.
    made: bool,
    /// The run that [`Self::begin`] replaces.
    old: Option<Owned>,
    /// What this run is about to write or has written, `metrics.jsonl` and `run.json` apart.
    files: Listing,
    /// What the files of those names were until they are replaced.
    replacing: Listing,
    /// Moved runs that this one replaces, deleted at its first checkpoint.
    replaces: Vec<PathBuf>,
}

/// What `run.json` says a run wrote.
#[derive(Debug, Default)]
struct Owned {
    files: Listing,
    replacing: Listing,
    /// Lines of `metrics.jsonl` and their digest, as they were when `run.json` was last written.
    metrics: Option<(u64, Digest)>,
    replaces: Vec<PathBuf>,
}

impl Owned {
    /// None where `run.json` is not of a run whose files are listed.
    fn of(record: &Value) -> Option<Self> {
        let listing = |name: &str| -> Option<Listing> {
            let digest = |(name, digest): (&String, &Value)| Some((name.clone(), digest.as_str()?.parse().ok()?));
            record.get(name)?.as_object()?.iter().map(digest).collect::<Option<_>>().map(Listing)
        };
        let metrics = record.get("metrics").and_then(|metrics| {
            Some((metrics.get("lines")?.as_u64()?, metrics.get("sha256")?.as_str()?.parse().ok()?))
        });
        let replaces = record.get("replaces").and_then(Value::as_array);
        Some(Self {
            files: listing("files")?,
            replacing: listing("replacing").unwrap_or_default(),
            metrics,
            replaces: replaces.into_iter().flatten().filter_map(Value::as_str).map(PathBuf::from).collect(),
        })
    }

    /// What the `run.json` in a directory says; none where it lists no files.
    fn read(dir: &Path) -> Result<Option<Self>, Failure> {
        let mut owned = Self::of(&record::read(dir)?);
        owned.iter_mut().for_each(|owned| list_report(dir, &mut owned.files));
        Ok(owned)
    }

    /// The first file, link or directory that the run did not write.
    fn check_names(&self, dir: &Path) -> Result<(), ListingError> {
        for name in walk(dir)? {
            let name = name.map_err(ListingError::Foreign)?;
            let ours = match name.as_str() {
                LOCK | RECORD => true,
                METRICS => self.metrics.is_some(),
                name => self.files.0.contains_key(name) || self.replacing.0.contains_key(name),
            };
            if !ours {
                return Err(ListingError::Foreign(dir.join(name)));
            }
        }
        Ok(())
    }

    /// The same, and the first file whose bytes are not those that the run wrote.
    fn check(&self, dir: &Path) -> Result<(), ListingError> {
        self.check_names(dir)?;
        for name in walk(dir)?.into_iter().flatten() {
            let path = dir.join(&name);
            let same = match (name.as_str(), self.metrics) {
                (LOCK | RECORD, _) => true,
                (METRICS, Some((lines, digest))) => {
                    Metrics::read(&path).is_ok_and(|metrics| metrics.digest(lines) == Some(digest))
                }
                _ => {
                    let found = files::digest(&path).map_err(|error| ListingError::Io { path: path.clone(), error })?;
                    [&self.files, &self.replacing].iter().any(|listing| listing.0.get(&name) == Some(&found))
                }
            };
            if !same {
                return Err(ListingError::Changed(path));
            }
        }
        Ok(())
    }

    /// Deletes what the run wrote, its record last, and the directory if nothing else is in it.
    fn remove(&self, dir: &Path) -> io::Result<()> {
        let mut all = self.files.clone();
        all.0.extend(self.replacing.0.clone());
        if let Some((_, digest)) = self.metrics {
            all.0.insert(METRICS.to_owned(), digest);
        }
        all.remove(dir)?;
        // A kill may have left the lock.
        for name in [LOCK, RECORD] {
            files::remove_file(&dir.join(name))?;
        }
        match fs::remove_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => Err(error),
            _ => Ok(()),
        }
    }
}

impl Out {
    /// Takes an output directory for this process: makes it, locks it, settles what killed runs left in it. `inputs` are
    /// what must not lie in it.
    ///
    /// # Errors
    /// [`OutError`], or [`Failure`] where the run in it cannot be read; nothing of it has been changed.
    pub fn claim(dir: &Path, start: Start, inputs: &[&Path]) -> Result<Self, Failure> {
        let dir = resolved(dir);
        refuse_inputs(&dir, inputs)?;
        let there = fs::symlink_metadata(&dir);
        if there.as_ref().is_ok_and(|metadata| !metadata.is_dir()) {
            return Err(OutError::NoDirectory { path: dir }.into());
        }
        let made = there.is_err() && !put_back(&dir).map_err(OutError::io("restore", &dir))?;
        let nothing = |reason, run| OutError::Nothing { path: dir.clone(), reason, run };
        if made {
            if start == Start::Resume {
                return Err(nothing("no checkpoint", false).into());
            }
            fs::create_dir_all(&dir).map_err(OutError::io("create", &dir))?;
        } else if start == Start::Fresh && !dir.join(LOCK).exists() {
            // Nothing is written to a directory of somebody else, not even a lock.
            refuse_contents(&dir)?;
        }
        let claim = match Claim::take(&dir.join(LOCK)) {
            Ok(claim) => claim,
            Err(ClaimError::Held(pid)) => return Err(OutError::Busy { path: dir, pid }.into()),
            Err(ClaimError::Io(error)) => return Err(OutError::Io { what: "lock", path: dir, error }.into()),
        };
        let mut out = Self {
            dir: dir.clone(),
            claim: Some(claim),
            made,
            old: None,
            files: Listing::default(),
            replacing: Listing::default(),
            replaces: Vec::new(),
        };
        let empty = is_empty(&dir)?;
        if empty {
            files::sweep(&dir).map_err(OutError::io("clear", &dir))?;
        }
        match start {
            Start::Fresh => refuse_contents(&dir)?,
            Start::Overwrite if empty => {}
            Start::Resume if empty => return Err(nothing("no checkpoint", false).into()),
            Start::Resume | Start::Overwrite => {
                if !dir.join(RECORD).exists() {
                    return Err(match start {
                        Start::Resume => nothing("no checkpoint", false).into(),
                        _ => OutError::NotOurs(ListingError::Unlisted(dir.clone())).into(),
                    });
                }
                let unlisted = || OutError::NotOurs(ListingError::Unlisted(dir.clone()));
                let owned = Owned::read(&dir)?.ok_or_else(unlisted)?;
                files::sweep(&dir).map_err(OutError::io("clear", &dir))?;
                match start {
                    Start::Resume => {
                        out.files = owned.files;
                        out.replacing = owned.replacing;
                        out.replaces = owned.replaces;
                    }
                    _ => {
                        owned.check_names(&dir).map_err(OutError::NotOurs)?;
                        out.old = Some(owned);
                    }
                }
            }
        }
        Ok(out)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Makes the directory this run's by writing `run.json`. Where it replaces another, that one is checked to the last
    /// byte and moved away first.
    ///
    /// # Errors
    /// [`OutError::NotOurs`] names what the other run did not write; nothing has been moved then.
    pub fn begin(&mut self, record: &mut RunRecord) -> Result<(), Failure> {
        let Some(old) = self.old.take() else { return self.record(record) };
        old.check(&self.dir).map_err(OutError::NotOurs)?;
        let moved = (1..).map(|n| suffixed(&self.dir, &format!(".replaced-{n}"))).find(|path| !path.exists());
        let moved = moved.expect("a free number");
        self.replaces = old.replaces;
        self.replaces.push(moved.clone());
        let io = |error| OutError::Io { what: "replace", path: self.dir.clone(), error };
        // The new directory is aside until the old one has moved: where a kill comes in between, the old one goes back.
        let aside = Aside::new(&self.dir).map_err(io)?;
        let claim = Claim::take(&aside.path().join(LOCK));
        let mut claim = claim.map_err(|_| io(io::Error::other("its new lock is taken")))?;
        self.list(record);
        record.write(aside.path())?;
        aside.flush().map_err(io)?;
        files::rename(&self.dir, &moved).map_err(io)?;
        if let Err(error) = aside.publish(Existing::Keep) {
            let _ = fs::rename(&moved, &self.dir);
            return Err(io(error).into());
        }
        claim.moved(self.dir.join(LOCK));
        if let Some(mut before) = self.claim.replace(claim) {
            before.moved(moved.join(LOCK));
        }
        Ok(())
    }

    fn list(&self, record: &mut RunRecord) {
        record.files(&self.files, &self.replacing, &self.replaces);
    }

    /// Writes `run.json`.
    ///
    /// # Errors
    /// [`Failure::Io`].
    pub fn record(&self, record: &mut RunRecord) -> Result<(), Failure> {
        self.list(record);
        record.write(&self.dir)
    }

    /// Puts a directory into its place, after `run.json` lists what is in it. Replaces one of this run.
    ///
    /// # Errors
    /// [`OutError::NotOurs`] where what is there is not this run's.
    pub fn publish(&mut self, mut aside: Aside, record: &mut RunRecord) -> Result<(), Failure> {
        let target = aside.target().to_owned();
        let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let new = aside.list().map_err(Failure::io("write", &target))?;
        let new = new.0.into_iter().map(|(file, digest)| (format!("{name}/{file}"), digest)).collect();
        self.announce(&name, new, record)?;
        aside.publish(Existing::Replace).map_err(Failure::io("write", &target))?;
        take(&mut self.replacing, &name);
        Ok(())
    }

    /// The same for a file.
    ///
    /// # Errors
    /// As [`Self::publish`].
    pub fn publish_file(&mut self, name: &str, bytes: &[u8], record: &mut RunRecord) -> Result<(), Failure> {
        self.announce(name, [(name.to_owned(), Digest::of(bytes))].into(), record)?;
        let path = self.dir.join(name);
        write_whole(&path, bytes).map_err(Failure::io("write", path))?;
        take(&mut self.replacing, name);
        Ok(())
    }

    /// Lists what is about to be put under a name, beside what is there: whichever a kill leaves is this run's.
    fn announce(&mut self, name: &str, new: BTreeMap<String, Digest>, record: &mut RunRecord) -> Result<(), Failure> {
        list_report(&self.dir, &mut self.files);
        let there = self.check_replaceable(name)?;
        for listing in [&mut self.files, &mut self.replacing] {
            take(listing, name);
        }
        self.replacing.0.extend(there);
        self.files.0.extend(new);
        self.record(record)
    }

    /// Refuses to replace what this run did not write. Returns what is there.
    ///
    /// # Errors
    /// [`OutError::NotOurs`].
    pub fn check_replaceable(&self, name: &str) -> Result<BTreeMap<String, Digest>, OutError> {
        let path = self.dir.join(name);
        let Ok(metadata) = fs::symlink_metadata(&path) else { return Ok(BTreeMap::new()) };
        let check = |file: String| {
            let path = self.dir.join(&file);
            let listed = [&self.files, &self.replacing].map(|listing| listing.0.get(&file).copied());
            if listed == [None, None] {
                return Err(ListingError::Foreign(path));
            }
            let found = files::digest(&path).map_err(|error| ListingError::Io { path: path.clone(), error })?;
            if listed.contains(&Some(found)) { Ok((file, found)) } else { Err(ListingError::Changed(path)) }
        };
        let below = |file: Result<String, PathBuf>| match file {
            Ok(file) => check(format!("{name}/{file}")),
            Err(foreign) => Err(ListingError::Foreign(foreign)),
        };
        let all = || match (metadata.is_file(), metadata.is_dir()) {
            (true, _) => check(name.to_owned()).map(|there| [there].into()),
            (_, true) => walk(&path)?.into_iter().map(below).collect(),
            _ => Err(ListingError::Foreign(path.clone())),
        };
        all().map_err(OutError::NotOurs)
    }

    /// Removes a directory of this run; one in which something else lies stays.
    ///
    /// # Errors
    /// [`Failure::Io`].
    pub fn remove(&mut self, name: &str) -> Result<(), Failure> {
        let path = self.dir.join(name);
        let listing = take(&mut self.files, name)
            .into_iter()
            .filter_map(|(file, digest)| Some((file.strip_prefix(name)?.strip_prefix('/')?.to_owned(), digest)));
        match Listing(listing.collect()).check_names(&path) {
            Ok(()) => files::remove_directory(&path).map_err(Failure::io("remove", path)),
            Err(foreign) => {
                eprintln!("note: {} stays: {foreign}", path.display());
                Ok(())
            }
        }
    }

    /// Deletes the runs that this one has replaced.
    ///
    /// # Errors
    /// [`Failure::Io`].
    pub fn remove_replaced(&mut self) -> Result<(), Failure> {
        for path in std::mem::take(&mut self.replaces) {
            // A record names its own neighbours only.
            let number = path
                .to_str()
                .zip(self.dir.to_str())
                .and_then(|(path, dir)| path.strip_prefix(dir)?.strip_prefix(".replaced-")?.parse::<u64>().ok());
            if number.is_none() || !path.is_dir() {
                continue;
            }
            let owned = match path.join(RECORD).exists() {
                true => Owned::read(&path)?.unwrap_or_default(),
                false => Owned::default(),
            };
            owned.remove(&path).map_err(Failure::io("remove", &path))?;
            if path.exists() {
                eprintln!("note: {} stays: it holds what the run did not write", path.display());
            }
        }
        Ok(())
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        self.claim = None;
        if self.made {
            // Fails where there is something in it.
            let _ = fs::remove_dir(&self.dir);
        }
    }
}

/// Takes what is under a name out of a listing.
fn take(listing: &mut Listing, name: &str) -> BTreeMap<String, Digest> {
    let below = format!("{name}/");
    let all = std::mem::take(&mut listing.0).into_iter();
    let (taken, kept) = all.partition(|(file, _)| file == name || file.starts_with(&below));
    listing.0 = kept;
    taken
}

/// Lists the report that `precast report` wrote while the run was training: that process does not write `run.json`.
fn list_report(dir: &Path, files: &mut Listing) {
    match input::read(&dir.join(report::REPORT), MOST_REPORT_BYTES) {
        Ok(bytes) if report::is_unchanged(&bytes) => _ = files.0.insert(report::REPORT.to_owned(), Digest::of(&bytes)),
        _ => {}
    }
}

/// An absolute path without links, of which the last part may not exist yet.
fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // The deepest part that exists, and the rest as it is spelled.
    let existing = absolute.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    match existing {
        Some((part, real)) => match absolute.strip_prefix(part) {
            Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
            _ => real,
        },
        None => absolute,
    }
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Refuses an output directory that an input lies in, or is.
///
/// # Errors
/// [`OutError::Input`].
pub fn refuse_inputs(dir: &Path, inputs: &[&Path]) -> Result<(), OutError> {
    let path = resolved(dir);
    let inside = |input: &&&Path| {
        // As it is spelled too: a link in the directory is replaced with it, wherever it leads.
        let spelled = std::path::absolute(input).unwrap_or_else(|_| input.to_path_buf());
        let spelled = match (spelled.parent(), spelled.file_name()) {
            (Some(parent), Some(name)) => resolved(parent).join(name),
            _ => spelled,
        };
        resolved(input).starts_with(&path) || spelled.starts_with(&path)
    };
    match inputs.iter().find(inside) {
        Some(input) => Err(OutError::Input { input: input.to_path_buf(), path: dir.to_owned() }),
        None => Ok(()),
    }
}

/// What is in a directory besides locks and leftovers: one name.
fn first_name(dir: &Path) -> Result<Option<String>, OutError> {
    let entries = fs::read_dir(dir).map_err(OutError::io("read", dir))?;
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names.into_iter().find(|name| name != LOCK && !is_aside(name)))
}

fn is_empty(dir: &Path) -> Result<bool, OutError> {
    Ok(first_name(dir)?.is_none())
}

fn refuse_contents(dir: &Path) -> Result<(), OutError> {
    match first_name(dir)? {
        Some(holds) => Err(OutError::NotEmpty { path: dir.to_owned(), holds }),
        None => Ok(()),
    }
}

/// Where a run was killed while it replaced another, between the two renames: the other goes back. Whether it did.
fn put_back(dir: &Path) -> io::Result<bool> {
    if !dir.parent().is_some_and(Path::is_dir) || files::asides(dir)?.is_empty() {
        return Ok(false);
    }
    let replaced = (1..).map(|n| suffixed(dir, &format!(".replaced-{n}"))).take_while(|path| path.is_dir());
    match replaced.last() {
        Some(last) if last.join(RECORD).exists() => files::rename(&last, dir).map(|()| true),
        _ => Ok(false),
    }
}

/// Refuses to write a directory of files over one that Precast did not write whole.
///
/// # Errors
/// [`OutError`].
pub fn check_directory(dir: &Path, overwrite: bool) -> Result<PathBuf, OutError> {
    let dir = resolved(dir);
    match fs::symlink_metadata(&dir) {
        Err(_) => return Ok(dir),
        Ok(metadata) if !metadata.is_dir() => return Err(OutError::NoDirectory { path: dir }),
        Ok(_) => {}
    }
    if !overwrite {
        refuse_everything(&dir)?;
    }
    files::check_replaceable(&dir).map_err(OutError::NotOurs)?;
    Ok(dir)
}

fn refuse_everything(dir: &Path) -> Result<(), OutError> {
    let mut entries = fs::read_dir(dir).map_err(OutError::io("read", dir))?;
    match entries.next() {
        Some(Ok(entry)) => {
            let holds = entry.file_name().to_string_lossy().into_owned();
            Err(OutError::Occupied { path: dir.to_owned(), holds })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_inside_are_refused_however_they_are_spelled() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["out/model", "elsewhere"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        std::os::unix::fs::symlink(path("out"), path("link")).unwrap();
        std::os::unix::fs::symlink(path("elsewhere"), path("out/alias")).unwrap();
        let refused = |out: &str, input: &str| refuse_inputs(&path(out), &[&path(input)]).is_err();
        assert!(refused("out", "out/model") && refused("out", "out") && refused("link", "out/model"));
        assert!(refused("out", "link/model") && refused("out/", "link/../out/model") && refused("out", "out/alias"));
        assert!(!refused("out", "elsewhere") && !refused("out/model/run", "out/model") && !refused("out", "out2"));
    }
}
