//! `run.log`: what a run prints, with times, over all its parts; `run.rank-N.log`: the notes of its other ranks.
//!
//! A log is appended to, and flushed where `run.json` says what it holds: what is lost behind that contradicts nothing.
//! So its lines are not among the changes of the disk that `PRECAST_KILL_AT` counts.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use chrono::DateTime;
use precast_fatbins::{Digest, Hasher};
use precast_system::{count, input, tee};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::base::notes::note;

/// Its name in a run's output directory.
pub const LOG: &str = "run.log";

/// Most bytes that are held before there is a file.
const MOST_HELD_BYTES: usize = 1 << 20;

/// The name of a rank's.
pub fn name(rank: u32) -> String {
    if rank == 0 { LOG.to_owned() } else { format!("run.rank-{rank}.log") }
}

/// Form of the time at the start of each line of a log.
const TIME: &[u8; 20] = b"0000-00-00T00:00:00Z";

/// The first bytes of a log, as they stand in `run.json`: none of a log that was listed before it was there. What is
/// behind them is the run's if each of its lines has a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    bytes: u64,
    sha256: Digest,
}

impl Default for Written {
    fn default() -> Self {
        Self { bytes: 0, sha256: Digest::of(b"") }
    }
}

impl Written {
    /// True if a file begins with these bytes.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn begins(self, path: &Path) -> io::Result<bool> {
        Ok(self.continued(input::open(path)?)?.is_some())
    }

    /// Returns the bytes that a file that begins with these holds by now, to its last whole line; itself where it does
    /// not.
    pub fn now(self, path: &Path) -> Self {
        let continued = input::open(path).and_then(|file| self.continued(file));
        continued.ok().flatten().map_or(self, |content| content.lines)
    }

    /// Reads the contents of a file that begins with these bytes; none of another.
    fn continued(self, mut file: File) -> io::Result<Option<Content>> {
        let (mut hasher, mut lines, mut bytes, mut ends) = (Hasher::default(), Self::default(), 0, true);
        let (mut is_same, mut has_times, mut column) = (self.bytes == 0, true, 0);
        let mut part = vec![0; 1 << 16];
        loop {
            // Up to where it was, then on.
            let most =
                if bytes < self.bytes { (self.bytes - bytes).min(part.len() as u64) as usize } else { part.len() };
            let read = match file.read(&mut part[..most]) {
                Ok(0) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            let new = &part[..read];
            if let Some(end) = new.iter().rposition(|byte| *byte == b'\n') {
                let mut of_lines = hasher.clone();
                of_lines.update(&new[..=end]);
                lines = Self { bytes: bytes + end as u64 + 1, sha256: of_lines.digest() };
            }
            hasher.update(new);
            bytes += read as u64;
            ends = new.ends_with(b"\n");
            is_same |= bytes == self.bytes && hasher.digest() == self.sha256;
            has_times &= bytes <= self.bytes || times(new, &mut column);
        }
        is_same &= has_times;
        Ok(is_same.then_some(Content { bytes, hasher, lines, ends }))
    }
}

/// True if each line begins with a time; `column` is where in a line the last part has ended.
fn times(part: &[u8], column: &mut usize) -> bool {
    part.iter().all(|byte| {
        if *byte == b'\n' {
            return std::mem::take(column) >= TIME.len();
        }
        *column += 1;
        match TIME.get(*column - 1) {
            None => true,
            Some(b'0') => byte.is_ascii_digit(),
            Some(expected) => byte == expected,
        }
    })
}

/// Contents of a file.
struct Content {
    bytes: u64,
    hasher: Hasher,
    /// To its last whole line.
    lines: Written,
    /// True if the file ends with its last whole line.
    ends: bool,
}

/// A file that lines are added to.
struct Appended {
    path: PathBuf,
    file: File,
    bytes: u64,
    hasher: Hasher,
}

impl Appended {
    /// A new file, or one that begins with what a run wrote.
    fn open(path: PathBuf, before: Option<Written>) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        // A link leads to a file of somebody else.
        options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32);
        let file = options.open(&path)?;
        let kind = file.metadata()?;
        if !kind.is_file() || kind.nlink() > 1 {
            return Err(io::Error::other("it is no log of a run"));
        }
        let before = match before {
            _ if kind.len() == 0 => Written::default(),
            Some(before) => before,
            None => return Err(io::Error::other("this run did not write it")),
        };
        let content = before.continued(file.try_clone()?)?;
        let content = content.ok_or_else(|| io::Error::other("it was changed since it was written"))?;
        let mut opened = Self { path, file, bytes: content.bytes, hasher: content.hasher };
        // A kill may have come in the middle of a line.
        if !content.ends {
            opened.append("\n")?;
        }
        Ok(opened)
    }

    fn append(&mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        self.hasher.update(text.as_bytes());
        self.bytes += text.len() as u64;
        Ok(())
    }

    fn flush(&self) -> io::Result<Written> {
        self.file.sync_data()?;
        Ok(Written { bytes: self.bytes, sha256: self.hasher.digest() })
    }
}

/// Lines of a log that has no file yet.
#[derive(Default)]
struct Held {
    text: String,
    /// Lines and bytes that there was no room for.
    left_out: (usize, usize),
}

impl Held {
    fn add(&mut self, lines: &str) {
        // A line after a gap is left out as well.
        if self.left_out.0 == 0 && self.text.len() + lines.len() <= MOST_HELD_BYTES {
            self.text.push_str(lines);
        } else {
            self.left_out = (self.left_out.0 + lines.lines().count(), self.left_out.1 + lines.len());
        }
    }

    /// The text, and how much is not in it.
    fn take(&mut self) -> String {
        let Self { mut text, left_out: (lines, bytes) } = std::mem::take(self);
        if lines > 0 {
            let lines = count(lines, "line");
            text += &format!(
                "{} note: {lines} ({bytes} bytes) left out: at most {MOST_HELD_BYTES} bytes are kept from before \
                there was \
                              this file\n",
                now()
            );
        }
        text
    }
}

enum Log {
    /// Nobody asks for one.
    Off,
    /// Until the directory is this run's.
    Held(Held),
    /// There is a file as soon as there is a line.
    Later(PathBuf, Option<Written>),
    On(Appended),
}

static STATE: Mutex<Log> = Mutex::new(Log::Off);

fn state() -> MutexGuard<'static, Log> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps what this process prints from now on.
pub fn hold() {
    *state() = Log::Held(Held::default());
    tee::to(add);
}

/// Writes what this process has printed so far, and prints from now on, to a rank's log in a run's directory, behind
/// what the run wrote to it `before`. Where that cannot be, a note says so.
pub fn open(directory: &Path, rank: u32, before: Option<Written>) {
    let mut log = state();
    let Log::Held(held) = &mut *log else { return };
    let (text, path) = (held.take(), directory.join(name(rank)));
    // A rank that has nothing to say has no file.
    if text.is_empty() && rank > 0 {
        *log = Log::Later(path, before);
        return;
    }
    start(log, path, before, &text);
}

fn start(mut log: MutexGuard<'_, Log>, path: PathBuf, before: Option<Written>, text: &str) {
    let opened = Appended::open(path.clone(), before).and_then(|mut opened| opened.append(text).map(|()| opened));
    match opened {
        Ok(opened) => *log = Log::On(opened),
        Err(error) => give_up(log, &path, &error),
    }
}

/// A run is worth more than the lines about it.
fn give_up(mut log: MutexGuard<'_, Log>, path: &Path, error: &io::Error) {
    *log = Log::Off;
    // The note comes back here.
    drop(log);
    note(format_args!("cannot write {}: {error}: what this run prints from here on is not kept", path.display()));
}

/// A line, or several, with the time.
fn add(text: &str) {
    let mut log = state();
    if matches!(*log, Log::Off) {
        return;
    }
    let now = now();
    let lines: String = text.lines().map(|line| format!("{now} {line}").trim_end().to_owned() + "\n").collect();
    let failed = match &mut *log {
        Log::Off => return,
        Log::Held(held) => return held.add(&lines),
        Log::Later(path, before) => {
            let (path, before) = (path.clone(), *before);
            return start(log, path, before, &lines);
        }
        Log::On(file) => file.append(&lines).err().map(|error| (file.path.clone(), error)),
    };
    if let Some((path, error)) = failed {
        give_up(log, &path, &error);
    }
}

/// Returns the contents of this process's log, on disk; none where it has none.
pub fn written() -> Option<Written> {
    let log = state();
    let Log::On(file) = &*log else { return None };
    match file.flush() {
        Ok(written) => Some(written),
        Err(error) => {
            let path = file.path.clone();
            give_up(log, &path, &error);
            None
        }
    }
}

/// Seconds, UTC.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let time = DateTime::from_timestamp(since as i64, 0).unwrap_or_default();
    time.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_log_goes_on_behind_what_was_written_and_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(LOG);
        let open = |before| Appended::open(path.clone(), before);
        let mut log = open(None).unwrap();
        let timed = |lines: &str| lines.replace('=', "2026-11-23T08:00:00Z ");
        log.append(&timed("=one\n")).unwrap();
        let one = log.flush().unwrap();
        // Killed in the middle of a line that run.json does not know of.
        log.append(&timed("=two, ha")).unwrap();
        assert_eq!(Written::default().now(&path), one);
        let mut log = open(Some(one)).unwrap();
        log.append(&timed("=three\n")).unwrap();
        let three = log.flush().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), timed("=one\n=two, ha\n=three\n"));
        assert!(one.begins(&path).unwrap() && one.now(&path) == three && three.now(&path) == three);
        let refused = |before| open(before).err().unwrap().to_string();
        assert_eq!(refused(None), "this run did not write it");
        fs::write(&path, timed("=one\n=two, ha\n=thre")).unwrap();
        assert_eq!(refused(Some(three)), "it was changed since it was written");
        fs::write(&path, timed("=One\n=two, ha\n=three\n")).unwrap();
        assert_eq!(refused(Some(three)), "it was changed since it was written");
        assert_eq!((one.begins(&path).unwrap(), one.now(&path)), (false, one));
        // Somebody has deleted it.
        fs::remove_file(&path).unwrap();
        assert_eq!(open(Some(three)).unwrap().flush().unwrap(), Written::default());
    }

    /// An entry without bytes stands for a log that was about to be made, and for no other file.
    #[test]
    fn a_file_without_times_is_not_taken_for_a_log_that_was_to_come() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(LOG);
        let none = Written::default();
        for text in ["mine", "mine\n", "2026-11-23T08:00:00Z one\nmine\n", "2026-11-23\n", "\n"] {
            fs::write(&path, text).unwrap();
            assert!(!none.begins(&path).unwrap() && none.now(&path) == none, "{text}");
            assert!(Appended::open(path.clone(), Some(none)).is_err(), "{text}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        for text in ["", "2026-11-23T08:00:00Z one\n2026-11-23T08:00:00Z\n2026-1"] {
            fs::write(&path, text).unwrap();
            assert!(none.begins(&path).unwrap() && Appended::open(path.clone(), Some(none)).is_ok(), "{text}");
        }
        let one = Written { bytes: 4, sha256: Digest::of(b"one\n") };
        for (text, is_ours) in [("one\n", true), ("one\n2026-11-23T08:00:00Z two\n", true), ("one\nmine\n", false)] {
            fs::write(&path, text).unwrap();
            assert_eq!(one.begins(&path).unwrap(), is_ours, "{text}");
        }
    }

    #[test]
    fn what_is_left_out_of_a_log_is_counted_in_it() {
        let mut held = Held::default();
        held.add("one\n");
        assert_eq!(held.take(), "one\n");
        let half = "x".repeat(MOST_HELD_BYTES / 2 - 1) + "\n";
        [&half[..], &half, "two\nthree\n", "four\n"].iter().for_each(|lines| held.add(lines));
        let text = held.take();
        let kept = text.strip_prefix(&half).and_then(|rest| rest.strip_prefix(&half)).unwrap();
        assert!(kept.contains(" note: 3 lines (15 bytes) left out: at most 1048576 bytes"), "{kept}");
        assert!(kept.ends_with("\n") && kept.lines().count() == 1 && times(kept.as_bytes(), &mut 0));
        assert_eq!(held.take(), "");
    }

    #[test]
    fn what_is_no_file_of_a_run_is_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mine) = (dir.path().join(LOG), dir.path().join("mine"));
        fs::write(&mine, "").unwrap();
        let make: [fn(&Path, &Path); 4] = [
            |mine, path| std::os::unix::fs::symlink(mine, path).unwrap(),
            |mine, path| fs::hard_link(mine, path).unwrap(),
            |_, path| fs::create_dir(path).unwrap(),
            |_, path| rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RWXU).unwrap(),
        ];
        for make in make {
            make(&mine, &path);
            assert!(Appended::open(path.clone(), None).is_err());
            assert_eq!(fs::read(&mine).unwrap(), b"");
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
        }
    }
}
