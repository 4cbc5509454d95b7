//! A stand-in for libcuda whose kernels are their host references, for tests of programs that launch a bundle's
//! kernels.
//!
//! A test calls [`install`] before anything opens the driver; from then on this process has a GPU, a GB10, whose memory
//! is the host's and whose streams are threads. The stand-in counts and orders what it is asked for as `fake.c` says.
//! It runs machine code of no kind: a GPU's results are `precast-simt`'s and the self-test's to compare.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::slice;
use std::sync::{Mutex, Once, PoisonError};

use libloading::os::unix::{Library, RTLD_NOW};
use precast_core::host::Views;
use precast_core::{Arch, Geometry, Key};
use precast_fatbins::Bundle;

/// A kernel, to whom it was opened for.
#[derive(Debug)]
pub struct Kernel {
    key: Key,
    arch: Arch,
    params_bytes: usize,
}

/// Every known kernel, by its entry symbol.
static KNOWN: Mutex<BTreeMap<String, &'static Kernel>> = Mutex::new(BTreeMap::new());

/// The signature of [`kernel_open`].
type Open = unsafe extern "C" fn(*const c_char, *mut usize) -> *const Kernel;
/// The signature of [`kernel_gather`].
type Gather = unsafe extern "C" fn(*const Kernel, *const *const u8, *mut u8);
/// The signature of [`kernel_run`].
type Run = unsafe extern "C" fn(*const Kernel, *const u8, *const [u32; 7]);

/// Puts the stand-in in the place of the driver in this process, also where there is a real one, and lets it do what
/// the kernels of a bundle do. Called again it adds those of another bundle.
///
/// # Panics
/// Without a C compiler: `CC` or `cc`.
pub fn install<K>(bundle: &Bundle<'_, K>) {
    static INSTALLED: Once = Once::new();
    know(bundle);
    INSTALLED.call_once(|| {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        // The name under which it is loaded, and so found again.
        let library = scratch.path().join("libcuda.so");
        compile(&source("fake.c"), &library).expect("a C compiler, CC or cc");
        // SAFETY: it has no initializers, and is never closed: whoever looks for libcuda.so is given it. The function
        // has this signature in fake.c.
        unsafe {
            let library = Library::open(Some(&library), RTLD_NOW).expect("a library");
            let set =
                library.get::<unsafe extern "C" fn(Open, Gather, Run)>(b"precast_fake_kernels").expect("a function");
            set(kernel_open, kernel_gather, kernel_run);
            std::mem::forget(library);
        }
    });
}

/// Returns the path of a C source of the stand-ins.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Compiles a C source to a library with the soname of its file.
///
/// # Errors
/// [`io::Error`] if the compiler does not start, or fails: it has said why.
pub fn compile(source: &Path, library: &Path) -> io::Result<()> {
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let name = library.file_name().unwrap_or_default().to_string_lossy();
    let mut command = Command::new(compiler);
    command.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", &format!("-Wl,-soname,{name}"), "-o"]).arg(library);
    let status = command.arg(source).args(["-ldl", "-pthread"]).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{command:?}: {status}"))) }
}

/// Learns the kernels of a bundle.
///
/// # Panics
/// If the bundle's kernels are another program's.
pub fn know<K>(bundle: &Bundle<'_, K>) {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    for entry in &bundle.manifest().modules {
        let Some(code) = &entry.code else { continue };
        let (pair, arch) = entry.typed(bundle.kernels()).expect("its kernels are this program's");
        let kernel = Kernel { key: pair.key, arch, params_bytes: entry.params_bytes as usize };
        // It is there as long as the process, as what is loaded is.
        known.insert(code.entry.clone(), Box::leak(Box::new(kernel)));
    }
}

/// The kernel of an entry symbol, and the bytes of its parameters; null if it is not known.
///
/// # Safety
/// `name` is a C string, and `params_bytes` can be written.
pub unsafe extern "C" fn kernel_open(name: *const c_char, params_bytes: *mut usize) -> *const Kernel {
    // SAFETY: the caller's.
    let name = unsafe { CStr::from_ptr(name) }.to_str().expect("an entry symbol is ASCII");
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(kernel) = known.get(name) else { return std::ptr::null() };
    // SAFETY: the caller's.
    unsafe { params_bytes.write(kernel.params_bytes) };
    *kernel
}

/// Launches of plain kernels, as they ran: name, and the bytes of the parameters.
static LAUNCHED: Mutex<Vec<(String, Vec<u8>)>> = Mutex::new(Vec::new());

/// Takes the launches so far of kernels that a program takes as they are. What one does is known if it has a reference
/// and is launched as a variant of it would be.
pub fn launched() -> Vec<(String, Vec<u8>)> {
    std::mem::take(&mut LAUNCHED.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Copies the parameters of a launch to their places in a block: a kernel of ours has one, the block, and a plain one
/// those of its file.
///
/// # Safety
/// `kernel` is one that was opened, `params` has the address of each of its parameters, and `block` can be written.
pub unsafe extern "C" fn kernel_gather(kernel: *const Kernel, params: *const *const u8, block: *mut u8) {
    // SAFETY: the caller's.
    unsafe {
        let Some(plain) = (*kernel).key.plain() else {
            return block.copy_from_nonoverlapping(*params, (*kernel).params_bytes);
        };
        for (index, parameter) in plain.parameters.iter().enumerate() {
            let place = block.add(parameter.offset as usize);
            place.copy_from_nonoverlapping(*params.add(index), parameter.bytes as usize);
        }
    }
}

/// Does what a kernel does to memory.
///
/// # Safety
/// `kernel` is one that was opened, `params` its block, `geometry` its grid, block and dynamic shared memory, and what
/// they name is memory that nobody else uses.
pub unsafe extern "C" fn kernel_run(kernel: *const Kernel, params: *const u8, geometry: *const [u32; 7]) {
    // SAFETY: the caller's.
    let (kernel, params) = unsafe { (&*kernel, slice::from_raw_parts(params, (*kernel).params_bytes)) };
    let reference = kernel.key.kernel();
    if let Some(plain) = kernel.key.plain() {
        let mut launched = LAUNCHED.lock().unwrap_or_else(PoisonError::into_inner);
        launched.push((plain.name.to_owned(), params.to_vec()));
        // SAFETY: the caller's.
        let own = unsafe { *geometry };
        let of = |Geometry { grid: [a, b, c], block: [d, e, f], shared_bytes }| [a, b, c, d, e, f, shared_bytes];
        let mut variants = reference.variants(kernel.arch).into_iter();
        if !variants.any(|variant| of(reference.geometry(variant, params)) == own) {
            return;
        }
    }
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
