//! A kernel's source, its headers and macros to a shared object: g++, with instrumentation that calls the machine.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use cc::Tool;
use libloading::Library;
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use precast_kernels::{Arch, Geometry, Source};

use crate::count::Count;
use crate::launch::{self, Image, Operand, RawCount, Region, Run, RunCounted};
use crate::report::{Report, lines};
use crate::translate::{argument, translate};

/// The machine's sources.
const MACHINE: [(&str, &str); 16] = [
    ("block.h", include_str!("../machine/block.h")),
    ("clock.h", include_str!("../machine/clock.h")),
    ("counters.cc", include_str!("../machine/counters.cc")),
    ("counters.h", include_str!("../machine/counters.h")),
    ("cuda.h", include_str!("../machine/cuda.h")),
    ("fiber.h", include_str!("../machine/fiber.h")),
    ("hopper.cc", include_str!("../machine/hopper.cc")),
    ("intrinsics.cc", include_str!("../machine/intrinsics.cc")),
    ("launch.h", include_str!("../machine/launch.h")),
    ("machine.h", include_str!("../machine/machine.h")),
    ("memory.h", include_str!("../machine/memory.h")),
    ("products.h", include_str!("../machine/products.h")),
    ("ptx.h", include_str!("../machine/ptx.h")),
    ("schedule.cc", include_str!("../machine/schedule.cc")),
    ("tensor.cc", include_str!("../machine/tensor.cc")),
    ("warpgroup.cc", include_str!("../machine/warpgroup.cc")),
];

/// What the machine's functions are called whose callers are ordered by clocks.
const BY_CLOCKS: &[u8] = b"simt_hopper_";

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

/// The first g++ with `-ftrivial-auto-var-init`.
const OLDEST: u32 = 12;

/// A kernel that cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// There is no compiler.
    #[error("g++ is not installed: it compiles kernels for the host (Debian: apt-get install g++)")]
    NoCompiler,
    /// The g++ that is installed is older than 12: it lacks `-ftrivial-auto-var-init`.
    #[error(
        "g++ {0} is too old to compile kernels for the host, which takes g++ {OLDEST} (Debian 12: apt-get install g++)"
    )]
    TooOld(String),
    /// The compiler refuses.
    #[error("{what} does not compile for the host\n{log}")]
    Refused {
        /// What was compiled.
        what: String,
        /// What the compiler says.
        log: String,
    },
    /// Files cannot be written or read.
    #[error("{what}: {error}")]
    Io {
        /// What was done.
        what: String,
        /// Why it failed.
        error: std::io::Error,
    },
    /// What was compiled cannot be loaded.
    #[error("{what} cannot be loaded: {why}")]
    Load {
        /// What was compiled.
        what: String,
        why: String,
    },
    /// More static shared memory than an architecture allows.
    #[error("{what}: {bytes} bytes of static shared memory; {} are allowed", STATIC_SHARED_BYTES)]
    StaticShared {
        /// What was compiled.
        what: String,
        /// Bytes of all static variables.
        bytes: u64,
    },
}

/// Static shared memory a block may have (PTX ISA, "State Spaces").
const STATIC_SHARED_BYTES: u64 = 48 << 10;

/// The machine, compiled, and a directory for kernels.
pub struct Simt {
    compiler: Tool,
    directory: PathBuf,
    machine: PathBuf,
    next: Mutex<usize>,
}

/// A kernel in memory.
pub struct Program {
    image: Image,
    /// Names of static shared variables.
    shared_names: Vec<String>,
    /// Static shared memory in bytes.
    static_shared_bytes: u64,
    /// The shared object, and where it is loaded.
    file: PathBuf,
    base: u64,
    /// What launches cost, if they are counted. Held by each: static shared memory is the program's own.
    counts: Mutex<Option<Vec<RawCount>>>,
    _library: Library,
}

fn io(what: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> CompileError {
    move |error| CompileError::Io { what: what.as_ref().display().to_string(), error }
}

fn write(path: &Path, text: &str) -> Result<(), CompileError> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(io(parent))?;
    }
    std::fs::write(path, text).map_err(io(path))
}

/// g++, as the `cc` crate finds it.
fn gxx(directory: &Path) -> Result<Tool, CompileError> {
    let target = env!("SIMT_TARGET");
    let mut build = cc::Build::new();
    build.cpp(true).compiler("g++").no_default_flags(true).target(target).host(target).opt_level(0).out_dir(directory);
    build.cargo_metadata(false).cargo_warnings(false);
    let compiler = build.try_get_compiler().map_err(|_| CompileError::NoCompiler)?;
    let output = compiler.to_command().arg("-dumpversion").output().map_err(|_| CompileError::NoCompiler)?;
    new_enough(&String::from_utf8_lossy(&output.stdout)).map(|()| compiler)
}

/// Whether g++ of a version, as it says it itself, knows all options.
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
    /// Compiles the machine into a directory that no other process uses. Kernels are left there for a debugger.
    ///
    /// # Errors
    /// [`CompileError`], above all where there is no g++.
    pub fn new(directory: &Path) -> Result<Self, CompileError> {
        for (name, text) in MACHINE {
            write(&directory.join(name), text)?;
        }
        let directory = directory.canonicalize().map_err(io(directory))?;
        let compiler = gxx(&directory)?;
        let machine = directory.join("libsimt.so");
        // One unit: each of the sources would compile the same headers.
        let sources = MACHINE.iter().map(|(name, _)| *name).filter(|name| name.ends_with(".cc"));
        let unit: String = sources.map(|name| format!("#include \"{name}\"\n")).collect();
        write(&directory.join("machine.cc"), &unit)?;
        let arguments = [
            "-O3",
            "-fno-semantic-interposition",
            "-ftls-model=initial-exec",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-shared",
            "machine.cc",
            "-o",
            "libsimt.so",
        ];
        compile(&compiler, "the machine", &directory, &arguments)?;
        Ok(Self { compiler, directory, machine, next: Mutex::new(0) })
    }

    /// Compiles and loads a kernel for an architecture.
    ///
    /// # Errors
    /// [`CompileError`] where it does not compile, or declares too much shared memory.
    pub fn compile(&self, source: &Source, defines: &[(String, String)], arch: Arch) -> Result<Program, CompileError> {
        let what = source.path;
        let number = {
            let mut next = self.next.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *next += 1;
            *next
        };
        let directory = self.directory.join(format!("{arch}-{number}"));
        let headers = source.includes();
        let headers = headers.iter().map(|(name, text)| (*name, text.as_str()));
        for (name, text) in headers.chain([(source.path, source.text)]) {
            write(&directory.join(name), text)?;
        }
        let defines = defines.iter().map(|(name, value)| format!("-D{name}={value}"));
        let (major, minor) = arch.compute_capability().unwrap_or_default();
        let defines: Vec<String> = defines.chain([format!("-D__CUDA_ARCH__={}", major * 100 + minor * 10)]).collect();
        let defines: Vec<&str> = defines.iter().map(String::as_str).collect();
        // Instructions are put together by macros: they are read once those are expanded. What the standard header has is
        // `cuda.h`'s to include.
        write(&directory.join("stdint.h"), "")?;
        let expanded = directory.join("expanded.cc");
        write(&directory.join("source.cc"), &format!("#include \"{}\"\n", source.path))?;
        compile(
            &self.compiler,
            what,
            &directory,
            &[&defines[..], &["-I.", "-E", "source.cc", "-o", "expanded.cc"]].concat(),
        )?;
        let text = std::fs::read_to_string(&expanded).map_err(io(&expanded))?;
        let cluster = argument(&text, "__cluster_dims__", 0).unwrap_or("1");
        let resident = argument(&text, "__launch_bounds__", 1).unwrap_or("1");
        let unit = format!(
            "{}\n# 1 \"kernel.cc\"\n\
             #pragma GCC visibility push(default)\n\
             extern \"C\" {{\n\
             extern const uint32_t simt_cluster = {cluster}, simt_resident_blocks = {resident};\n\
             void simt_enter(const void* params) {{ simt::enter(ENTRY, params); }}\n\
             }}\n",
            translate(&text)
        );
        write(&directory.join("kernel.cc"), &unit)?;

        let mut arguments = [KERNEL, &defines].concat();
        arguments.extend(["-include", "../cuda.h", "-c", "kernel.cc", "-o", "kernel.o"]);
        compile(&self.compiler, what, &directory, &arguments)?;
        let machine = self.machine.to_string_lossy();
        compile(&self.compiler, what, &directory, &["-shared", "kernel.o", &machine, "-o", "kernel.so"])?;
        Program::load(what, directory.join("kernel.so"))
    }
}

impl Program {
    fn load(what: &str, file: PathBuf) -> Result<Self, CompileError> {
        let failed = |why: String| CompileError::Load { what: what.to_owned(), why };
        let bytes = std::fs::read(&file).map_err(io(&file))?;
        let parsed = object::File::parse(&*bytes).map_err(|error| failed(error.to_string()))?;
        let enter = parsed.dynamic_symbols().find(|symbol| symbol.name() == Ok("simt_enter"));
        let enter = enter.ok_or_else(|| failed("it has no simt_enter".to_owned()))?.address();

        // SAFETY: the library's initializers call `__tsan_init`, which does nothing.
        let library = unsafe { Library::new(&file) }.map_err(|error| failed(error.to_string()))?;
        let symbol = |name: &str| {
            // SAFETY: only the address is taken.
            let symbol = unsafe { library.get::<*const ()>(name) };
            symbol.map(|symbol| *symbol as u64).map_err(|error| failed(error.to_string()))
        };
        let entry = symbol("simt_enter")?;
        // SAFETY: intrinsics.cc defines them with these signatures.
        let run = *unsafe { library.get::<Run>("simt_launch") }.map_err(|error| failed(error.to_string()))?;
        // SAFETY: the same.
        let run_counted =
            *unsafe { library.get::<RunCounted>("simt_launch_counted") }.map_err(|error| failed(error.to_string()))?;
        let base = entry - enter;

        let bss = parsed.section_by_name(".bss").map(|section| section.index());
        let mut shared: Vec<(String, Region)> = parsed
            .symbols()
            .filter(|symbol| symbol.kind() == SymbolKind::Data && symbol.section_index() == bss && symbol.size() > 1)
            .map(|symbol| {
                let region = Region { base: base + symbol.address(), bytes: symbol.size(), writable: 1, written: 0 };
                (demangled(symbol.name().unwrap_or_default()), region)
            })
            .collect();
        shared.sort_by_key(|(_, region)| region.base);
        let static_shared_bytes = shared.iter().map(|(_, region)| region.bytes).sum();
        if static_shared_bytes > STATIC_SHARED_BYTES {
            return Err(CompileError::StaticShared { what: what.to_owned(), bytes: static_shared_bytes });
        }
        let constants =
            parsed.section_by_name(".rodata").map_or((0, 0), |section| (base + section.address(), section.size()));
        let constants = Region { base: constants.0, bytes: constants.1, writable: 0, written: 1 };
        let (shared_names, shared) = shared.into_iter().unzip();
        let number = |name: &str| {
            // SAFETY: `Simt::compile` defines them so.
            let number = unsafe { library.get::<*const u32>(name) };
            // SAFETY: the same.
            number.map(|number| unsafe { **number }).map_err(|error| failed(error.to_string()))
        };
        let image = Image {
            run,
            run_counted,
            entry,
            constants,
            shared,
            cluster: number("simt_cluster")?,
            resident_blocks: number("simt_resident_blocks")?,
            by_clocks: parsed.dynamic_symbols().any(|symbol| {
                symbol.is_undefined() && symbol.name_bytes().is_ok_and(|name| name.starts_with(BY_CLOCKS))
            }),
        };
        Ok(Self { image, shared_names, static_shared_bytes, file, base, counts: Mutex::new(None), _library: library })
    }

    /// Static shared memory in bytes.
    pub fn static_shared_bytes(&self) -> u64 {
        self.static_shared_bytes
    }

    /// Executes a launch whose parameter block holds the operands' addresses.
    ///
    /// # Errors
    /// A [`Report`] of the first thing that is wrong; the launch ends there.
    pub fn launch(
        &self,
        geometry: &Geometry,
        params: &[u8],
        operands: &mut [Operand<'_>],
        seed: u64,
    ) -> Result<(), Box<Report>> {
        let mut counts = self.counts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let raw = launch::run(&self.image, geometry, params, operands, seed, counts.as_mut());
        if raw.kind == 0 {
            return Ok(());
        }
        let names = operands.iter().map(|operand| (operand.name, operand.bytes.len() as u64)).collect::<Vec<_>>();
        let sizes = self.shared_names.iter().zip(&self.image.shared);
        let shared = sizes.map(|(name, region)| (name.as_str(), region.bytes)).collect::<Vec<_>>();
        Err(Box::new(Report::new(&raw, &names, &shared, geometry, &self.file, self.base)))
    }
}

impl Program {
    /// What launches have cost since the last call. The first one makes that they are counted.
    pub(crate) fn counts(&self) -> Vec<Count> {
        let mut counts = self.counts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let since = counts.replace(Vec::new()).unwrap_or_default();
        since.iter().map(|count| Count::new(count, self.base)).collect()
    }

    /// The source line of an instruction.
    pub(crate) fn line(&self, count: &Count) -> String {
        lines(count.address, &self.file)
    }
}

/// A variable's own name, without the function and namespaces around it; the symbol itself where it is not mangled.
fn demangled(symbol: &str) -> String {
    let whole = cpp_demangle::Symbol::new(symbol).ok().and_then(|symbol| symbol.demangle().ok());
    whole.as_deref().and_then(|name| name.rsplit("::").next()).unwrap_or(symbol).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_variable_is_called_by_its_own_name() {
        // `static` in a function template, in an anonymous namespace, and with a clone's suffix.
        for (symbol, name) in [
            ("_ZZ4loadILi64EEvPKfE4tile", "tile"),
            ("_ZN12_GLOBAL__N_13sumE", "sum"),
            ("_ZZN4simt6kernelEvE6shared", "shared"),
            ("tile", "tile"),
        ] {
            assert_eq!(demangled(symbol), name);
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
}
