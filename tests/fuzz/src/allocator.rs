//! An allocator that knows how much there is.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The most memory of an input of at most 1 MB, bytes.
pub const MOST_BYTES: usize = 1 << 30;

static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);
static ENDS_QUIETLY: AtomicBool = AtomicBool::new(false);

/// Has an input that takes more memory end the process without a finding: for what runs in a process of its own, which
/// the system ends so.
pub fn end_quietly() {
    ENDS_QUIETLY.store(true, Ordering::Relaxed);
}

struct Bounded;

#[global_allocator]
static ALLOCATOR: Bounded = Bounded;

fn take(bytes: usize) {
    if LIVE_BYTES.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= MOST_BYTES {
        return;
    }
    if ENDS_QUIETLY.load(Ordering::Relaxed) {
        // Without what is done at exit: the fuzzer takes that for a finding.
        signal_hook::low_level::exit(0);
    }
    LIVE_BYTES.store(0, Ordering::Relaxed);
    eprintln!("an input takes more than {MOST_BYTES} bytes of memory: the last allocation is of {bytes}");
    std::process::abort();
}

// SAFETY: all memory is the system's; it is counted beside.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        take(bytes);
        LIVE_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(old, layout, bytes) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(old, layout) }
    }
}
