//! Binds NVRTC, loaded at run time.

use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use precast_fatbins::{CubinError, CubinFacts, Digest};
use precast_system::cause;
use precast_system::input::{self, ReadError};

use crate::assembler::Assembler;

type Program = *mut std::ffi::c_void;

type CreateProgram = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type DestroyProgram = unsafe extern "C" fn(*mut Program) -> c_int;
type CompileProgram = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
type AddNameExpression = unsafe extern "C" fn(Program, *const c_char) -> c_int;
type GetSize = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type GetBytes = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;

/// An opened NVRTC. It compiles from any number of threads.
pub struct Nvrtc {
    create: CreateProgram,
    destroy: DestroyProgram,
    instantiate: AddNameExpression,
    compile: CompileProgram,
    log_size: GetSize,
    log: GetBytes,
    cubin_size: GetSize,
    cubin: GetBytes,
    error_string: ErrorString,
    compiler: String,
    identity: String,
    /// The library.
    path: PathBuf,
    /// Assembles PTX, in a build that has some.
    pub(crate) assembler: Option<Assembler>,
}

/// NVRTC cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NvrtcError {
    /// The library cannot be opened.
    #[error("cannot load {}: {}", path.display(), cause(error))]
    Load {
        /// The library.
        path: PathBuf,
        /// Error of the loader.
        error: libloading::Error,
    },
    /// The library is older than the kernels.
    #[error(
        "NVRTC at {} is {major}.{minor}: 13.0 or newer is needed, whose cubins name their compiler. The pinned one, \
        from this directory: \
         precast-aot toolchain install",
        path.display()
    )]
    Old {
        /// The library.
        path: PathBuf,
        /// Major version.
        major: i32,
        /// Minor version.
        minor: i32,
    },
    /// One of its files cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A call fails for a reason other than the source.
    #[error("NVRTC at {}: {call} failed: {reason}", path.display())]
    Call {
        /// The library.
        path: PathBuf,
        /// Function that failed.
        call: &'static str,
        /// NVRTC's description of the code.
        reason: String,
    },
    /// The source does not compile without warnings; holds NVRTC's log.
    #[error("{log}")]
    Compile {
        /// Compiler's log, with file and line.
        log: String,
    },
    /// NVRTC's output is not a valid cubin.
    #[error("NVRTC at {}: {error}", path.display())]
    Cubin {
        /// The library.
        path: PathBuf,
        /// Fault of its machine code.
        error: CubinError,
    },
}

/// A translation unit.
pub struct Unit<'a> {
    /// Name in messages.
    pub name: &'a str,
    /// CUDA source.
    pub text: &'a str,
    /// Headers as (include name, text).
    pub headers: &'a [(&'a str, &'a str)],
    /// Options of the compiler.
    pub options: &'a [String],
    /// Instances of templates to compile, as C++ spells them.
    pub instances: &'a [&'a str],
}

/// Oldest major version whose cubins have the note that names their compiler, `.note.nv.tkinfo`.
const OLDEST: i32 = 13;

/// Compiled once to learn the compiler's full version, of which `nvrtcVersion` leaves out the last number.
const PROBE: Unit<'_> = Unit {
    name: "probe.cu",
    text: "extern \"C\" __global__ void __launch_bounds__(32) probe(const int x) {}",
    headers: &[],
    options: &[],
    instances: &[],
};

impl Nvrtc {
    /// Loads the library and reads its version.
    ///
    /// # Errors
    /// [`NvrtcError`] if the library does not load or does not work.
    pub fn load(path: &Path) -> Result<Self, NvrtcError> {
        // Never unloaded: a thread that has compiled calls into the library as it ends, which may be after its pool is
        // gone.
        let load = |path: &Path| {
            // SAFETY: NVRTC's initializers have no preconditions.
            unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }
                .map(ManuallyDrop::new)
                .map_err(|error| NvrtcError::Load { path: path.to_owned(), error })
        };
        let library = load(path)?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the type is that of nvrtc.h for this name, unchanged since CUDA 11.1.
                unsafe { *library.get($name).map_err(|error| NvrtcError::Load { path: path.to_owned(), error })? }
            };
        }
        let version: Version = function!(b"nvrtcVersion\0");
        let mut nvrtc = Self {
            create: function!(b"nvrtcCreateProgram\0"),
            destroy: function!(b"nvrtcDestroyProgram\0"),
            instantiate: function!(b"nvrtcAddNameExpression\0"),
            compile: function!(b"nvrtcCompileProgram\0"),
            log_size: function!(b"nvrtcGetProgramLogSize\0"),
            log: function!(b"nvrtcGetProgramLog\0"),
            cubin_size: function!(b"nvrtcGetCUBINSize\0"),
            cubin: function!(b"nvrtcGetCUBIN\0"),
            error_string: function!(b"nvrtcGetErrorString\0"),
            compiler: String::new(),
            identity: String::new(),
            path: path.to_owned(),
            assembler: None,
        };
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are to integers that outlive the call.
        nvrtc.check("nvrtcVersion", unsafe { version(&mut major, &mut minor) })?;
        if major < OLDEST {
            return Err(NvrtcError::Old { path: path.to_owned(), major, minor });
        }
        // NVRTC opens its builtins by name at the first compilation; this opens them by path first.
        let builtins = path.with_file_name(format!("libnvrtc-builtins.so.{major}.{minor}"));
        load(&builtins)?;
        let probe = nvrtc.compile(&Unit { options: &["--gpu-architecture=sm_89".to_owned()], ..PROBE })?;
        let facts = CubinFacts::read(&probe).map_err(|error| NvrtcError::Cubin { path: path.to_owned(), error })?;
        nvrtc.compiler = format!("NVRTC {major}.{minor} ({})", facts.compiler);
        nvrtc.identity = format!("{} {}", nvrtc.compiler, digest(&[path, &builtins])?);
        Ok(nvrtc)
    }

    /// Returns the compiler's name and full version: `NVRTC 13.0 (V13.0.88)`.
    pub fn compiler(&self) -> &str {
        &self.compiler
    }

    /// Returns the compiler's full version and the digest of its files: a cubin depends on both.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Adds the assembler that takes PTX.
    #[must_use]
    pub fn with_assembler(self, assembler: Assembler) -> Self {
        Self { assembler: Some(assembler), ..self }
    }

    /// Returns the path of the library.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), NvrtcError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: NVRTC returns a static C string for any code.
        let reason = unsafe { CStr::from_ptr((self.error_string)(code)) };
        Err(NvrtcError::Call { path: self.path.clone(), call, reason: reason.to_string_lossy().into_owned() })
    }

    /// Compiles a unit to a cubin. Programs are independent: any number of threads may compile.
    ///
    /// # Errors
    /// [`NvrtcError::Compile`] with NVRTC's log, or another failure of NVRTC itself.
    pub fn compile(&self, unit: &Unit<'_>) -> Result<Vec<u8>, NvrtcError> {
        let c = |text: &str| CString::new(text).expect("sources and options hold no NUL");
        let (text, name) = (c(unit.text), c(unit.name));
        let header_names: Vec<CString> = unit.headers.iter().map(|header| c(header.0)).collect();
        let header_texts: Vec<CString> = unit.headers.iter().map(|header| c(header.1)).collect();
        let options: Vec<CString> = unit.options.iter().map(|option| c(option)).collect();
        let pointers = |strings: &[CString]| -> Vec<*const c_char> { strings.iter().map(|s| s.as_ptr()).collect() };
        let (names, texts, options) = (pointers(&header_names), pointers(&header_texts), pointers(&options));

        let mut program: Program = ptr::null_mut();
        // SAFETY: every pointer is to a NUL-terminated string, or an array of as many as the count says, that
        // outlives the call; NVRTC copies them.
        let created = unsafe {
            (self.create)(
                &mut program,
                text.as_ptr(),
                name.as_ptr(),
                names.len() as c_int,
                texts.as_ptr(),
                names.as_ptr(),
            )
        };
        self.check("nvrtcCreateProgram", created)?;
        let instances: Vec<CString> = unit.instances.iter().map(|instance| c(instance)).collect();
        let named = instances.iter().try_for_each(|instance| {
            // SAFETY: the program was created above; NVRTC copies the string.
            self.check("nvrtcAddNameExpression", unsafe { (self.instantiate)(program, instance.as_ptr()) })
        });
        // SAFETY: the program was created above; the options outlive the call.
        let compiled = unsafe { (self.compile)(program, options.len() as c_int, options.as_ptr()) };
        let log = self.bytes(program, "nvrtcGetProgramLog", self.log_size, self.log);
        let result = named.and(log).and_then(|log| {
            let log = String::from_utf8_lossy(&log).trim_end_matches('\0').trim_end().to_owned();
            // After success the log holds only warnings: of spills, of serialized tensor-core work.
            if !log.is_empty() {
                return Err(NvrtcError::Compile { log });
            }
            self.check("nvrtcCompileProgram", compiled)?;
            self.bytes(program, "nvrtcGetCUBIN", self.cubin_size, self.cubin)
        });
        // SAFETY: the program was created above and is not used again.
        unsafe { (self.destroy)(&mut program) };
        result
    }

    fn bytes(&self, program: Program, call: &'static str, size: GetSize, get: GetBytes) -> Result<Vec<u8>, NvrtcError> {
        let mut bytes = 0;
        // SAFETY: the program is alive; `size` writes one usize.
        self.check(call, unsafe { size(program, &mut bytes) })?;
        let mut buffer = vec![0u8; bytes];
        // SAFETY: `get` writes exactly as many bytes as `size` said.
        self.check(call, unsafe { get(program, buffer.as_mut_ptr().cast()) })?;
        Ok(buffer)
    }
}

// SAFETY: the library's functions may be called from any thread; a `Program` never leaves the call that made it.
unsafe impl Sync for Nvrtc {}
// SAFETY: as above.
unsafe impl Send for Nvrtc {}

/// Upper limit on the size of a compiler's file.
const MOST_BYTES: u64 = 1 << 30;

/// Digests several files together.
fn digest(paths: &[&Path]) -> Result<Digest, NvrtcError> {
    let read = |path: &&Path| Ok(Digest::of(&input::read(path, MOST_BYTES).map_err(ReadError::of(path))?).0);
    let files: Vec<[u8; 32]> = paths.iter().map(read).collect::<Result<_, NvrtcError>>()?;
    Ok(Digest::of_parts("precast.nvrtc", files.iter().map(|file| &file[..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_does_not_open_says_what_the_loader_misses() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("libnvrtc.so.13");
        std::fs::write(&path, "no library, and long enough for a header of one: 64 bytes and more of text").unwrap();
        let message = Nvrtc::load(&path).err().unwrap().to_string();
        // glibc names the file again, and says why.
        assert!(message.starts_with(&format!("cannot load {0}: {0}: ", path.display())), "{message}");
    }
}
