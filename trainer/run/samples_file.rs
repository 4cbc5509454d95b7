//! `samples.jsonl`: completions that steps trained on, a line each, of every `--samples-every`th step.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use precast_fatbins::{Digest, Hasher};
use precast_system::{files, input};
use serde::{Deserialize, Serialize};

use crate::base::io::IoError;
use crate::run::error::RunError;

/// Its name in a run's output directory.
pub const SAMPLES_FILE: &str = "samples.jsonl";

/// A completion that the student wrote, and a step trained on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleLine {
    /// Step, counted from 1.
    pub step: u64,
    /// Its number among all sequences of the run, which its draws follow from.
    pub sequence: u64,
    /// Text, or ids where no model has a tokenizer.
    pub prompt: String,
    pub completion: String,
    pub prompt_ids: Vec<u32>,
    pub completion_ids: Vec<u32>,
}

/// The first bytes of the file, as a checkpoint or `run.json` knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    bytes: u64,
    sha256: Digest,
}

impl Default for Extent {
    fn default() -> Self {
        Self { bytes: 0, sha256: Digest::of(b"") }
    }
}

impl Extent {
    /// Hashes as many bytes of a file; returns none where they are others.
    fn hash(self, file: &mut File) -> io::Result<Option<Hasher>> {
        let (mut hasher, mut left, mut part) = (Hasher::default(), self.bytes, vec![0; 1 << 16]);
        while left > 0 {
            let most = left.min(part.len() as u64) as usize;
            match file.read(&mut part[..most]) {
                Ok(0) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => {
                    let read = read?;
                    hasher.update(&part[..read]);
                    left -= read as u64;
                }
            }
        }
        Ok(Some(hasher).filter(|hasher| left == 0 && hasher.digest() == self.sha256))
    }

    /// True if a file begins with these bytes, and goes on with lines that a run writes, of which the last may be torn.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn begins(self, path: &Path) -> io::Result<bool> {
        let mut file = input::open(path)?;
        if self.hash(&mut file)?.is_none() {
            return Ok(false);
        }
        let (mut lines, mut line) = (BufReader::new(file), Vec::new());
        while lines.read_until(b'\n', &mut line)? > 0 {
            if line.ends_with(b"\n") && serde_json::from_slice::<SampleLine>(&line).is_err() {
                return Ok(false);
            }
            line.clear();
        }
        Ok(true)
    }

    /// Checks that the file in a directory begins with what a run wrote up to a checkpoint.
    ///
    /// # Errors
    /// [`RunError`] where it does not.
    pub fn check(self, directory: &Path) -> Result<(), RunError> {
        let path = directory.join(SAMPLES_FILE);
        let hashed = input::open(&path).and_then(|mut file| self.hash(&mut file));
        match hashed.map_err(IoError::of("read", &path))? {
            Some(_) => Ok(()),
            None => Err(RunError::Unusable(format!(
                "{}: its first {} bytes were changed after they were written",
                path.display(),
                self.bytes
            ))),
        }
    }
}

/// The file, as it is written.
pub struct SamplesFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    hasher: Hasher,
}

impl SamplesFile {
    /// Opens the file of a run that has written so much of it, and truncates what is behind that; a new one where it
    /// has none.
    ///
    /// # Errors
    /// [`RunError`] of a file that the run did not write.
    pub fn open(directory: &Path, before: Option<Extent>) -> Result<Self, RunError> {
        let path = directory.join(SAMPLES_FILE);
        let io = || IoError::of("write", &path);
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).create_new(before.is_none());
        let mut file = options.open(&path).map_err(io())?;
        let before = before.unwrap_or_default();
        let hasher = before.hash(&mut file).map_err(io())?;
        let hasher = hasher.ok_or_else(|| RunError::Unusable(format!("{} was changed", path.display())))?;
        if file.metadata().map_err(io())?.len() > before.bytes {
            files::truncate(&file, before.bytes).map_err(io())?;
        }
        Ok(Self { path, file, bytes: before.bytes, hasher })
    }

    /// Adds the lines of a step.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn push(&mut self, lines: &[u8]) -> Result<(), IoError> {
        files::append(&mut self.file, lines).map_err(IoError::of("write", &self.path))?;
        self.hasher.update(lines);
        self.bytes += lines.len() as u64;
        Ok(())
    }

    /// Flushes the lines to disk. Returns how far they go.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn sync(&self) -> Result<Extent, IoError> {
        self.file.sync_data().map_err(IoError::of("write", &self.path))?;
        Ok(Extent { bytes: self.bytes, sha256: self.hasher.digest() })
    }
}

/// Reads the first lines of the latest step, at most so many; none without a file.
///
/// # Errors
/// [`IoError`].
pub fn latest(directory: &Path, most: usize) -> Result<Vec<SampleLine>, IoError> {
    #[derive(Deserialize)]
    struct OfStep {
        step: u64,
    }
    let path = directory.join(SAMPLES_FILE);
    let io = || IoError::of("read", &path);
    let file = match input::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened.map_err(io())?,
    };
    let (mut step, mut first) = (0, Vec::new());
    for line in BufReader::new(file).split(b'\n') {
        let line = line.map_err(io())?;
        // The last one may be torn.
        let Ok(of) = serde_json::from_slice::<OfStep>(&line) else { continue };
        if of.step != step {
            (step, first) = (of.step, Vec::new());
        }
        if first.len() < most {
            first.extend(serde_json::from_slice(&line));
        }
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn line(step: u64, sequence: u64) -> String {
        let (prompt, completion) = ("a".to_owned(), "b".to_owned());
        let line = SampleLine { step, sequence, prompt, completion, prompt_ids: vec![1], completion_ids: vec![2] };
        serde_json::to_string(&line).unwrap() + "\n"
    }

    #[test]
    fn samples_go_on_behind_a_checkpoint_and_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(SAMPLES_FILE);
        let mut file = SamplesFile::open(dir.path(), None).unwrap();
        file.push((line(1, 0) + &line(1, 1)).as_bytes()).unwrap();
        let one = file.sync().unwrap();
        file.push(line(2, 2).as_bytes()).unwrap();
        file.push(&line(3, 3).as_bytes()[..9]).unwrap();
        let sequences = |most| latest(dir.path(), most).unwrap().iter().map(|line| line.sequence).collect::<Vec<_>>();
        assert_eq!((one.begins(&path).unwrap(), sequences(3)), (true, vec![2]));
        assert!(Extent::default().begins(&path).unwrap());
        assert!(SamplesFile::open(dir.path(), None).is_err(), "it is taken for a new one");
        let mut file = SamplesFile::open(dir.path(), Some(one)).unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap(), sequences(1)), (line(1, 0) + &line(1, 1), vec![0]));
        file.push(line(2, 2).as_bytes()).unwrap();
        assert_eq!(file.sync().unwrap().sha256, Digest::of(&fs::read(&path).unwrap()));
        one.check(dir.path()).unwrap();
        for (text, is_ours) in [(line(1, 0) + "mine\n", false), (line(1, 1) + &line(1, 0), true)] {
            fs::write(&path, text).unwrap();
            assert_eq!(Extent::default().begins(&path).unwrap(), is_ours);
            let refused = one.check(dir.path()).unwrap_err().to_string();
            assert!(refused.contains("samples.jsonl: its first") && SamplesFile::open(dir.path(), Some(one)).is_err());
        }
    }
}
