//! Fills a cache: it can be killed at any moment and continued, and comes to the same bytes.
//!
//! Rows are made durable before the records that name them, and records before the manifest.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use precast_fatbins::{Digest, signature_path};
use precast_system::files::{self, Claim, write_whole};
use precast_system::input;

use super::error::CacheError;
use super::found::{Found, claim, look, refuse_another, refuse_claimed, refuse_complete, take};
use super::index::{RECORD_BYTES, Records, Span, checksum, encode};
use super::key::Key;
use super::layout::{FILLING, FORMAT, HIDDEN, INDEX, MANIFEST, model};
use super::manifest::{self, CacheManifest, Made};

/// Bytes at the end of `hidden.bin` that are verified before a filling continues.
const VERIFIED_BYTES: u64 = 256 << 20;

/// A cache that this process fills.
#[derive(Debug)]
pub struct Filling {
    dir: PathBuf,
    made: Made,
    claim: Claim,
    hidden: File,
    index: File,
    keys: HashSet<Key>,
    /// Bytes of `hidden.bin`.
    end: u64,
    /// Records of rows that may not be durable yet.
    pending: Vec<u8>,
    /// No write has failed.
    is_whole: bool,
}

/// A sequence to be stored.
#[derive(Debug)]
pub struct Entry<'r> {
    pub(super) key: Key,
    pub(super) rows: Cow<'r, [u8]>,
    pub(super) checksum: [u8; 16],
}

impl<'r> Entry<'r> {
    /// Hashes the rows of a sequence's positions that count, in order.
    pub fn new(key: Key, rows: impl Into<Cow<'r, [u8]>>) -> Self {
        let rows = rows.into();
        Self { key, checksum: checksum(&rows), rows }
    }

    /// Returns it with rows that are not its own.
    pub fn borrowed(&self) -> Entry<'_> {
        Entry { key: self.key, rows: Cow::Borrowed(&self.rows), checksum: self.checksum }
    }

    /// Returns its key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the bytes of its rows.
    pub fn bytes(&self) -> u64 {
        self.rows.len() as u64
    }
}

impl Filling {
    /// Takes a directory for this process, which it creates, or in which it continues what a stopped filling left.
    ///
    /// # Errors
    /// [`CacheError::NotACache`], [`CacheError::Complete`], [`CacheError::Different`], [`CacheError::Busy`], and those
    /// of I/O. Then no sequence has been changed.
    ///
    /// # Panics
    /// If `made` has no row or another format.
    pub fn open(dir: &Path, made: &Made) -> Result<Self, CacheError> {
        assert!(made.format == FORMAT && made.row_bytes() > 0, "{made:?}");
        let claim = claim(dir)?;
        let found = look(dir)?;
        files::sweep(dir).map_err(CacheError::io("clear", dir))?;
        let filling = dir.join(FILLING);
        let made = match found {
            Found::Complete(_) => return Err(CacheError::Complete(dir.to_owned())),
            Found::Nothing => {
                write_whole(&filling, manifest::text(made).as_bytes()).map_err(CacheError::io("write", filling))?;
                made.clone()
            }
            Found::Filling(was) => {
                refuse_another(dir, made, &was)?;
                was
            }
        };
        let open = |name: &str| {
            let path = dir.join(name);
            input::open_or_create(&path).map_err(CacheError::io("open", path))
        };
        let (mut hidden, mut index) = (open(HIDDEN)?, open(INDEX)?);
        let recovered = recover(&mut index, &mut hidden, &made, VERIFIED_BYTES);
        let (keys, end) = recovered.map_err(CacheError::io("continue", dir))?;
        files::sync(dir).map_err(CacheError::io("flush", dir))?;
        Ok(Self { dir: dir.to_owned(), made, claim, hidden, index, keys, end, pending: Vec::new(), is_whole: true })
    }

    /// Refuses a directory that neither [`Self::open`] nor [`Self::settle`] takes. Returns the sequences in it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn check(dir: &Path, made: &Made) -> Result<u64, CacheError> {
        if fs::symlink_metadata(dir).is_err() {
            return Ok(0);
        }
        let found = look(dir)?;
        refuse_claimed(dir)?;
        match found {
            Found::Nothing => Ok(0),
            Found::Complete(manifest) => refuse_complete(dir, made, &manifest).map(|()| manifest.sequences),
            Found::Filling(was) => {
                refuse_another(dir, made, &was)?;
                Ok(dir.join(INDEX).metadata().map_or(0, |index| index.len()) / RECORD_BYTES as u64)
            }
        }
    }

    /// Removes what a filling has left that was killed behind its manifest, which it returns; none where the filling is
    /// not complete. What `sign` returns of the manifest, if anything, is put beside it.
    ///
    /// # Errors
    /// [`CacheError::Complete`] of a cache in which nothing is left, or that is of something else; those of
    /// [`Self::check`].
    pub fn settle<E: From<CacheError>>(
        dir: &Path,
        made: &Made,
        sign: impl FnOnce(&[u8]) -> Result<Option<String>, E>,
    ) -> Result<Option<CacheManifest>, E> {
        if fs::symlink_metadata(dir).is_err() {
            return Ok(None);
        }
        let Found::Complete(manifest) = look(dir)? else { return Ok(None) };
        refuse_complete(dir, made, &manifest)?;
        let _claim = take(dir)?;
        let filling = dir.join(FILLING);
        files::sweep(dir).map_err(CacheError::io("clear", dir))?;
        if let Some(signature) = sign(manifest::text(&manifest).as_bytes())? {
            write_signature(dir, &signature)?;
        }
        files::remove_file(&filling).map_err(CacheError::io("remove", filling))?;
        Ok(Some(manifest))
    }

    /// Returns the directory of the teacher's configuration, tokenizer and head, which the caller writes: those that a
    /// stopped filling has written are removed.
    ///
    /// # Errors
    /// Those of I/O.
    pub fn new_teacher(&self) -> Result<PathBuf, CacheError> {
        let teacher = model(&self.dir);
        if teacher.exists() {
            files::remove_directory(&teacher).map_err(CacheError::io("remove", &teacher))?;
        }
        Ok(teacher)
    }

    /// Returns what it is made from.
    pub fn made(&self) -> &Made {
        &self.made
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// True if the sequence is there already.
    pub fn has(&self, key: &Key) -> bool {
        self.keys.contains(key)
    }

    /// Returns the number of sequences so far.
    pub fn sequences(&self) -> u64 {
        self.keys.len() as u64
    }

    /// Adds a sequence, which is durable after [`Self::sync`].
    ///
    /// # Errors
    /// Those of I/O. After one the cache is opened again.
    ///
    /// # Panics
    /// If the sequence is there, or has no row, a part of one, or more than positions; or after an error.
    pub fn push(&mut self, Entry { key, rows, checksum }: Entry<'_>) -> Result<(), CacheError> {
        let bytes = rows.len() as u64;
        let count = bytes / self.made.row_bytes();
        assert!(self.made.is_of_rows(bytes), "{bytes} bytes");
        assert!(self.keys.insert(key), "sequence {key:?} is there");
        self.begin();
        files::append(&mut self.hidden, &rows).map_err(CacheError::io("write", self.dir.join(HIDDEN)))?;
        let span = Span { offset: self.end, rows: count as u32, checksum };
        self.pending.extend(encode(&key, &span));
        self.end += bytes;
        self.is_whole = true;
        Ok(())
    }

    /// Makes all sequences so far durable: what a kill or a loss of power leaves has them.
    ///
    /// # Errors
    /// [`CacheError::Gone`] and those of I/O. After one the cache is opened again.
    ///
    /// # Panics
    /// After an error.
    pub fn sync(&mut self) -> Result<(), CacheError> {
        if !self.claim.holds() {
            return Err(CacheError::Gone(self.dir.clone()));
        }
        self.begin();
        if !self.pending.is_empty() {
            let [hidden, index] = [HIDDEN, INDEX].map(|name| self.dir.join(name));
            files::sync(&hidden).map_err(CacheError::io("flush", hidden))?;
            files::append(&mut self.index, &self.pending).map_err(CacheError::io("write", &index))?;
            files::sync(&index).map_err(CacheError::io("flush", index))?;
            self.pending.clear();
        }
        self.is_whole = true;
        Ok(())
    }

    /// Makes it a complete cache. `head_sha256` is of the file of the teacher's head.
    ///
    /// # Errors
    /// Those of [`Self::sync`].
    ///
    /// # Panics
    /// After an error.
    pub fn finish(self, head_sha256: Digest) -> Result<CacheManifest, CacheError> {
        self.finish_signed(head_sha256, unsigned)
    }

    /// Makes it a complete cache as [`Self::finish`] does, with what `sign` returns of its manifest beside it, if
    /// anything.
    ///
    /// # Errors
    /// As [`Self::finish`], and those of `sign`.
    ///
    /// # Panics
    /// After an error.
    pub fn finish_signed<E: From<CacheError>>(
        mut self,
        head_sha256: Digest,
        sign: impl FnOnce(&[u8]) -> Result<Option<String>, E>,
    ) -> Result<CacheManifest, E> {
        self.sync()?;
        let [index, manifest, filling] = [INDEX, MANIFEST, FILLING].map(|name| self.dir.join(name));
        let index_sha256 = files::digest(&index).map_err(CacheError::io("read", index))?;
        let Self { made, end, .. } = &self;
        let (made, rows) = (made.clone(), end / made.row_bytes());
        let complete =
            CacheManifest { made, head_sha256, sequences: self.sequences(), rows, hidden_bytes: *end, index_sha256 };
        let text = manifest::text(&complete);
        // A cache is never there without its signature, nor with that of a stopped filling.
        match sign(text.as_bytes())? {
            Some(signature) => write_signature(&self.dir, &signature)?,
            None => remove_signature(&self.dir)?,
        }
        write_whole(&manifest, text.as_bytes()).map_err(CacheError::io("write", manifest))?;
        files::remove_file(&filling).map_err(CacheError::io("remove", filling))?;
        Ok(complete)
    }

    fn begin(&mut self) {
        assert!(std::mem::take(&mut self.is_whole), "a write has failed: the cache is opened again");
    }
}

/// Signs nothing.
pub(super) fn unsigned(_: &[u8]) -> Result<Option<String>, CacheError> {
    Ok(None)
}

fn write_signature(dir: &Path, signature: &str) -> Result<(), CacheError> {
    let path = signature_path(&dir.join(MANIFEST));
    write_whole(&path, signature.as_bytes()).map_err(CacheError::io("write", path))
}

fn remove_signature(dir: &Path) -> Result<(), CacheError> {
    let path = signature_path(&dir.join(MANIFEST));
    if !path.exists() {
        return Ok(());
    }
    files::remove_file(&path).map_err(CacheError::io("remove", path))
}

/// Truncates both files behind the last sequence that is whole in them. Of the rows, those in the last `verified` bytes
/// must have their checksums: records before them were written after their rows were durable.
///
/// Returns the sequences, and the bytes of their rows.
pub(super) fn recover(
    index: &mut File,
    hidden: &mut File,
    made: &Made,
    verified: u64,
) -> io::Result<(HashSet<Key>, u64)> {
    let (row_bytes, hidden_bytes) = (made.row_bytes(), hidden.metadata()?.len());
    let mut records = Records::new(index.try_clone()?, made);
    let (mut keys, mut spans): (HashSet<Key>, Vec<(Key, Span)>) = Default::default();
    while let Some((key, span)) = records.next()? {
        if records.end > hidden_bytes || !keys.insert(key) {
            break;
        }
        spans.push((key, span));
    }
    let ends = |span: &Span| span.end(row_bytes).unwrap_or_default();
    let last = spans.last().map_or(0, |(_, span)| ends(span));
    let first = spans.partition_point(|(_, span)| ends(span) <= last.saturating_sub(verified));
    let mut kept = spans.len();
    for (at, (_, span)) in spans.iter().enumerate().skip(first) {
        let mut rows = vec![0; (ends(span) - span.offset) as usize];
        hidden.read_exact_at(&mut rows, span.offset)?;
        if checksum(&rows) != span.checksum {
            kept = at;
            break;
        }
    }
    for (key, _) in spans.drain(kept..) {
        keys.remove(&key);
    }
    let end = spans.last().map_or(0, |(_, span)| ends(span));
    for (file, bytes) in [(index, (spans.len() * RECORD_BYTES) as u64), (hidden, end)] {
        if file.metadata()?.len() != bytes {
            files::truncate(file, bytes)?;
        }
        file.seek(SeekFrom::Start(bytes))?;
    }
    Ok((keys, end))
}
