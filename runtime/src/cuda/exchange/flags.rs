//! Flags in host memory that all ranks of a host share, in which devices record progress: a file, deleted once all have
//! it open.

use std::fs::{self, File, Metadata, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use cudarc::driver::sys;
use memmap2::{MmapOptions, MmapRaw};

use crate::cuda::call::check;

/// Bytes between words: a cache line.
const WORD: usize = 64;
/// Directory whose files are shared memory.
pub(super) const SHARED: &str = "/dev/shm";
/// Prefix of the files' names.
const PREFIX: &str = "precast-";
/// Time that a creator has to lock its file.
const SETUP: Duration = Duration::from_secs(60);

/// Words of shared memory that devices write and wait for.
pub(super) struct Flags {
    map: MmapRaw,
    ranks: u32,
    /// Exchanges that this rank has enqueued: eventually equal on all ranks.
    count: AtomicU32,
}

/// Flags registered with this rank's device.
pub(super) struct Registered {
    flags: Arc<Flags>,
    /// Device address.
    address: u64,
}

#[derive(Clone, Copy)]
pub(super) enum Flag {
    /// The sender's data is complete.
    Ready,
    /// The receiver has copied it.
    Done,
}

impl Flags {
    fn bytes(ranks: u32) -> usize {
        (2 * ranks * ranks) as usize * WORD
    }

    pub fn open(file: &File, ranks: u32) -> Result<Self, String> {
        let map = MmapOptions::new().len(Self::bytes(ranks)).map_raw(file).map_err(|error| error.to_string())?;
        Ok(Self { map, ranks, count: AtomicU32::new(0) })
    }

    /// Returns the offset of one rank's flag for another, in bytes from the first word.
    fn offset(&self, flag: Flag, from: u32, to: u32) -> usize {
        let flag = match flag {
            Flag::Ready => 0,
            Flag::Done => 1,
        };
        ((flag * self.ranks + from) * self.ranks + to) as usize * WORD
    }

    fn word(&self, flag: Flag, from: u32, to: u32) -> &AtomicU32 {
        // SAFETY: a word of the mapping, aligned to a cache line; whoever else writes it writes it whole.
        unsafe { AtomicU32::from_ptr(self.map.as_mut_ptr().add(self.offset(flag, from, to)).cast()) }
    }

    /// Overwrites every flag that a rank waits for.
    fn store_all(&self, rank: u32, number: u32) {
        for from in 0..self.ranks {
            for flag in [Flag::Ready, Flag::Done] {
                self.word(flag, from, rank).store(number, Ordering::SeqCst);
            }
        }
    }

    /// Ends a rank's present and future waits until this process ends. Called once.
    pub fn release(self: &Arc<Self>, rank: u32) {
        // Far ahead of any exchange: devices compare by the sign of the difference. Counted from this rank's own count,
        // since the words of others may be far ahead already.
        let number = self.count.load(Ordering::SeqCst).wrapping_add(1 << 30);
        self.store_all(rank, number);
        // The other devices still run queued work, which stores lower numbers.
        let flags = Arc::clone(self);
        let _ = thread::Builder::new().spawn(move || {
            loop {
                thread::sleep(Duration::from_millis(1));
                flags.store_all(rank, number);
            }
        });
    }
}

impl Registered {
    pub fn new(flags: Flags) -> Result<Self, String> {
        let mut address = 0;
        // SAFETY: the mapping lives as long as this value, which unregisters it before it goes.
        unsafe {
            let options = sys::CU_MEMHOSTREGISTER_DEVICEMAP;
            let pointer = flags.map.as_mut_ptr().cast();
            check("cuMemHostRegister", sys::cuMemHostRegister_v2(pointer, flags.map.len(), options))
                .map_err(|error| error.to_string())?;
            let found = sys::cuMemHostGetDevicePointer_v2(&mut address, pointer, 0);
            if let Err(error) = check("cuMemHostGetDevicePointer", found) {
                let _ = sys::cuMemHostUnregister(pointer);
                return Err(error.to_string());
            }
        }
        Ok(Self { flags: Arc::new(flags), address })
    }

    /// Counts one more exchange, and returns its number.
    pub fn count(&self) -> u32 {
        self.flags.count.fetch_add(1, Ordering::SeqCst).wrapping_add(1)
    }

    pub fn release(&self, rank: u32) {
        self.flags.release(rank);
    }

    pub fn address(&self, flag: Flag, from: u32, to: u32) -> u64 {
        self.address + self.flags.offset(flag, from, to) as u64
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: it was registered when this value was made.
        let _ = unsafe { sys::cuMemHostUnregister(self.flags.map.as_mut_ptr().cast()) };
    }
}

/// Creates a file for flags that other users cannot open. It is locked while open.
pub(super) fn create(ranks: u32) -> std::io::Result<(PathBuf, File)> {
    remove_abandoned();
    let nanos = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
    let path = PathBuf::from(format!("{SHARED}/{PREFIX}{}-{nanos}", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    match file.set_len(Flags::bytes(ranks) as u64).and_then(|()| file.lock()) {
        Ok(()) => Ok((path, file)),
        Err(error) => {
            let _ = fs::remove_file(path);
            Err(error)
        }
    }
}

/// True if a file is named as [`create`] names files: the prefix and two numbers.
fn is_flags(name: &str) -> bool {
    let numbers = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(process, nanos)| is_number(process) && is_number(nanos))
}

/// Removes this user's files without a lock: their creators were killed.
fn remove_abandoned() {
    let is_old =
        |found: Metadata| found.is_file() && found.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > SETUP));
    for entry in fs::read_dir(SHARED).into_iter().flatten().flatten() {
        if is_flags(&entry.file_name().to_string_lossy()) && entry.metadata().is_ok_and(is_old) {
            let unlocked = File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok());
            let _ = unlocked.then(|| fs::remove_file(entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Instant, SystemTime};

    use super::*;

    #[test]
    fn a_word_that_is_put_back_after_a_release_is_far_ahead_again() {
        let (path, file) = create(3).unwrap();
        fs::remove_file(path).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let (own, other) = (Arc::new(Flags::open(&file, 3).unwrap()), Flags::open(&file, 3).unwrap());
        own.count.store(7, Ordering::SeqCst);
        own.release(1);
        let until = Instant::now() + Duration::from_secs(20);
        for (flag, from) in [(Flag::Ready, 0), (Flag::Done, 2)] {
            // Simulates a device that is still running.
            let word = other.word(flag, from, 1);
            word.store(8, Ordering::SeqCst);
            while (word.load(Ordering::SeqCst).wrapping_sub(1 << 20) as i32) < 0 {
                assert!(Instant::now() < until, "the device would wait for ever");
                thread::yield_now();
            }
        }
        // The others' flags are theirs to release.
        assert_eq!(other.word(Flag::Ready, 0, 2).load(Ordering::SeqCst), 0);
    }

    /// Each survivor ends its own waits, and none restores another's.
    #[test]
    fn ranks_that_are_released_one_after_the_other_all_pass() {
        let (path, file) = create(3).unwrap();
        fs::remove_file(path).unwrap();
        let ranks = [0, 2].map(|rank| (rank, Arc::new(Flags::open(&file, 3).unwrap())));
        for (rank, flags) in &ranks {
            flags.count.store(7, Ordering::SeqCst);
            flags.release(*rank);
        }
        let passes = |word: &AtomicU32| word.load(Ordering::SeqCst).wrapping_sub(8) as i32 >= 0;
        for (rank, flags) in &ranks {
            for from in 0..3 {
                assert!(passes(flags.word(Flag::Ready, from, *rank)), "rank {rank} waits for rank {from}");
                assert!(passes(flags.word(Flag::Done, from, *rank)), "rank {rank} waits for rank {from}");
            }
        }
    }

    #[test]
    fn a_file_whose_creator_was_killed_is_removed_by_the_next_one() {
        let ((used, _lock), (fresh, file)) = (create(2).unwrap(), create(2).unwrap());
        let beside = |name: &str| fresh.with_file_name(format!("{PREFIX}{name}"));
        let (abandoned, foreign) = (beside(&format!("{}-1", std::process::id())), beside("corpus-1.jsonl"));
        for path in [&abandoned, &foreign] {
            fs::copy(&fresh, path).unwrap();
        }
        for path in [&used, &abandoned, &foreign] {
            let old = SystemTime::now() - 2 * SETUP;
            OpenOptions::new().write(true).open(path).unwrap().set_modified(old).unwrap();
        }
        drop(file);
        remove_abandoned();
        assert_eq!([&used, &fresh, &abandoned, &foreign].map(|path| path.exists()), [true, true, false, true]);
        [used, fresh, foreign].iter().for_each(|path| fs::remove_file(path).unwrap());
    }
}
