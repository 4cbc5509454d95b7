//! Work that strangers word, on a thread of its own: what it holds in memory and how long it takes are bounded.
//!
//! A template doubles a text with one instruction, in as many ways as its engine has operators, filters and methods, and none of
//! them asks anybody. All of them ask the allocator. That must not unwind, and a request that it refuses ends the process: so a
//! thread that asks for more than it may hold stops there for good, and who waits for it is told. It keeps what it holds; a
//! failure ends the program soon after.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Builder};
use std::time::Duration;

/// Holds the parser of a template of 128 KiB that is nothing but operators, and the end of lists within lists.
const STACK_BYTES: usize = 512 << 20;
/// Bytes that each piece of memory counts besides its own: it may be a list within a list, and writing these takes 1.3 KB of stack a
/// level, so that 256 MiB of them fit the stack.
const PIECE_BYTES: usize = 1 << 10;

/// Limits of a piece of work.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Memory that it holds at one time.
    pub bytes: usize,
    /// Time, in which a program that was stopped does not count.
    pub seconds: u32,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Exceeded {
    #[error("it takes more than {} MiB of memory", .0 >> 20)]
    Memory(usize),
    #[error("it takes more than {0} s")]
    Time(u32),
    #[error("it panics")]
    Panicked,
    #[error("no thread runs it: {0}")]
    NoThread(io::Error),
}

thread_local! {
    /// Bytes that this thread may still ask for.
    static LEFT: Cell<isize> = const { Cell::new(isize::MAX) };
    /// Says that it has asked for more.
    static TELL: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// Threads that wait at most: rows are rendered by fewer.
const MOST_IDLE: usize = 4;

/// A piece of work with its bounds set.
type Job = Box<dyn FnOnce() + Send>;

/// Threads that wait for work: to start one takes as long as a short template. Each keeps the stack that it has touched.
static IDLE: Mutex<Vec<Sender<Job>>> = Mutex::new(Vec::new());

/// A thread that waits, or a new one.
fn worker() -> Result<Sender<Job>, Exceeded> {
    if let Some(waiting) = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop() {
        return Ok(waiting);
    }
    let (worker, jobs) = mpsc::channel::<Job>();
    let body = move || jobs.into_iter().for_each(|job| job());
    Builder::new().stack_size(STACK_BYTES).spawn(body).map_err(Exceeded::NoThread)?;
    Ok(worker)
}

/// Does work on another thread, as a recursion 512 MiB deep may.
///
/// # Errors
/// [`Exceeded`]. The thread then takes no more work; one that asked for too much memory stays until the process ends.
pub fn run<T: Send + 'static>(bounds: Bounds, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Exceeded> {
    let (result, results) = mpsc::channel();
    let stopped = result.clone();
    let body = move || {
        TELL.set(Some(Box::new(move || drop(stopped.send(Err(Exceeded::Memory(bounds.bytes)))))));
        LEFT.set(bounds.bytes as isize);
        let done = work();
        LEFT.set(isize::MAX);
        TELL.set(None);
        let _ = result.send(Ok(done));
    };
    let worker = worker()?;
    // A thread that has ended drops what it is sent, and with it the other end of `results`.
    let _ = worker.send(Box::new(body));
    // Second by second: one that lasts longer counts as one.
    for _ in 0..bounds.seconds {
        match results.recv_timeout(Duration::from_secs(1)) {
            Ok(result) => {
                let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
                if result.is_ok() && idle.len() < MOST_IDLE {
                    idle.push(worker);
                }
                return result;
            }
            Err(RecvTimeoutError::Disconnected) => return Err(Exceeded::Panicked),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    Err(Exceeded::Time(bounds.seconds))
}

/// The system's allocator, which counts what each thread holds.
pub struct Counted;

#[inline]
fn take(bytes: usize) {
    let left = LEFT.get().saturating_sub_unsigned(bytes);
    LEFT.set(left);
    if left < 0 {
        stop();
    }
}

#[inline]
fn give_back(bytes: usize) {
    LEFT.set(LEFT.get().saturating_add_unsigned(bytes));
}

#[cold]
fn stop() {
    // What follows may allocate, and so may a panic: it holds locks, and ends the thread.
    LEFT.set(isize::MAX);
    if thread::panicking() {
        return;
    }
    let tell = TELL.try_with(|tell| tell.try_borrow_mut().ok()?.take()).ok().flatten();
    let Some(tell) = tell else { return };
    tell();
    loop {
        thread::park();
    }
}

// SAFETY: every request is passed on unchanged, or never returns; nothing here panics.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size() + PIECE_BYTES);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size() + PIECE_BYTES);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        give_back(layout.size() + PIECE_BYTES);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        take(bytes);
        give_back(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { bytes: 1 << 20, seconds: 60 };

    #[test]
    fn work_ends_where_it_holds_too_much_not_where_it_frees() {
        let given_back = || (0..100).map(|_| vec![1_u8; 500_000].len()).sum::<usize>();
        assert_eq!(run(BOUNDS, given_back).unwrap(), 50_000_000);
        let grown = || {
            let mut all = vec![1_u8];
            (0..18).for_each(|_| all.extend_from_within(..));
            all.len()
        };
        assert_eq!(run(BOUNDS, grown).unwrap(), 1 << 18);
        // What is not touched counts, too.
        let ask: [fn() -> Vec<u8>; 3] = [
            || Vec::with_capacity(2 << 20),
            || vec![0; 2 << 20],
            || {
                let mut all = Vec::with_capacity(1 << 19);
                all.reserve(2 << 20);
                all
            },
        ];
        for ask in ask {
            assert_eq!(run(BOUNDS, ask).unwrap_err().to_string(), "it takes more than 1 MiB of memory");
        }
        let held = || (0..100).map(|_| vec![1_u8; 50_000]).collect::<Vec<_>>();
        assert!(matches!(run(BOUNDS, held), Err(Exceeded::Memory(_))));
        // Threads that nobody bounds are not.
        assert_eq!(vec![1_u8; 2 << 20].len(), 2 << 20);
    }

    #[test]
    fn work_that_does_not_end_is_not_waited_for() {
        let hangs = || loop {
            thread::park();
        };
        let error = run::<()>(Bounds { seconds: 1, ..BOUNDS }, hangs).unwrap_err();
        assert_eq!(error.to_string(), "it takes more than 1 s");
    }

    #[test]
    fn a_thread_counts_each_piece_of_work_alone() {
        // What leaves the thread is not given back to it.
        let used = |_| run(BOUNDS, || (vec![1_u8; 600_000], thread::current().id())).unwrap().1;
        let used: std::collections::HashSet<thread::ThreadId> = (0..50).map(used).collect();
        // Other tests take threads and give them back meanwhile.
        assert!(used.len() < 25, "{used:?}");
    }

    #[test]
    fn a_panic_is_an_error() {
        assert!(matches!(run::<()>(BOUNDS, || panic!("as it is told")), Err(Exceeded::Panicked)));
    }
}
