//! A kernel's source, its headers and macros to a shared object: g++, with instrumentation that calls the machine.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cc::Tool;
use precast_core::{Arch, Digest, KeyVariant, Source};

use crate::branches::{Branches, CALLED_ALONE, TRACE};
use crate::error::{CompileError, OLDEST, io};
use crate::program::Program;
use crate::report::SOURCES;
use crate::translate::{argument, heading, translate};

/// The machine's sources.
const MACHINE: [(&str, &str); 18] = [
    ("block.h", include_str!("../machine/block.h")),
    ("clock.h", include_str!("../machine/clock.h")),
    ("counters.cc", include_str!("../machine/counters.cc")),
    ("counters.h", include_str!("../machine/counters.h")),
    ("coverage.cc", include_str!("../machine/coverage.cc")),
    ("cuda.h", include_str!("../machine/cuda.h")),
    ("fiber.h", include_str!("../machine/fiber.h")),
    ("hopper.cc", include_str!("../machine/hopper.cc")),
    ("intrinsics.cc", include_str!("../machine/intrinsics.cc")),
    ("launch.h", include_str!("../machine/launch.h")),
    ("machine.h", include_str!("../machine/machine.h")),
    ("memory.h", include_str!("../machine/memory.h")),
    ("plain.h", include_str!("../machine/plain.h")),
    ("wgmma.h", include_str!("../machine/wgmma.h")),
    ("ptx.h", include_str!("../machine/ptx.h")),
    ("schedule.cc", include_str!("../machine/schedule.cc")),
    ("tensor.cc", include_str!("../machine/tensor.cc")),
    ("warpgroup.cc", include_str!("../machine/warpgroup.cc")),
];

/// Options of both.
const COMMON: &[&str] =
    &["-std=c++20", "-gdwarf-4", "-fPIC", "-fno-strict-aliasing", "-ffp-contract=off", "-U_FORTIFY_SOURCE"];

/// Options of kernels. Accesses stay the ones that are written: nothing is vectorized or copied in bulk. Shared
/// variables of two programs are two, whatever their names. Automatic variables begin with `machine.h`'s `UNWRITTEN`,
/// and no two of them share a place: the machine knows registers by it.
const KERNEL: &[&str] = &[
    "-O1",
    "-w",
    "-ftrivial-auto-var-init=pattern",
    "-fstack-reuse=none",
    "-fsanitize=thread",
    "-fsanitize=alignment",
    "-fno-tree-vectorize",
    "-fno-tree-loop-distribute-patterns",
    "-fno-thread-jumps",
    "-fno-exceptions",
    "-fno-gnu-unique",
    "-fvisibility=hidden",
];

/// Options of the machine. Its own functions call each other directly, without a table that could replace them.
const SHARED: &[&str] = &[
    "-O3",
    "-fno-semantic-interposition",
    "-fvisibility-inlines-hidden",
    "-ftls-model=initial-exec",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-shared",
];

/// Libraries that this process has linked.
static LINKED: AtomicUsize = AtomicUsize::new(0);

/// Names every kernel's function.
const ENTRY: &str = "simt_kernel";

/// The machine, compiled, and directories for kernels.
pub struct Simt {
    compiler: Tool,
    directory: PathBuf,
    machine: PathBuf,
    /// Holds objects under the digest of what they are compiled from.
    objects: PathBuf,
    /// Identifies the compiler, its options and what all kernels include.
    basis: Digest,
    next: Mutex<usize>,
    /// Lines that samples execute, where kernels are compiled to say so.
    pub(crate) branches: Option<Branches>,
    /// Held as long as nobody else may use the directory, if it was asked for.
    pub(crate) lock: Option<File>,
}

fn write(path: &Path, text: &str) -> Result<(), CompileError> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(io(parent))?;
    }
    std::fs::write(path, text).map_err(io(path))
}

/// g++, as the `cc` crate finds it, and its version.
fn gxx(directory: &Path) -> Result<(Tool, String), CompileError> {
    let target = env!("SIMT_TARGET");
    let mut build = cc::Build::new();
    build.cpp(true).compiler("g++").no_default_flags(true).target(target).host(target).opt_level(0).out_dir(directory);
    build.cargo_metadata(false).cargo_warnings(false);
    let compiler = build.try_get_compiler().map_err(|_| CompileError::NoCompiler)?;
    let output = compiler.to_command().arg("-dumpfullversion").output().map_err(|_| CompileError::NoCompiler)?;
    let version = String::from_utf8_lossy(&output.stdout).into_owned();
    new_enough(&version).map(|()| (compiler, version))
}

/// Refuses a g++ whose version, as it prints it, is too old to know all options.
fn new_enough(version: &str) -> Result<(), CompileError> {
    let major = version.trim().split('.').next().and_then(|major| major.parse::<u32>().ok());
    match major {
        Some(major) if major >= OLDEST => Ok(()),
        _ => Err(CompileError::TooOld(version.trim().to_owned())),
    }
}

/// Runs the compiler in a directory.
fn compile(compiler: &Tool, what: &str, directory: &Path, arguments: &[&str]) -> Result<(), CompileError> {
    let mut command = compiler.to_command();
    let output = command.current_dir(directory).args(COMMON).args(arguments).output();
    match output {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(CompileError::NoCompiler),
        Err(error) => Err(CompileError::Io { what: "g++".to_owned(), error }),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let log = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(CompileError::Refused { what: what.to_owned(), log })
        }
    }
}

impl Simt {
    /// Compiles the machine, in a directory that no other process uses. Kernels are left there for a debugger. Their
    /// objects and the machine are kept in `objects`, on the same file system, for every process that compiles the
    /// same.
    ///
    /// # Errors
    /// [`CompileError`], above all where there is no g++.
    pub fn new(directory: &Path, objects: &Path) -> Result<Self, CompileError> {
        std::fs::create_dir_all(objects).map_err(io(objects))?;
        let objects = objects.canonicalize().map_err(io(objects))?;
        for (name, text) in MACHINE {
            write(&directory.join(name), text)?;
        }
        let directory = directory.canonicalize().map_err(io(directory))?;
        let (compiler, version) = gxx(&directory)?;
        let texts = MACHINE.iter().flat_map(|(name, text)| [*name, *text]);
        let options = [COMMON, KERNEL, SHARED].concat();
        let basis = Digest::of_parts("simt.basis", texts.chain(options).chain([&*version]).map(str::as_bytes));
        // Whoever compiles it puts it there whole, as kernels are.
        let machine = objects.join(format!("machine-{basis}.so"));
        if !machine.exists() {
            // One unit: each of the sources would compile the same headers.
            let sources = MACHINE.iter().map(|(name, _)| *name).filter(|name| name.ends_with(".cc"));
            let unit: String = sources.map(|name| format!("#include \"{name}\"\n")).collect();
            write(&directory.join("machine.cc"), &unit)?;
            compile(&compiler, "the machine", &directory, &[SHARED, &["machine.cc", "-o", "machine.so"]].concat())?;
            std::fs::rename(directory.join("machine.so"), &machine).map_err(io(&machine))?;
        }
        Ok(Self { compiler, directory, machine, objects, basis, next: Mutex::new(0), branches: None, lock: None })
    }

    /// Compiles and loads a source of a key's build for an architecture. A plain file stays as it is: its kernel is
    /// called by its own name.
    ///
    /// # Errors
    /// Those of [`Self::compile`], and [`CompileError::Plain`].
    pub fn compile_pair(&self, source: &Source, pair: &KeyVariant, arch: Arch) -> Result<Program, CompileError> {
        let Some(plain) = pair.key.plain() else { return self.compile(source, &pair.defines(arch), arch) };
        let refused = |why| Err(CompileError::Plain { kernel: plain.name, file: plain.unit.source.path, why });
        if plain.unit.is_ptx() {
            return refused("it is PTX; the self-test compares it on a GPU");
        }
        if plain.symbol.starts_with("_ZN") {
            return refused("it is in a namespace, whose name is not known; the self-test compares it on a GPU");
        }
        // NVRTC has them.
        let defines = ["-D__CUDACC__", "-D__CUDACC_RTC__"].map(str::to_owned).into();
        self.compile_as(source, defines, plain.name, arch)
    }

    /// Compiles and loads a kernel for an architecture.
    ///
    /// # Errors
    /// [`CompileError`] where it does not compile, or declares too much shared memory.
    pub fn compile(&self, source: &Source, defines: &[(String, String)], arch: Arch) -> Result<Program, CompileError> {
        // An entry symbol names its architecture: without it several have one object.
        let defines = defines.iter().filter(|(name, _)| name != "ENTRY");
        let defines = defines.map(|(name, value)| format!("-D{name}={value}"));
        self.compile_as(source, defines.chain([format!("-DENTRY={ENTRY}")]).collect(), ENTRY, arch)
    }

    /// Writes a source and its headers into a directory of their own.
    fn lay_out(&self, source: &Source, arch: Arch) -> Result<PathBuf, CompileError> {
        let number = {
            let mut next = self.next.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *next += 1;
            *next
        };
        let directory = self.directory.join(format!("{arch}-{number}"));
        // Libraries of a process before this one.
        match std::fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(io(&directory)(error)),
            _ => {}
        }
        // Reports name what is the program's own as it lies in its package.
        let own = directory.join(source.common.root());
        for (name, text) in source.includes() {
            let is_common = source.common.all().any(|(common, _)| *common == name);
            let folder = if is_common { &directory } else { &own };
            write(&folder.join(name), &text)?;
        }
        write(&directory.join(source.file()), source.text)?;
        Ok(directory)
    }

    /// Compiles and loads a source whose entry has this name.
    fn compile_as(
        &self,
        source: &Source,
        defines: Vec<String>,
        entry: &str,
        arch: Arch,
    ) -> Result<Program, CompileError> {
        let (what, root) = (&*source.file(), source.common.root());
        let directory = self.lay_out(source, arch)?;
        let (major, minor) = arch.compute_capability().unwrap_or_default();
        let arch = format!("-D__CUDA_ARCH__={}", major * 100 + minor * 10);
        let defines: Vec<&str> = defines.iter().chain([&arch]).map(String::as_str).collect();
        // Instructions are put together by macros: they are read once those are expanded. What the standard header has
        // is `cuda.h`'s to include. Text that names no directory is the same in each.
        write(&directory.join("stdint.h"), "")?;
        let expanded = directory.join("expanded.cc");
        write(&directory.join("source.cc"), &format!("#include \"{what}\"\n"))?;
        compile(
            &self.compiler,
            what,
            &directory,
            &[
                &defines[..],
                &[&*format!("-I./{root}"), "-I.", "-fno-working-directory", "-E", "source.cc", "-o", "expanded.cc"],
            ]
            .concat(),
        )?;
        let text = std::fs::read_to_string(&expanded).map_err(io(&expanded))?;
        let heading = heading(&text, entry);
        let cluster = argument(heading, "__cluster_dims__", 0).unwrap_or("1");
        let resident = argument(heading, "__launch_bounds__", 1).unwrap_or("1");
        let unit = format!(
            "{}\n# 1 \"kernel.cc\"\n\
             #pragma GCC visibility push(default)\n\
             extern \"C\" {{\n\
             extern const uint32_t simt_cluster = {cluster}, simt_resident_blocks = {resident};\n\
             void simt_enter(const void* params) {{ simt::enter({entry}, params); }}\n\
             }}\n",
            translate(&text)
        );
        write(&directory.join("kernel.cc"), &unit)?;

        let (trace, link) = match self.branches {
            Some(_) => (TRACE, &[CALLED_ALONE][..]),
            None => (&[][..], &[][..]),
        };
        let keywords = if entry == ENTRY { "cuda.h" } else { "plain.h" };
        let traced = trace.concat();
        let parts = [&self.basis.0[..], keywords.as_bytes(), unit.as_bytes(), traced.as_bytes()];
        let object = self.objects.join(format!("{}.o", Digest::of_parts("simt.object", parts)));
        if !object.exists() {
            let sources = format!("-fdebug-prefix-map={}={SOURCES}", directory.display());
            let keywords = format!("../{keywords}");
            let unit = [&*sources, "-include", &keywords, "-c", "kernel.cc", "-o", "kernel.o"];
            compile(&self.compiler, what, &directory, &[KERNEL, trace, &unit].concat())?;
            // Whole or not at all, whoever else puts the same there.
            std::fs::rename(directory.join("kernel.o"), &object).map_err(io(&object))?;
        }
        let [linked, machine] = [&object, &self.machine].map(|path| path.to_string_lossy());
        // The loader takes one library for another of its path that is still loaded.
        let loaded = format!("kernel-{}.so", LINKED.fetch_add(1, Ordering::Relaxed));
        compile(&self.compiler, what, &directory, &[&["-shared", &linked, &machine, "-o", &loaded], link].concat())?;
        Program::load(what, directory.join(loaded), self.branches.as_ref().map(|_| &*object))
    }
}

#[cfg(test)]
mod tests {
    use precast_core::Geometry;

    use super::*;
    use crate::launch::Operand;

    /// Programs that say which lines are executed stay loaded.
    #[test]
    fn a_later_program_of_a_directory_is_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let text = "extern \"C\" __global__ void ENTRY(float* y) { y[0] = KEY_N; }";
        let source = Source { path: "one.cu", text, headers: &[], common: &precast_core::source::COMMON };
        for n in ["1", "2"] {
            let mut simt = Simt::new(&dir.path().join("0"), &dir.path().join("objects")).unwrap();
            simt.branches = Some(Branches::default());
            let program = simt.compile(&source, &[("KEY_N".to_owned(), n.to_owned())], Arch::Sm89).unwrap();
            let mut y = [0.0f32];
            let params = (y.as_mut_ptr() as u64).to_le_bytes();
            let operand =
                Operand { name: "y", bytes: bytemuck::cast_slice_mut(&mut y), writable: true, written: false };
            program.launch(&Geometry::linear(1, 1), &params, &mut [operand], 0).unwrap();
            assert_eq!(y[0].to_string(), n);
        }
    }

    #[test]
    fn an_old_compiler_is_named_with_its_remedy() {
        for version in ["12\n", "12.2.0", "13\n"] {
            assert!(new_enough(version).is_ok(), "{version}");
        }
        let errors = ["11\n", "9.4.0"].map(|version| new_enough(version).unwrap_err().to_string());
        insta::assert_snapshot!(errors.join("\n"));
    }

    #[test]
    fn what_is_compiled_from_one_text_is_one_object() {
        let dir = tempfile::tempdir().unwrap();
        let (directory, objects) = (dir.path().to_owned(), dir.path().join("objects"));
        std::fs::create_dir(&objects).unwrap();
        for (name, text) in MACHINE {
            write(&directory.join(name), text).unwrap();
        }
        let compiler = gxx(&directory).unwrap().0;
        // Nothing is linked: the object is all that is asked for.
        let (machine, basis) = (directory.join("none.so"), Digest::of(b""));
        let simt = Simt {
            compiler,
            directory,
            machine,
            objects: objects.clone(),
            basis,
            next: Mutex::new(0),
            branches: None,
            lock: None,
        };
        let text = "extern \"C\" __global__ void ENTRY(const int p) { (void)(p + KEY_N); }";
        let source = Source { path: "one.cu", text, headers: &[], common: &precast_core::source::COMMON };
        let defines = |n: &str, entry: &str| {
            [("KEY_N", n), ("ENTRY", entry)].map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        let count = || std::fs::read_dir(&objects).unwrap().count();
        for (n, entry, arch, expected) in [
            ("1", "a", Arch::Sm89, 1),
            ("1", "a", Arch::Sm89, 1),
            ("1", "b", Arch::Sm121, 1),
            ("2", "a", Arch::Sm89, 2),
        ] {
            assert!(simt.compile(&source, &defines(n, entry), arch).is_err(), "there is no machine to link with");
            assert_eq!(count(), expected, "{n} {entry} {arch}");
        }
    }
}
