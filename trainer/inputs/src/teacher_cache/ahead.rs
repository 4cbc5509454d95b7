//! Reads rows ahead of who needs them, into bounded memory.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::error::CacheError;
use super::key::Key;
use super::rows::Hidden;

const THREADS: usize = 2;
/// Bytes of rows that wait to be taken, at most.
pub const MOST_BYTES: u64 = 256 << 20;

type Rows = Result<Vec<u8>, CacheError>;

/// Threads that read ahead. They end when it is dropped.
pub(super) struct Ahead {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    hidden: Arc<Hidden>,
    most_bytes: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// In the order they are needed in.
    wanted: VecDeque<Key>,
    /// Those that are being read, without rows, and those that wait to be taken.
    read: HashMap<Key, Option<Rows>>,
    /// Bytes of both.
    bytes: u64,
    closed: bool,
}

impl Ahead {
    /// Starts the threads. One that the system refuses is missed by nobody: who needs rows reads them.
    pub fn start(hidden: Arc<Hidden>) -> Self {
        Self::bounded(hidden, MOST_BYTES)
    }

    pub(super) fn bounded(hidden: Arc<Hidden>, most_bytes: u64) -> Self {
        let shared = Arc::new(Shared { hidden, most_bytes, state: Mutex::default(), changed: Condvar::new() });
        let start = |_| {
            let shared = Arc::clone(&shared);
            thread::Builder::new().spawn(move || shared.work()).ok()
        };
        let threads = (0..THREADS).filter_map(start).collect();
        Self { shared, threads }
    }

    /// Adds sequences to read; those that are not there, are under way, or have no room alone are not.
    pub fn want(&self, keys: &[Key]) {
        let Shared { hidden, most_bytes, changed, .. } = &*self.shared;
        let mut state = self.shared.lock();
        for key in keys.iter().filter(|key| hidden.bytes(key).is_some_and(|bytes| bytes <= *most_bytes)) {
            if !state.read.contains_key(key) && !state.wanted.contains(key) {
                state.wanted.push_back(*key);
            }
        }
        changed.notify_all();
    }

    /// Takes the rows of a sequence; none if nobody has begun to read them, and nobody will.
    pub fn take(&self, key: &Key) -> Option<Rows> {
        self.shared.lock().wanted.retain(|wanted| wanted != key);
        let mut state = self.shared.wait_while(|state| matches!(state.read.get(key), Some(None)));
        let rows = state.read.remove(key)?;
        state.bytes -= self.shared.bytes(key);
        self.shared.changed.notify_all();
        rows
    }

    /// Waits until nothing more is read unless something is taken, and returns the bytes of what is read.
    #[cfg(test)]
    pub(super) fn settled(&self) -> u64 {
        let shared = &*self.shared;
        shared.wait_while(|state| shared.has_next(state) || state.read.values().any(Option::is_none)).bytes
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while(&self, wait: impl FnMut(&mut State) -> bool) -> MutexGuard<'_, State> {
        self.changed.wait_while(self.lock(), wait).unwrap_or_else(PoisonError::into_inner)
    }

    fn bytes(&self, key: &Key) -> u64 {
        self.hidden.bytes(key).unwrap_or_default()
    }

    fn has_next(&self, state: &State) -> bool {
        state.wanted.front().is_some_and(|key| state.bytes + self.bytes(key) <= self.most_bytes)
    }

    fn work(&self) {
        loop {
            let mut state = self.wait_while(|state| !state.closed && !self.has_next(state));
            let Some(key) = state.wanted.pop_front().filter(|_| !state.closed) else { return };
            state.bytes += self.bytes(&key);
            state.read.insert(key, None);
            drop(state);
            let rows = self.hidden.read(&key);
            self.lock().read.insert(key, Some(rows));
            self.changed.notify_all();
        }
    }
}
