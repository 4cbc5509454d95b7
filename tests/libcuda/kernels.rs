//! What kernels do under the stand-in for libcuda: their host references. `fake.c` opens this library where
//! `PRECAST_FAKE_KERNELS` names it; `PRECAST_FAKE_BUNDLE` is the bundle whose kernels they are.

use std::ffi::{CStr, c_char};
use std::path::Path;
use std::slice;
use std::sync::LazyLock;

use precast_fatbins::{Bundle, BundleFile};
use precast_kernels::{KERNELS, Key, host::Views};

/// A kernel, to whom it was opened for.
pub struct Kernel {
    key: Key,
    params_bytes: usize,
}

/// Read and verified once: its kernels are opened one by one.
static BUNDLE: LazyLock<Bundle<'static>> = LazyLock::new(|| {
    let path = std::env::var_os("PRECAST_FAKE_BUNDLE").expect("PRECAST_FAKE_BUNDLE names a bundle");
    let file = BundleFile::read(Path::new(&path)).expect("the bundle can be read");
    Bundle::read(&Box::leak(Box::new(file)).bytes, &KERNELS).expect("it is a bundle")
});

/// The kernel of an entry symbol, and the bytes of its parameters; null where the bundle has none.
///
/// # Safety
/// `name` is a C string, and `params_bytes` can be written.
///
/// # Panics
/// Where the variable names no bundle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kernel_open(name: *const c_char, params_bytes: *mut usize) -> *const Kernel {
    // SAFETY: the caller's.
    let name = unsafe { CStr::from_ptr(name) }.to_str().expect("an entry symbol is ASCII");
    let is_it = |code: &precast_fatbins::Code| code.entry == name;
    let Some(entry) = BUNDLE.manifest().modules.iter().find(|entry| entry.code.as_ref().is_some_and(is_it)) else {
        return std::ptr::null();
    };
    let (pair, _) = entry.typed(&KERNELS).expect("its kernels are this program's");
    let kernel = Kernel { key: pair.key, params_bytes: entry.params_bytes as usize };
    // SAFETY: the caller's.
    unsafe { params_bytes.write(kernel.params_bytes) };
    // It is there as long as the process, as what is loaded is.
    Box::into_raw(Box::new(kernel))
}

/// Does what a kernel does to memory.
///
/// # Safety
/// `kernel` is one that was opened, `params` its parameters, and what they name is memory that nobody else uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kernel_run(kernel: *const Kernel, params: *const u8) {
    // SAFETY: the caller's.
    let (kernel, params) = unsafe { (&*kernel, slice::from_raw_parts(params, (*kernel).params_bytes)) };
    let reference = kernel.key.kernel();
    let operands = reference.operands(params);
    let mut views = Views::new();
    for operand in &operands {
        let address: u64 = bytemuck::pod_read_unaligned(&params[operand.offset..operand.offset + 8]);
        let bytes = operand.bytes() as usize;
        // SAFETY: the caller's: operands do not overlap where one of them is written.
        unsafe {
            if operand.access.writes() {
                views.push_write(operand, slice::from_raw_parts_mut(address as *mut u8, bytes));
            } else {
                views.push_read(operand, slice::from_raw_parts(address as *const u8, bytes));
            }
        }
    }
    reference.host(params, &mut views);
}
