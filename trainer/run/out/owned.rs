//! Files that a run wrote, by its `run.json`: those, unchanged, may be replaced or deleted.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use precast_fatbins::Digest;
use precast_system::files::{self, Listing, ListingError, walk};
use precast_system::input::{self, ReadError};

use crate::run::error::RunError;
use crate::run::log::Written;
use crate::run::metrics::{METRICS, Metrics};
use crate::run::record::{MetricsRecord, RECORD, RunRecord};
use crate::run::report_file::{REPORT, is_unchanged};
use crate::run::samples_file::{Extent, SAMPLES_FILE};

/// Held by the process that uses the directory.
pub(super) const LOCK: &str = ".precast.lock";
/// A report grows with its run: this is more than the longest one has.
const MOST_REPORT_BYTES: u64 = 4 << 30;

/// Files that a run wrote, as its `run.json` lists them.
#[derive(Debug, Default)]
pub(super) struct Owned {
    pub files: Listing,
    pub replacing: Listing,
    /// Lines of `metrics.jsonl` and their digest, as they were when `run.json` was last written.
    pub metrics: Option<MetricsRecord>,
    /// Contents of `samples.jsonl` then.
    pub samples: Option<Extent>,
    /// Contents of its logs then, by their names.
    pub logs: BTreeMap<String, Written>,
    /// Numbers of the runs that it replaces: N of `DIR.replaced-N`.
    pub replaces: Vec<u64>,
}

impl Owned {
    /// None where `run.json` is not of a run whose files are listed.
    fn of(record: RunRecord) -> Option<Self> {
        Some(Self {
            files: Listing(record.files?),
            replacing: Listing(record.replacing),
            metrics: record.metrics,
            samples: record.samples_written,
            logs: record.logs.unwrap_or_default(),
            replaces: record.replaces,
        })
    }

    /// Reads the `run.json` in a directory; none where it lists no files.
    pub fn read(dir: &Path) -> Result<Option<Self>, RunError> {
        let mut owned = Self::of(RunRecord::read(dir)?);
        owned.iter_mut().for_each(|owned| list_report(dir, &mut owned.files));
        Ok(owned)
    }

    /// Returns the digests that a file of the run may have: it is new, or what it replaces for a moment.
    pub fn listed(&self, name: &str) -> Vec<Digest> {
        [&self.files, &self.replacing].iter().filter_map(|listing| listing.0.get(name).copied()).collect()
    }

    /// The first file, link or directory that the run did not write.
    pub fn check_names(&self, dir: &Path) -> Result<(), ListingError> {
        for name in walk(dir)? {
            let name = name.map_err(ListingError::Foreign)?;
            let ours = match name.as_str() {
                LOCK | RECORD => true,
                METRICS => self.metrics.is_some(),
                SAMPLES_FILE => self.samples.is_some(),
                name => !self.listed(name).is_empty() || self.logs.contains_key(name),
            };
            if !ours {
                return Err(ListingError::Foreign(dir.join(name)));
            }
        }
        Ok(())
    }

    /// Checks like `check_names`, and fails on the first file whose bytes are not those that the run wrote.
    pub fn check(&self, dir: &Path) -> Result<(), ListingError> {
        self.check_names(dir)?;
        for name in walk(dir)?.into_iter().flatten() {
            if !self.wrote(dir, &name)? {
                let is_log = self.logs.contains_key(&name);
                return Err(if is_log { ListingError::Log } else { ListingError::Changed }(dir.join(&name)));
            }
        }
        Ok(())
    }

    /// True if a file holds what the run wrote under its name.
    fn wrote(&self, dir: &Path, name: &str) -> Result<bool, ListingError> {
        let path = dir.join(name);
        if let Some(written) = self.logs.get(name) {
            return written.begins(&path).map_err(|error| ReadError { path, error }.into());
        }
        if let Some(written) = self.samples.filter(|_| name == SAMPLES_FILE) {
            return written.begins(&path).map_err(|error| ReadError { path, error }.into());
        }
        match (name, self.metrics) {
            (LOCK | RECORD, _) => Ok(true),
            (METRICS, Some(MetricsRecord { lines, sha256 })) => {
                Ok(Metrics::read(&path).is_ok_and(|metrics| metrics.digest(lines) == Some(sha256)))
            }
            _ => {
                let found = files::digest(&path).map_err(ReadError::of(&path))?;
                Ok(self.listed(name).contains(&found))
            }
        }
    }

    /// Deletes what the run wrote, its record last, and the directory if nothing else is in it.
    pub fn remove(&self, dir: &Path) -> io::Result<()> {
        let mut all = self.files.clone();
        all.0.extend(self.replacing.0.clone());
        all.0.extend(self.metrics.map(|metrics| (METRICS.to_owned(), metrics.sha256)));
        all.0.extend(self.samples.map(|_| (SAMPLES_FILE.to_owned(), Digest::of(b""))));
        all.0.extend(self.logs.keys().map(|name| (name.clone(), Digest::of(b""))));
        // A file that was changed since is somebody's work by now. One that is gone stays listed: its directory goes,
        // too.
        let gone = |name: &str| fs::symlink_metadata(dir.join(name)).is_err();
        all.0.retain(|name, _| gone(name) || self.wrote(dir, name).is_ok_and(|wrote| wrote));
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

/// Lists the report that `precast report` wrote while the run was training: that process does not write `run.json`.
pub(super) fn list_report(dir: &Path, files: &mut Listing) {
    match input::read(&dir.join(REPORT), MOST_REPORT_BYTES) {
        Ok(bytes) if is_unchanged(&bytes) => _ = files.0.insert(REPORT.to_owned(), Digest::of(&bytes)),
        _ => {}
    }
}
