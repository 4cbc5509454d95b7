//! A hostile file makes a reader allocate at most a few times its size: declared lengths are not trusted.

use precast_kernels::KERNELS;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use precast_fatbins::{Bundle, Code, Digest, Manifest, ModuleEntry, Origin};

/// The system's allocator, recording the largest request.
struct Watched;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every request is passed on unchanged.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// Makes a manifest with this body and a correct digest.
fn sealed(body: &[u8]) -> Vec<u8> {
    let digest = Digest::of_parts("precast.manifest", [body]);
    [&b"PRECAST\x02"[..], &digest.0, body].concat()
}

/// Makes a manifest with one of each field that has a length.
fn manifest() -> Manifest {
    let module = |arch: &str, code: Option<Code>| ModuleEntry {
        key: "fill{first=false}".to_owned(),
        variant: "threads=256".to_owned(),
        arch: arch.to_owned(),
        params_bytes: 32,
        source: Digest::of(b"source"),
        code,
    };
    let code = Code {
        entry: "fill__first_false__threads_256".to_owned(),
        digest: Digest::of(b"cubin"),
        bytes: 5,
        registers: 16,
        static_shared_bytes: 0,
        stack_bytes: 0,
        max_threads: 256,
    };
    let modules = vec![module("sim", None), module("sm_89", Some(code))];
    let [options, built_for] = ["--std=c++17", "tiny"].map(|text| vec![text.to_owned()]);
    let origin = Some(Origin::of(&KERNELS));
    Manifest { origin, compiler: "NVRTC 13.0".to_owned(), options, built_for, modules }
}

#[test]
fn lengths_are_not_believed() {
    for manifest in [Manifest::simulated(&KERNELS, []), manifest()] {
        let whole = manifest.encode();
        let body = &whole[40..];
        assert_eq!(Manifest::decode(&sealed(body)).as_ref(), Ok(&manifest));
        // Every position of eight bytes that could be a length.
        for at in 0..=body.len() - 8 {
            for length in [1u64 << 20, 1 << 32, 1 << 60, u64::MAX] {
                let mut body = body.to_vec();
                body[at..at + 8].copy_from_slice(&length.to_le_bytes());
                let bytes = sealed(&body);
                LARGEST.store(0, Ordering::Relaxed);
                let _ = Bundle::from_parts(&bytes, &[], &KERNELS);
                let largest = LARGEST.load(Ordering::Relaxed);
                assert!(largest <= 4 * bytes.len() + 4096, "length {length} at {at}: {largest} bytes");
            }
        }
    }
}
