//! The output directory of this process.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use precast_fatbins::Digest;
use precast_system::files::{self, Aside, Claim, ClaimError, Existing, Listing, ListingError, walk, write_whole};
use precast_system::input::ReadError;

use super::Start;
use super::owned::{LOCK, Owned, list_report};
use super::paths::{is_empty, lies_in, not_a_run, put_back, refuse_contents, refuse_inputs, replaced, resolved};
use crate::base::notes::{note, notes};
use crate::run::error::RunError;
use crate::run::log::{self, LOG, Written};
use crate::run::record::{RECORD, RunRecord};

/// The output directory of this process's run.
#[derive(Debug)]
pub struct Out {
    dir: PathBuf,
    claim: Option<Claim>,
    /// This process made it: where it stays empty, it goes.
    made: bool,
    /// The run that [`Self::begin`] replaces.
    old: Option<Owned>,
    /// Files that this run is about to write or has written, and what its logs held when it began. The moved runs that
    /// it replaces are deleted at its first checkpoint.
    own: Owned,
}

impl Out {
    /// Takes an output directory for this process: makes it, locks it, settles what killed runs left in it. `inputs`
    /// are what must not lie in it.
    ///
    /// # Errors
    /// [`RunError`], also where the run in it cannot be read; nothing of it has been changed.
    pub fn claim(dir: &Path, start: Start, inputs: &[&Path]) -> Result<Self, RunError> {
        let dir = resolved(dir);
        refuse_inputs(&dir, inputs)?;
        let there = fs::symlink_metadata(&dir);
        if there.as_ref().is_ok_and(|metadata| !metadata.is_dir()) {
            return Err(RunError::no_directory(&dir));
        }
        let made = there.is_err() && !put_back(&dir).map_err(RunError::directory("restore", &dir))?;
        let nothing = || RunError::no_checkpoint(&dir, "");
        if made {
            if start == Start::Resume {
                return Err(nothing());
            }
            fs::create_dir_all(&dir).map_err(RunError::directory("create", &dir))?;
        } else if start == Start::Fresh && !dir.join(LOCK).exists() {
            // Nothing is written to a directory of somebody else, not even a lock.
            refuse_contents(&dir)?;
        }
        let claim = match Claim::take(&dir.join(LOCK)) {
            Ok(claim) => claim,
            Err(ClaimError::Held(pid)) => return Err(RunError::Busy { path: dir, pid }),
            Err(ClaimError::Io(error)) => return Err(RunError::directory("lock", dir)(error)),
        };
        let mut out = Self { dir: dir.clone(), claim: Some(claim), made, old: None, own: Owned::default() };
        let empty = is_empty(&dir)?;
        if empty {
            files::sweep(&dir).map_err(RunError::directory("clear", &dir))?;
        }
        match start {
            Start::Fresh => refuse_contents(&dir)?,
            Start::Overwrite if empty => {}
            Start::Resume if empty => return Err(nothing()),
            Start::Resume | Start::Overwrite => {
                let unlisted = || RunError::not_ours(ListingError::Unlisted(dir.clone()));
                if !dir.join(RECORD).exists() {
                    return Err(if start == Start::Resume { nothing() } else { not_a_run(&dir) });
                }
                let owned = Owned::read(&dir)?.ok_or_else(unlisted)?;
                for path in owned.replaces.iter().map(|number| replaced(&dir, *number)) {
                    if let Some(input) = inputs.iter().find(|input| lies_in(input, &path)) {
                        let (input, path) = (input.display(), path.display());
                        return Err(RunError::Unfit(format!(
                            "{input} lies in {path}, which this run replaces and deletes at its first checkpoint: \
                            move it away, or choose \
                             another --out"
                        )));
                    }
                }
                files::sweep(&dir).map_err(RunError::directory("clear", &dir))?;
                match start {
                    Start::Resume => out.own = owned,
                    _ => {
                        owned.check_names(&dir).map_err(RunError::not_ours)?;
                        out.old = Some(owned);
                    }
                }
            }
        }
        Ok(out)
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Makes the directory this run's by writing `run.json`. Where it replaces another, that one is checked to the last
    /// byte and moved away first.
    ///
    /// # Errors
    /// [`RunError::Unfit`] names what the other run did not write; nothing has been moved then.
    pub fn begin(&mut self, record: &mut RunRecord) -> Result<(), RunError> {
        let Some(old) = self.old.take() else { return self.record(record) };
        old.check(&self.dir).map_err(RunError::not_ours)?;
        let number = (1..).find(|number| !replaced(&self.dir, *number).exists()).expect("a free number");
        let moved = replaced(&self.dir, number);
        self.own.replaces = old.replaces;
        self.own.replaces.push(number);
        let io = |error| RunError::directory("replace", &self.dir)(error);
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
            return Err(io(error));
        }
        claim.moved(self.dir.join(LOCK));
        if let Some(mut before) = self.claim.replace(claim) {
            before.moved(moved.join(LOCK));
        }
        Ok(())
    }

    /// Refuses a directory that has another name now: what has this one may be another run's.
    ///
    /// # Errors
    /// [`RunError::Gone`].
    pub fn check_claim(&self) -> Result<(), RunError> {
        match self.claim.as_ref().is_some_and(Claim::holds) {
            true => Ok(()),
            false => Err(RunError::Gone { path: self.dir.clone() }),
        }
    }

    fn list(&self, record: &mut RunRecord) {
        record.files = Some(self.own.files.0.clone());
        record.replacing.clone_from(&self.own.replacing.0);
        record.replaces.clone_from(&self.own.replaces);
        let own = log::written();
        let now = |(name, before): (&String, &Written)| {
            let now = if name == LOG { own.unwrap_or(*before) } else { before.now(&self.dir.join(name)) };
            (name.clone(), now)
        };
        let logs: BTreeMap<String, Written> = self.own.logs.iter().map(now).collect();
        record.logs = Some(logs).filter(|logs| !logs.is_empty()).or_else(|| record.logs.take());
        record.notes(notes());
    }

    /// Takes the logs of so many ranks for this run's; one that is there and that the run did not write is not.
    pub fn keep_logs(&mut self, ranks: u32) {
        for name in (0..ranks).map(log::name) {
            if self.old.is_some() || fs::symlink_metadata(self.dir.join(&name)).is_err() {
                self.own.logs.entry(name).or_default();
            }
        }
    }

    /// Writes what this process prints to the run's log.
    pub fn open_log(&self) {
        log::open(&self.dir, 0, self.own.logs.get(LOG).copied());
    }

    /// Writes `run.json`.
    ///
    /// # Errors
    /// [`RunError::Io`], [`RunError::Gone`].
    pub fn record(&self, record: &mut RunRecord) -> Result<(), RunError> {
        self.check_claim()?;
        self.list(record);
        Ok(record.write(&self.dir)?)
    }

    /// Puts a directory into its place, after `run.json` lists what is in it. Replaces one of this run.
    ///
    /// # Errors
    /// [`RunError::Unfit`] where what is there is not this run's.
    pub fn publish(&mut self, mut aside: Aside, record: &mut RunRecord) -> Result<(), RunError> {
        let target = aside.target().to_owned();
        let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let new = aside.list().map_err(RunError::io("write", &target))?;
        let new = new.0.into_iter().map(|(file, digest)| (format!("{name}/{file}"), digest)).collect();
        self.announce(&name, new, record)?;
        aside.publish(Existing::Replace).map_err(RunError::io("write", &target))?;
        take(&mut self.own.replacing, &name);
        Ok(())
    }

    /// Publishes a file, like [`Self::publish`].
    ///
    /// # Errors
    /// As [`Self::publish`].
    pub fn publish_file(&mut self, name: &str, bytes: &[u8], record: &mut RunRecord) -> Result<(), RunError> {
        self.announce(name, [(name.to_owned(), Digest::of(bytes))].into(), record)?;
        let path = self.dir.join(name);
        write_whole(&path, bytes).map_err(RunError::io("write", path))?;
        take(&mut self.own.replacing, name);
        Ok(())
    }

    /// Lists what is about to be put under a name, beside what is there: whichever a kill leaves is this run's.
    fn announce(&mut self, name: &str, new: BTreeMap<String, Digest>, record: &mut RunRecord) -> Result<(), RunError> {
        list_report(&self.dir, &mut self.own.files);
        let there = self.check_replaceable(name)?;
        for listing in [&mut self.own.files, &mut self.own.replacing] {
            take(listing, name);
        }
        self.own.replacing.0.extend(there);
        self.own.files.0.extend(new);
        self.record(record)
    }

    /// Refuses to replace what this run did not write. Returns what is there.
    ///
    /// # Errors
    /// [`RunError::Unfit`].
    pub fn check_replaceable(&self, name: &str) -> Result<BTreeMap<String, Digest>, RunError> {
        let path = self.dir.join(name);
        let Ok(metadata) = fs::symlink_metadata(&path) else { return Ok(BTreeMap::new()) };
        let check = |file: String| {
            let path = self.dir.join(&file);
            let listed = self.own.listed(&file);
            if listed.is_empty() {
                return Err(ListingError::Foreign(path));
            }
            let found = files::digest(&path).map_err(ReadError::of(&path))?;
            if listed.contains(&found) { Ok((file, found)) } else { Err(ListingError::Changed(path)) }
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
        all().map_err(RunError::not_ours)
    }

    /// Removes a directory of this run; one in which something else lies stays.
    ///
    /// # Errors
    /// [`RunError::Io`].
    pub fn remove(&mut self, name: &str) -> Result<(), RunError> {
        self.check_claim()?;
        let path = self.dir.join(name);
        let listing = take(&mut self.own.files, name)
            .into_iter()
            .filter_map(|(file, digest)| Some((file.strip_prefix(name)?.strip_prefix('/')?.to_owned(), digest)));
        match Listing(listing.collect()).check_names(&path) {
            Ok(()) => files::remove_directory(&path).map_err(RunError::io("remove", path)),
            Err(foreign) => {
                note(format_args!("{} is not deleted: {foreign}", path.display()));
                Ok(())
            }
        }
    }

    /// Deletes the runs that this one has replaced.
    ///
    /// # Errors
    /// [`RunError::Io`].
    pub fn remove_replaced(&mut self) -> Result<(), RunError> {
        for number in std::mem::take(&mut self.own.replaces) {
            let path = replaced(&self.dir, number);
            if !path.is_dir() {
                continue;
            }
            let owned = match path.join(RECORD).exists() {
                true => Owned::read(&path)?.unwrap_or_default(),
                false => Owned::default(),
            };
            owned.remove(&path).map_err(RunError::io("remove", &path))?;
            if path.exists() {
                note(format_args!(
                    "{} is not deleted: it holds files that are not as the run wrote them",
                    path.display()
                ));
            }
        }
        Ok(())
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        // Where the directory was moved away, the path may be another run's.
        let is_there = self.claim.take().is_some_and(|claim| claim.holds());
        if self.made && is_there {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Another run may have made its directory at the path, and not yet locked it.
    #[test]
    fn an_empty_directory_is_removed_unless_it_is_anothers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        drop(Out::claim(&path, Start::Fresh, &[]).unwrap());
        assert!(!path.exists());
        let out = Out::claim(&path, Start::Fresh, &[]).unwrap();
        fs::rename(&path, dir.path().join("moved")).unwrap();
        fs::create_dir(&path).unwrap();
        drop(out);
        assert!(path.exists());
    }
}
