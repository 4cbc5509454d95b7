//! `metrics.jsonl`: one object a step, written as the step is done.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use precast_fatbins::Digest;
use precast_system::{files, input};

use crate::base::io::IoError;
use crate::base::notes::note;
use crate::run::error::RunError;
use crate::run::step::StepRecord;

/// Its name in a run's output directory.
pub const METRICS: &str = "metrics.jsonl";

/// The most that is read of `metrics.jsonl`: that of ten million steps.
const METRICS_BYTES: u64 = 4 << 30;

/// The lines of a run so far.
pub struct Metrics {
    path: PathBuf,
    bytes: Vec<u8>,
    /// End of each line.
    ends: Vec<usize>,
    /// Record of each line.
    pub records: Vec<StepRecord>,
}

impl Metrics {
    /// Reads the file. A last line without its end was being written when the run was killed, and is skipped.
    ///
    /// # Errors
    /// [`RunError::Unusable`] for the first line that does not read, or is not that of the step after the one before.
    pub fn read(path: &Path) -> Result<Self, RunError> {
        Self::parse(path, input::read(path, METRICS_BYTES).map_err(IoError::of("read", path))?)
    }

    fn parse(path: &Path, bytes: Vec<u8>) -> Result<Self, RunError> {
        let (mut ends, mut records, mut end) = (Vec::new(), Vec::new(), 0);
        for line in bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            let step = records.len() as u64 + 1;
            let wrong = |reason: String| unusable(path, step, &reason);
            let record: StepRecord = serde_json::from_slice(line).map_err(|error| wrong(error.to_string()))?;
            if record.step != step {
                let found = record.step;
                return Err(wrong(format!("the line of step {found} stands where that of step {step} belongs")));
            }
            end += line.len();
            ends.push(end);
            records.push(record);
        }
        Ok(Self { path: path.to_owned(), bytes, ends, records })
    }

    /// The bytes of the first lines; none where there are fewer.
    fn lines(&self, count: u64) -> Option<&[u8]> {
        match count {
            0 => Some(&[]),
            count => self.ends.get(count as usize - 1).map(|end| &self.bytes[..*end]),
        }
    }

    /// Digest of the first lines; none where there are fewer.
    pub fn digest(&self, lines: u64) -> Option<Digest> {
        self.lines(lines).map(Digest::of)
    }

    /// Checks that the first lines are those that were written.
    ///
    /// # Errors
    /// [`RunError::Unusable`].
    pub fn check(&self, lines: u64, digest: Digest) -> Result<(), RunError> {
        let wrong = |line, reason| unusable(&self.path, line, reason);
        match self.digest(lines) {
            Some(found) if found == digest => Ok(()),
            Some(_) => Err(wrong(lines, "this line or one before it was changed after it was written")),
            None => Err(wrong(self.records.len() as u64 + 1, "the line is missing")),
        }
    }
}

/// Says which line is not what a run wrote, counted from 1.
fn unusable(path: &Path, line: u64, reason: &str) -> RunError {
    RunError::Unusable(format!("{}:{line}: {reason}", path.display()))
}

/// The file, as it is written.
pub struct MetricsFile {
    path: PathBuf,
    file: File,
    lines: u64,
    /// All lines, in case that somebody deletes the file: what a run has trained does not depend on it.
    text: Vec<u8>,
}

impl MetricsFile {
    /// An empty file.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn create(path: &Path) -> Result<Self, IoError> {
        let file = OpenOptions::new().append(true).create_new(true).open(path).map_err(IoError::of("create", path))?;
        Ok(Self { path: path.to_owned(), file, lines: 0, text: Vec::new() })
    }

    /// The first `keep` lines of a run that continues, as they are; later ones are truncated.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn resume(metrics: &Metrics, keep: u64) -> Result<Self, IoError> {
        let path = metrics.path.clone();
        let kept = metrics.lines(keep).expect("a checkpoint's lines have been checked");
        let file = OpenOptions::new().append(true).open(&path);
        let file = file.and_then(|file| files::truncate(&file, kept.len() as u64).map(|()| file));
        let file = file.map_err(IoError::of("write", &path))?;
        Ok(Self { path, file, lines: keep, text: kept.to_vec() })
    }

    /// Adds a line.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn push(&mut self, record: &StepRecord) -> Result<(), IoError> {
        let line = serde_json::to_string(record).expect("a record serializes") + "\n";
        files::append(&mut self.file, line.as_bytes()).map_err(IoError::of("write", &self.path))?;
        self.text.extend(line.as_bytes());
        self.lines += 1;
        Ok(())
    }

    /// Writes the file again where it is gone, or lines of it are, and says so; one that another file has replaced
    /// stays. Before that, `check` refuses a directory that is no longer this run's.
    ///
    /// # Errors
    /// [`RunError`] where it cannot be written, and where the directory is another run's by now.
    pub fn put_back(&mut self, check: impl FnOnce() -> Result<(), RunError>) -> Result<(), RunError> {
        let io = || IoError::of("write", &self.path);
        let is_whole = match fs::metadata(&self.path) {
            Ok(there) => {
                there.ino() != self.file.metadata().map_err(io())?.ino() || there.len() >= self.text.len() as u64
            }
            Err(error) => error.kind() != ErrorKind::NotFound,
        };
        if is_whole {
            return Ok(());
        }
        check()?;
        files::write_whole(&self.path, &self.text).map_err(io())?;
        self.file = OpenOptions::new().append(true).open(&self.path).map_err(io())?;
        note(format_args!(
            "{} was deleted or truncated while the run trained: it is written again",
            self.path.display()
        ));
        Ok(())
    }

    /// Parses the lines that are kept in memory.
    ///
    /// # Errors
    /// None of lines that this process wrote.
    pub fn records(&self) -> Result<Vec<StepRecord>, RunError> {
        Ok(Metrics::parse(&self.path, self.text.clone())?.records)
    }

    /// Flushes the lines to disk. Returns how many there are, and their digest.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn sync(&mut self) -> Result<(u64, Digest), IoError> {
        self.file.sync_data().map_err(IoError::of("write", &self.path))?;
        Ok((self.lines, Digest::of(&self.text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::out::{Out, Start};

    fn line(step: u64) -> String {
        // More digits than a float keeps: only the bytes themselves stay what they are.
        format!(
            "{{\"step\":{step},\"loss\":2.2250738585072011e-308,\"kd_loss\":1.0,\"ce_loss\":null,\
             \"grad_norm\":1.0,\"lr\":1.0,\
             \"tokens\":4,\"step_ms\":1.00000000000000000001,\"tokens_per_s\":1.0,\"memory_bytes\":8}}\n"
        )
    }

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    #[test]
    fn kept_lines_keep_their_bytes_and_a_torn_one_goes() {
        let whole: String = (1..=3).map(line).collect();
        let (_dir, path) = file(&format!("{whole}{}", &line(4)[..20]));
        let metrics = Metrics::read(&path).unwrap();
        assert_eq!(metrics.records.len(), 3);
        metrics.check(2, Digest::of((line(1) + &line(2)).as_bytes())).unwrap();
        let mut resumed = MetricsFile::resume(&metrics, 2).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), line(1) + &line(2));
        resumed.push(&metrics.records[2]).unwrap();
        let (lines, digest) = resumed.sync().unwrap();
        assert_eq!((lines, digest), (3, Digest::of(&std::fs::read(&path).unwrap())));
    }

    #[test]
    fn a_file_deleted_or_truncated_is_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let out = Out::claim(&dir.path().join("out"), Start::Fresh, &[]).unwrap();
        let path = out.path().join(METRICS);
        let mut file = MetricsFile::create(&path).unwrap();
        let records: Vec<StepRecord> = (1..=3).map(|step| serde_json::from_str(&line(step)).unwrap()).collect();
        let read = || fs::read_to_string(&path).unwrap();
        file.push(&records[0]).unwrap();
        fs::remove_file(&path).unwrap();
        file.push(&records[1]).unwrap();
        file.put_back(|| out.check_claim()).unwrap();
        file.push(&records[2]).unwrap();
        let whole = read();
        assert_eq!(Metrics::read(&path).unwrap().records, records);
        assert_eq!(file.sync().unwrap(), (3, Digest::of(whole.as_bytes())));
        fs::write(&path, "").unwrap();
        file.put_back(|| out.check_claim()).unwrap();
        assert_eq!(read(), whole);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "mine").unwrap();
        file.put_back(|| out.check_claim()).unwrap();
        assert_eq!((read().as_str(), file.records().unwrap()), ("mine", records));
    }
}
