//! Executes the trainer's kernels under the stand-in for libcuda, in a process of the trainer: `fake.c` opens this
//! library where `PRECAST_FAKE_KERNELS` names it; `PRECAST_FAKE_BUNDLE` is the bundle whose kernels they are.

use std::ffi::c_char;
use std::path::Path;
use std::sync::Once;

use precast_fatbins::{Bundle, BundleFile};
use precast_kernels::KERNELS;
use precast_libcuda::Kernel;

/// Reads and verifies the bundle once: its kernels are opened one by one.
fn know() {
    static KNOWN: Once = Once::new();
    KNOWN.call_once(|| {
        let path = std::env::var_os("PRECAST_FAKE_BUNDLE").expect("PRECAST_FAKE_BUNDLE names a bundle");
        let file = BundleFile::read(Path::new(&path)).expect("the bundle can be read");
        precast_libcuda::know(&Bundle::read(&file.bytes, &KERNELS).expect("it is a bundle"));
    });
}

/// The kernel of an entry symbol, and the bytes of its parameters; null where the bundle has none.
///
/// # Safety
/// That of [`precast_libcuda::kernel_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kernel_open(name: *const c_char, params_bytes: *mut usize) -> *const Kernel {
    know();
    // SAFETY: the caller's.
    unsafe { precast_libcuda::kernel_open(name, params_bytes) }
}

/// Copies the parameters of a launch to their places in a block.
///
/// # Safety
/// That of [`precast_libcuda::kernel_gather`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kernel_gather(kernel: *const Kernel, params: *const *const u8, block: *mut u8) {
    // SAFETY: the caller's.
    unsafe { precast_libcuda::kernel_gather(kernel, params, block) };
}

/// Does what a kernel does to memory.
///
/// # Safety
/// That of [`precast_libcuda::kernel_run`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kernel_run(kernel: *const Kernel, params: *const u8, geometry: *const [u32; 7]) {
    // SAFETY: the caller's.
    unsafe { precast_libcuda::kernel_run(kernel, params, geometry) };
}
