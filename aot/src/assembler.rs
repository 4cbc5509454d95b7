//! Binds nvJitLink, loaded at run time: PTX in, a cubin out.

use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use precast_fatbins::Digest;
use precast_system::cause;
use precast_system::input::{self, ReadError};

type Handle = *mut c_void;
type Create = unsafe extern "C" fn(*mut Handle, u32, *const *const c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Handle) -> c_int;
type Add = unsafe extern "C" fn(Handle, c_int, *const c_void, usize, *const c_char) -> c_int;
type Complete = unsafe extern "C" fn(Handle) -> c_int;
type GetSize = unsafe extern "C" fn(Handle, *mut usize) -> c_int;
type GetBytes = unsafe extern "C" fn(Handle, *mut c_char) -> c_int;

/// `NVJITLINK_INPUT_PTX`.
const PTX: c_int = 2;
/// Upper limit on the size of the library.
const MOST_BYTES: u64 = 1 << 30;

/// An opened nvJitLink, which holds the assembler of its release.
pub struct Assembler {
    create: Create,
    destroy: Destroy,
    add: Add,
    complete: Complete,
    log_size: GetSize,
    log: GetBytes,
    cubin_size: GetSize,
    cubin: GetBytes,
    identity: String,
}

/// PTX that is not assembled.
#[derive(Debug, thiserror::Error)]
pub enum AssemblerError {
    /// The library cannot be opened.
    #[error("cannot load {}: {}", path.display(), cause(error))]
    Load {
        /// The library.
        path: PathBuf,
        /// Error of the loader.
        error: libloading::Error,
    },
    /// The library cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The assembler refuses the text; holds its log.
    #[error("nvJitLink: {call} failed with code {code}\n{log}")]
    Refused {
        /// Function that failed.
        call: &'static str,
        /// Its code.
        code: c_int,
        /// Its log, with lines of the text.
        log: String,
    },
}

impl Assembler {
    /// Loads the library.
    ///
    /// # Errors
    /// [`AssemblerError`] if it does not load, or lacks a function.
    pub fn load(path: &Path) -> Result<Self, AssemblerError> {
        let failed = |error| AssemblerError::Load { path: path.to_owned(), error };
        // SAFETY: its initializers have no preconditions. It is never unloaded.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(failed)?;
        let library = ManuallyDrop::new(library);
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the type is that of nvJitLink.h for this name, unchanged since CUDA 12.0.
                unsafe { *library.get($name).map_err(failed)? }
            };
        }
        let bytes = input::read(path, MOST_BYTES).map_err(ReadError::of(path))?;
        Ok(Self {
            create: function!(b"nvJitLinkCreate\0"),
            destroy: function!(b"nvJitLinkDestroy\0"),
            add: function!(b"nvJitLinkAddData\0"),
            complete: function!(b"nvJitLinkComplete\0"),
            log_size: function!(b"nvJitLinkGetErrorLogSize\0"),
            log: function!(b"nvJitLinkGetErrorLog\0"),
            cubin_size: function!(b"nvJitLinkGetLinkedCubinSize\0"),
            cubin: function!(b"nvJitLinkGetLinkedCubin\0"),
            identity: format!("nvJitLink {}", Digest::of(&bytes)),
        })
    }

    /// Returns the digest of its file: a cubin depends on it.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Assembles PTX, which messages call `name`, for an architecture. Any number of threads may.
    ///
    /// # Errors
    /// [`AssemblerError::Refused`] with the log.
    ///
    /// # Panics
    /// If a text holds a NUL.
    pub fn assemble(&self, name: &str, text: &str, target: &str) -> Result<Vec<u8>, AssemblerError> {
        let c = |text: &str| CString::new(text).expect("sources hold no NUL");
        let (name, text, option) = (c(name), c(text), c(&format!("-arch={target}")));
        let mut handle: Handle = ptr::null_mut();
        // SAFETY: the option is a C string that outlives the call, which writes one handle.
        let code = unsafe { (self.create)(&mut handle, 1, [option.as_ptr()].as_ptr()) };
        let made = self.check(handle, "nvJitLinkCreate", code).and_then(|()| {
            let bytes = text.as_bytes_with_nul();
            // SAFETY: the handle is alive; text and name outlive the call, which copies them.
            let code = unsafe { (self.add)(handle, PTX, bytes.as_ptr().cast(), bytes.len(), name.as_ptr()) };
            self.check(handle, "nvJitLinkAddData", code)?;
            // SAFETY: the handle is alive.
            self.check(handle, "nvJitLinkComplete", unsafe { (self.complete)(handle) })?;
            self.bytes(handle, self.cubin_size, self.cubin)
        });
        // SAFETY: the handle was made above, or is null, and is not used again.
        unsafe { (self.destroy)(&mut handle) };
        made
    }

    fn check(&self, handle: Handle, call: &'static str, code: c_int) -> Result<(), AssemblerError> {
        if code == 0 {
            return Ok(());
        }
        let log = if handle.is_null() { Ok(Vec::new()) } else { self.bytes(handle, self.log_size, self.log) };
        let log = String::from_utf8_lossy(&log.unwrap_or_default()).trim_end_matches(['\0', '\n']).to_owned();
        Err(AssemblerError::Refused { call, code, log })
    }

    fn bytes(&self, handle: Handle, size: GetSize, get: GetBytes) -> Result<Vec<u8>, AssemblerError> {
        let refused = |call, code| AssemblerError::Refused { call, code, log: String::new() };
        let mut bytes = 0;
        // SAFETY: the handle is alive; `size` writes one usize.
        match unsafe { size(handle, &mut bytes) } {
            0 => {}
            code => return Err(refused("a size", code)),
        }
        let mut buffer = vec![0u8; bytes];
        // SAFETY: `get` writes exactly as many bytes as `size` said.
        match unsafe { get(handle, buffer.as_mut_ptr().cast()) } {
            0 => Ok(buffer),
            code => Err(refused("an output", code)),
        }
    }
}

// SAFETY: a handle never leaves the call that made it, and the library's functions may be called from any thread.
unsafe impl Sync for Assembler {}
// SAFETY: as above.
unsafe impl Send for Assembler {}

#[cfg(test)]
mod tests {
    use precast_core::plain::{PlainKernel, PlainUnit};
    use precast_core::{Arch, Key, Source, source};
    use precast_fatbins::ModuleEntry;

    use super::*;
    use crate::compile::Task;
    use crate::toolchain::pins::NVJITLINK;

    const TEXT: &str = "\
.version 8.0
.target sm_86
.address_size 64
.visible .entry scale(.param .u64 scale_param_0, .param .f32 scale_param_1) {
    .reg .f32 %f<4>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [scale_param_0];
    ld.param.f32 %f1, [scale_param_1];
    cvta.to.global.u64 %rd2, %rd1;
    ld.global.f32 %f2, [%rd2];
    mul.f32 %f3, %f1, %f2;
    st.global.f32 [%rd2], %f3;
    ret;
}
";

    /// The kernel of a text, for an architecture.
    fn task(text: &'static str, arch: Arch) -> Task {
        let source = Source { path: "k/scale.ptx", text, headers: &[], common: &source::AS_IT_IS };
        let unit =
            PlainUnit { source, entries: &["scale"], instances: &[], interface: "", file: "kernels.rs", command: "" };
        let parameters =
            &[(0, 8), (8, 4)].map(|(offset, bytes)| precast_core::Parameter { name: "x", offset, bytes, align: bytes });
        let parameters = parameters.to_vec().leak();
        let kernel = PlainKernel { name: "scale", symbol: "scale", unit: Box::leak(Box::new(unit)), parameters };
        let pair = Key::of_plain(Box::leak(Box::new(kernel))).built(arch).next().unwrap();
        Task { pair, arch }
    }

    #[test]
    fn ptx_is_assembled_for_rows_that_its_target_allows() {
        let home = std::env::var_os("PRECAST_HOME").map_or_else(|| "../target/precast".into(), PathBuf::from);
        let path = NVJITLINK.installed(&home, NVJITLINK.files[0]);
        if !path.is_file() {
            return eprintln!("skipped: no nvJitLink at {}", path.display());
        }
        let assembler = Assembler::load(&path).unwrap();
        let assemble = |task: &Task| task.assemble(&assembler).map_err(|error| error.to_string());
        for arch in [Arch::Sm86, Arch::Sm89, Arch::Sm90a, Arch::Sm121] {
            let task = task(TEXT, arch);
            let cubin = assemble(&task).unwrap();
            let module = ModuleEntry::compiled(&task.pair, arch, &cubin).unwrap();
            assert_eq!(module.code.unwrap().entry, task.pair.entry(arch));
            assert_eq!(assemble(&task), Ok(cubin), "again the same bytes");
        }
        let said = assemble(&task(TEXT, Arch::Sm80)).unwrap_err();
        assert!(said.contains("scale{}[] for sm_80: k/scale.ptx is PTX for sm_86, which sm_80 cannot take"), "{said}");
        let said = assemble(&task(&*TEXT.replace("mul.f32", "mux.f32").leak(), Arch::Sm89)).unwrap_err();
        assert!(said.contains("k/scale.ptx: ") && said.contains("line 11; error"), "{said}");
        let said = assemble(&task(&*TEXT.replace("8.0", "99.0").leak(), Arch::Sm89)).unwrap_err();
        assert!(said.contains("Unsupported .version 99.0"), "{said}");
    }
}
