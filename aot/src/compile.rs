//! Compiles one (key, variant) for one architecture to a cubin.

use std::borrow::Cow;

use precast_core::{Arch, KeyVariant, Source, ptx};
use precast_fatbins::Digest;
use precast_system::includes;

use crate::assembler::{Assembler, AssemblerError};
use crate::nvrtc::{Nvrtc, NvrtcError, Unit};

/// One compilation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Task {
    /// Kernel to compile.
    pub pair: KeyVariant,
    /// An architecture with machine code.
    pub arch: Arch,
}

/// A kernel that does not compile.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// The source does not compile.
    #[error("{task} does not compile\n{excerpt}{log}")]
    Source {
        /// Key, variant and architecture.
        task: String,
        /// The offending line of the source, if the log names one.
        excerpt: String,
        /// Compiler's log.
        log: String,
    },
    /// A file that is taken as it is includes a header that it was not given.
    #[error(
        "{task} does not compile\n{place}: no header `{header}` beside it or in a named folder: name its folder by \
        .include_dir(\"FOLDER\") in build.rs, add --include FOLDER to `{command}`, and run that"
    )]
    NoHeader {
        /// Key, variant and architecture.
        task: String,
        /// File and line of the `#include`.
        place: String,
        /// Name that it has there.
        header: String,
        /// Writes the declarations of its kernels.
        command: &'static str,
    },
    /// PTX is for a later architecture, or for another one alone.
    #[error("{task}: {file} is PTX for {target}, which {arch} cannot take: name no such row in .archs([..])")]
    Target {
        /// Key, variant and architecture.
        task: String,
        /// The file.
        file: &'static str,
        /// Its target.
        target: String,
        /// The row's.
        arch: &'static str,
    },
    /// There is PTX, and nothing that takes it.
    #[error("{task}: {file} is PTX, and this build has no assembler: Nvrtc::with_assembler adds it")]
    NoAssembler {
        /// Key, variant and architecture.
        task: String,
        /// The file.
        file: &'static str,
    },
    /// PTX is not assembled.
    #[error("{task} is not assembled\n{file}: {error}")]
    Ptx {
        /// Key, variant and architecture.
        task: String,
        /// The file.
        file: &'static str,
        /// Fault of the text.
        error: AssemblerError,
    },
    /// The compiler failed, and not because of the source.
    #[error("{task}: {error}")]
    Nvrtc {
        /// Key, variant and architecture.
        task: String,
        /// Its error.
        error: NvrtcError,
    },
}

impl std::fmt::Display for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} for {}", self.pair, self.arch)
    }
}

impl Task {
    /// Returns the source to compile.
    pub fn source(&self) -> Source {
        self.pair.source()
    }

    /// Digest of every input of the compilation except the compiler.
    pub fn source_digest(&self) -> Digest {
        self.pair.source_digest(self.arch)
    }

    /// Name of the cubin in the cache. `compiler` is [`Nvrtc::identity`].
    pub fn cache_key(&self, compiler: &str) -> Digest {
        Digest::of_parts("precast.cubin", [&self.source_digest().0[..], compiler.as_bytes()])
    }

    /// Returns the identity of what compiles the task.
    pub fn compiler<'n>(&self, nvrtc: &'n Nvrtc) -> &'n str {
        let assembler = nvrtc.assembler.as_ref().filter(|_| self.pair.key.plain().is_some_and(|it| it.unit.is_ptx()));
        assembler.map_or(nvrtc.identity(), Assembler::identity)
    }

    /// Assembles PTX, whose entries get the names of the task's.
    pub(crate) fn assemble(&self, assembler: &Assembler) -> Result<Vec<u8>, CompileError> {
        let (Source { path: file, text, .. }, target) = (self.source(), self.arch.target());
        let own = ptx::target(text).unwrap_or("no target");
        if !ptx::is_taken(own, self.arch) {
            return Err(CompileError::Target { task: self.to_string(), file, target: own.to_owned(), arch: target });
        }
        let text = ptx::renamed(text, &self.pair.defines(self.arch));
        assembler.assemble(file, &text, target).map_err(|error| CompileError::Ptx {
            task: self.to_string(),
            file,
            error,
        })
    }

    /// Compiles the task to a cubin.
    ///
    /// # Errors
    /// [`CompileError`] with the key, the source line and NVRTC's log.
    pub fn compile(&self, nvrtc: &Nvrtc) -> Result<Vec<u8>, CompileError> {
        if let Some(unit) = self.pair.key.plain().map(|plain| plain.unit).filter(|unit| unit.is_ptx()) {
            let missing = || CompileError::NoAssembler { task: self.to_string(), file: unit.source.path };
            return self.assemble(nvrtc.assembler.as_ref().ok_or_else(missing)?);
        }
        let source = self.source();
        let mut options: Vec<String> = self.pair.options().into_iter().map(str::to_owned).collect();
        options.push(format!("--gpu-architecture={}", self.arch.target()));
        let defines = self.pair.defines(self.arch);
        options.extend(defines.into_iter().map(|(name, value)| format!("-D{name}={value}")));
        let plain = self.pair.key.plain();
        let (mut headers, mut text) = (source.includes(), Cow::Borrowed(source.text));
        if plain.is_some() {
            headers.iter_mut().for_each(|(_, text)| *text = includes::spelled_out(text));
            text = includes::spelled_out(&text).into();
        }
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let name = source.file();
        let instances = plain.map_or(&[][..], |plain| plain.unit.instances);
        let unit = Unit { name: &name, text: &text, headers: &headers, options: &options, instances };
        nvrtc.compile(&unit).map_err(|error| match error {
            NvrtcError::Compile { log } => {
                if let (Some(plain), Some((place, header))) = (plain, no_header(&log)) {
                    let (task, command) = (self.to_string(), plain.unit.command);
                    return CompileError::NoHeader { task, place, header, command };
                }
                let excerpt = excerpt(&log, &name, source.text, &headers);
                CompileError::Source { task: self.to_string(), excerpt, log }
            }
            error => CompileError::Nvrtc { task: self.to_string(), error },
        })
    }
}

/// Returns the place of an `#include` whose header the compiler does not find, as `path:line`, and its name.
fn no_header(log: &str) -> Option<(String, String)> {
    let (place, rest) = log.lines().find_map(|line| line.split_once(" open source file \""))?;
    let (file, line) = place.split_once("):")?.0.split_once('(')?;
    Some((format!("{file}:{line}"), rest.split_once('"')?.0.to_owned()))
}

/// Returns the line of the first error as `path:line` and its text. NVRTC writes `path(line): error`.
fn excerpt(log: &str, path: &str, text: &str, headers: &[(&str, &str)]) -> String {
    let place = log.lines().filter(|line| line.contains("): error")).find_map(|line| {
        let (file, rest) = line.split_once('(')?;
        Some((file, rest.split_once(')')?.0.parse::<usize>().ok()?))
    });
    let Some((file, number)) = place else { return String::new() };
    let text = if file == path { Some(text) } else { headers.iter().find(|h| h.0 == file).map(|h| h.1) };
    match text.and_then(|text| text.lines().nth(number.checked_sub(1)?)) {
        Some(line) => format!("  --> {file}:{number}\n{number:>5} | {line}\n"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_is_not_there_is_named_with_its_place() {
        for verb in ["cannot", "could not"] {
            let log = format!("k/a.h(3): catastrophic error: {verb} open source file \"b.h\" (no directories)\n  #inc");
            assert_eq!(no_header(&log), Some(("k/a.h:3".to_owned(), "b.h".to_owned())));
        }
        assert_eq!(no_header("k/a.cu(2): error: expected a \";\""), None);
    }

    #[test]
    fn the_offending_line_is_shown() {
        let log = "a/b.cu(2): error: identifier \"x\" is undefined\n\n1 error detected";
        assert_eq!(excerpt(log, "a/b.cu", "one\ntwo x\n", &[]), "  --> a/b.cu:2\n    2 | two x\n");
        assert_eq!(excerpt("device.cuh(1): error: no", "a/b.cu", "", &[("device.cuh", "h")]).lines().count(), 2);
        assert_eq!(excerpt("nvrtc: error: bad option", "a/b.cu", "", &[]), "");
    }
}
