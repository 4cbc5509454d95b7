//! Moves bytes from GPU to GPU by NCCL.
//!
//! `libnccl.so.2` is loaded only when ranks connect whose GPUs copy engines cannot join. Only send and receive are
//! used, which do no arithmetic: kernels of the bundle do all additions. NCCL's own kernels are NVIDIA's, in no bundle;
//! they come with the communicator, and each exchange of a plan runs once before the seal, so that nothing is loaded or
//! connected after it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::CUstream;
use libloading::Library;
use precast_system::cause;

use crate::driver::{BoundExchange, DriverError};

/// Library to load in place of the one on the library path.
const VARIABLE: &str = "PRECAST_NCCL";
const LIBRARY: &str = "libnccl.so.2";

/// Supported versions, as `ncclGetVersion` counts: 2.19 or newer, below 3.
const VERSIONS: std::ops::Range<c_int> = 21900..30000;
/// `ncclUint8`.
const BYTES: c_int = 1;
const SUCCESS: c_int = 0;

/// NCCL's communicator handle.
type Comm = *mut c_void;

/// Identifier shared by the ranks of a communicator.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Id([u8; 128]);

/// The functions in use, as `nccl.h` declares them.
struct Functions {
    version: u32,
    unique_id: unsafe extern "C" fn(*mut Id) -> c_int,
    init_rank: unsafe extern "C" fn(*mut Comm, c_int, Id, c_int) -> c_int,
    abort: unsafe extern "C" fn(Comm) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    group_start: unsafe extern "C" fn() -> c_int,
    group_end: unsafe extern "C" fn() -> c_int,
    send: unsafe extern "C" fn(*const c_void, usize, c_int, c_int, Comm, CUstream) -> c_int,
    receive: unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, Comm, CUstream) -> c_int,
}

fn functions() -> Result<&'static Functions, DriverError> {
    static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
    let found = FUNCTIONS.get_or_init(|| {
        let name = std::env::var(VARIABLE).unwrap_or_else(|_| LIBRARY.to_owned());
        load(&name)
    });
    found.as_ref().map_err(|reason| DriverError::Exchange {
        label: "NCCL is needed where GPUs cannot copy from each other's memory".to_owned(),
        reason: format!(
            "{reason}. Install libnccl2, or `pip install nvidia-nccl-cu13` and set {VARIABLE} to the path of its \
            {LIBRARY}"
        ),
    })
}

/// Loads the functions of a library; fails with a description.
fn load(name: &str) -> Result<Functions, String> {
    look_up(name).map_err(|reason| format!("{name}: {reason}"))
}

fn look_up(name: &str) -> Result<Functions, String> {
    // The dynamic loader would block on a FIFO.
    if name.contains('/') && !Path::new(name).is_file() {
        return Err("there is no regular file".to_owned());
    }
    // SAFETY: initializers of NCCL have no preconditions. The library is never unloaded. Each function has the type
    // that nccl.h of the versions taken declares.
    unsafe {
        let library = Box::leak(Box::new(Library::new(name).map_err(|error| cause(&error))?));
        macro_rules! function {
            ($name:literal) => {
                *library.get($name).map_err(|error| cause(&error))?
            };
        }
        let get_version: unsafe extern "C" fn(*mut c_int) -> c_int = function!(b"ncclGetVersion\0");
        let mut version = 0;
        if get_version(&mut version) != SUCCESS || !VERSIONS.contains(&version) {
            let shown = shown(version as u32);
            return Err(format!("it is NCCL {shown}: this program requires 2.19 or later, below 3"));
        }
        Ok(Functions {
            version: version as u32,
            unique_id: function!(b"ncclGetUniqueId\0"),
            init_rank: function!(b"ncclCommInitRank\0"),
            abort: function!(b"ncclCommAbort\0"),
            error_string: function!(b"ncclGetErrorString\0"),
            group_start: function!(b"ncclGroupStart\0"),
            group_end: function!(b"ncclGroupEnd\0"),
            send: function!(b"ncclSend\0"),
            receive: function!(b"ncclRecv\0"),
        })
    }
}

/// Formats 22803 as `2.28.3`.
fn shown(version: u32) -> String {
    format!("{}.{}.{}", version / 10000, version / 100 % 100, version % 100)
}

/// Returns the version of NCCL that ranks would use.
///
/// # Errors
/// [`DriverError::Exchange`] if NCCL is missing or of an unsupported version.
pub fn version() -> Result<String, DriverError> {
    Ok(shown(functions()?.version))
}

fn check(call: &'static str, result: c_int) -> Result<(), String> {
    if result == SUCCESS {
        return Ok(());
    }
    let Ok(functions) = functions() else { return Err(format!("{call} failed: {result}")) };
    // SAFETY: NCCL's messages are static C strings.
    let message = unsafe { CStr::from_ptr((functions.error_string)(result)) };
    Err(format!("{call} failed: {} ({result})", message.to_string_lossy()))
}

fn failed(label: &str) -> impl FnOnce(String) -> DriverError {
    move |reason| DriverError::Exchange { label: label.to_owned(), reason }
}

impl Id {
    /// Creates an identifier, to be sent to all ranks.
    ///
    /// # Errors
    /// [`DriverError::Exchange`] if NCCL fails.
    pub fn new() -> Result<Self, DriverError> {
        let mut id = Self([0; 128]);
        // SAFETY: writes 128 bytes.
        check("ncclGetUniqueId", unsafe { (functions()?.unique_id)(&mut id) }).map_err(failed("ranks"))?;
        Ok(id)
    }

    /// Reads an identifier from another rank.
    ///
    /// # Errors
    /// [`DriverError::Exchange`] if the length is wrong.
    pub fn of(bytes: &[u8]) -> Result<Self, DriverError> {
        bytes.try_into().map(Self).map_err(|_| failed("ranks")(format!("NCCL's id has {} bytes", bytes.len())))
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.0.to_vec()
    }
}

/// This rank's end of a communicator.
pub(super) struct Nccl {
    comm: Comm,
    abort: Abort,
}

impl Nccl {
    /// Connects, waiting for all ranks. The context of the rank's device is current.
    pub fn connect(rank: u32, ranks: u32, id: &Id) -> Result<Self, DriverError> {
        let mut comm = null_mut();
        // SAFETY: writes one handle; the id is passed by value, as the C interface has it.
        let made = unsafe { (functions()?.init_rank)(&mut comm, ranks as c_int, *id, rank as c_int) };
        check("ncclCommInitRank", made).map_err(failed("ranks"))?;
        Ok(Self { comm, abort: Abort { comm: comm as usize, aborted: Arc::default() } })
    }

    /// Enqueues an exchange on a stream.
    pub fn exchange(&self, label: &str, exchange: &BoundExchange, stream: CUstream) -> Result<(), DriverError> {
        let nccl = functions()?;
        let ask = || {
            // SAFETY: ranges of device memory that lives as long as the driver; the calls of a group are matched by the
            // peers'.
            unsafe {
                check("ncclGroupStart", (nccl.group_start)())?;
                for (rank, address, bytes) in &exchange.sends {
                    let from = *address as *const c_void;
                    check("ncclSend", (nccl.send)(from, *bytes as usize, BYTES, *rank as c_int, self.comm, stream))?;
                }
                for (rank, address, bytes) in &exchange.receives {
                    let to = *address as *mut c_void;
                    check("ncclRecv", (nccl.receive)(to, *bytes as usize, BYTES, *rank as c_int, self.comm, stream))?;
                }
                check("ncclGroupEnd", (nccl.group_end)())
            }
        };
        ask().map_err(failed(label))
    }

    pub fn abort(&self) -> Abort {
        self.abort.clone()
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        self.abort.now();
    }
}

/// Aborts a communicator's waits from any thread; nothing else ends them.
#[derive(Clone)]
pub(super) struct Abort {
    comm: usize,
    aborted: Arc<AtomicBool>,
}

impl Abort {
    pub fn now(&self) {
        if self.aborted.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Ok(nccl) = functions() {
            // SAFETY: the handle was made by NCCL and is aborted once; NCCL lets another thread do that.
            let _ = unsafe { (nccl.abort)(self.comm as Comm) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_nccl_counts_them() {
        assert_eq!([shown(22803), shown(21903)], ["2.28.3", "2.19.3"]);
        assert!(VERSIONS.contains(&22803) && !VERSIONS.contains(&21805) && !VERSIONS.contains(&30000));
    }

    #[test]
    fn a_fifo_is_not_waited_for() {
        let fifo = std::env::temp_dir().join(format!("libnccl-{}.so.2", std::process::id())).display().to_string();
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let refused = load(&fifo).err();
        std::fs::remove_file(&fifo).unwrap();
        assert_eq!(refused.unwrap(), format!("{fifo}: there is no regular file"));
    }

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let reason = load("libnccl-of-nobody.so.2").err().unwrap();
        assert!(reason.contains("libnccl-of-nobody.so.2"), "{reason}");
    }
}
