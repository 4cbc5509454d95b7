//! Kernels that are taken as they are: what was written of them is of the files as they stand.

use std::path::{Path, PathBuf};

use precast_core::plain::interface;
use precast_core::{Digest, Kernels, PlainUnit};
use precast_system::generated::{self, Stale};
use precast_system::includes::{self, IncludeError};

/// Declarations that are not of their CUDA files, or files that must not be read.
#[derive(Debug, thiserror::Error)]
pub enum PlainError {
    /// A header lies elsewhere, or a file cannot be read.
    #[error(transparent)]
    Include(#[from] IncludeError),
    /// The file includes more headers than those that were found when it was declared.
    #[error("{file} does not have the headers that {source_file} includes, {headers}: `{command}` writes it again")]
    Headers {
        /// The generated file.
        file: &'static str,
        /// The CUDA file.
        source_file: &'static str,
        /// Names of the headers that are new.
        headers: String,
        /// Writes the generated file.
        command: &'static str,
    },
    /// A header that was found when it was declared is not found.
    #[error(
        "{source_file} includes {headers}, found neither beside it nor in a folder that build.rs names by \
        .include_dir(\"FOLDER\"); if it is included no longer, `{command}` writes {file} again"
    )]
    Gone {
        /// The generated file.
        file: &'static str,
        /// The CUDA file.
        source_file: &'static str,
        /// Names of the headers.
        headers: String,
        /// Writes the generated file.
        command: &'static str,
    },
    /// Declarations were edited since.
    #[error("{file} is not of the declarations in {source_file} as they are: `{command}` writes it again")]
    Declarations {
        /// The generated file.
        file: &'static str,
        /// The CUDA file.
        source_file: &'static str,
        /// Writes the generated file.
        command: &'static str,
    },
    /// The generated file is not as it was written.
    #[error(transparent)]
    Generated(#[from] Stale),
}

/// Returns the files of the kernels that are taken as they are, each once.
fn units(kernels: &Kernels) -> Vec<&'static PlainUnit> {
    let mut units: Vec<&PlainUnit> = Vec::new();
    for kernel in kernels.plain {
        if !units.iter().any(|unit| std::ptr::eq(*unit, kernel.unit)) {
            units.push(kernel.unit);
        }
    }
    units
}

/// Compares what was written of CUDA files of a package with the files. `read` receives each that a compilation may
/// read. Headers are those beside a file and in `folders`.
///
/// # Errors
/// [`PlainError`] with the command that writes it again.
pub(crate) fn check(
    kernels: &Kernels,
    package: &Path,
    folders: &[PathBuf],
    read: &dyn Fn(&Path),
) -> Result<(), PlainError> {
    let mut interfaces: Vec<(&PlainUnit, Digest)> = Vec::new();
    for unit in units(kernels) {
        let PlainUnit { source, file, command, .. } = unit;
        let path = package.join(source.path);
        let found = includes::included(&path, &folders.iter().map(|folder| package.join(folder)).collect::<Vec<_>>())?;
        read(&path);
        found.iter().for_each(|header| read(&header.path));
        let names: Vec<&str> = found.iter().map(|header| &*header.name).collect();
        let known: Vec<&str> = source.headers.iter().map(|(name, _)| *name).collect();
        let lacks = |all: &[&str], some: &[&str]| {
            let names = all.iter().filter(|name| !some.contains(name)).map(|name| format!("`{name}`"));
            Some(names.collect::<Vec<_>>().join(", ")).filter(|names| !names.is_empty())
        };
        let source_file = source.path;
        if let Some(headers) = lacks(&known, &names) {
            return Err(PlainError::Gone { file, source_file, headers, command });
        }
        if let Some(headers) = lacks(&names, &known) {
            return Err(PlainError::Headers { file, source_file, headers, command });
        }
        let digest = interface([(source.path, source.text)].into_iter().chain(source.headers.iter().copied()));
        if digest.to_string() != unit.interface {
            return Err(PlainError::Declarations { file, source_file, command });
        }
        interfaces.push((unit, digest));
    }
    // A generated file has the digests of all of its sources in its head.
    while let Some((PlainUnit { file, .. }, _)) = interfaces.first() {
        let (own, others): (Vec<_>, Vec<_>) = interfaces.into_iter().partition(|(unit, _)| unit.file == *file);
        let texts: Vec<(&str, String)> =
            own.iter().map(|(unit, digest)| (unit.source.path, digest.to_string())).collect();
        let of = interface(texts.iter().map(|(path, digest)| (*path, digest.as_str())));
        generated::check_of(&of, &package.join(file))?;
        interfaces = others;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use precast_core::plain::PlainKernel;
    use precast_core::{Source, source};

    use super::*;

    const HEADER: &str = "#define TWO 2";
    const TEXT: &str = "#include \"b.h\"\nextern \"C\" __global__ void scale(float* x) { *x *= TWO; }";
    const COMMAND: &str = "precast-aot abi k/a.cu --include third --out kernels.rs";

    /// Writes what was made of `TEXT` and `HEADER`, and a file and headers as they stand. Compares them.
    fn check_of(text: &str, headers: &[(&str, &str)], rust: &str) -> Result<usize, String> {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("k/a.cu", text);
        headers.iter().for_each(|(name, text)| put(name, text));
        // What a build script includes is the files as they stand.
        let of = |name: &str| headers.iter().find(|(path, _)| path.ends_with(name)).map_or("", |(_, text)| text);
        let given = [("b.h", &*of("b.h").to_owned().leak())];
        let declared = interface([("k/a.cu", TEXT), ("b.h", HEADER)]).to_string();
        let head = interface([("k/a.cu", &*declared)]);
        put("kernels.rs", &(generated::head("Of the test.", COMMAND, &head, "fn scale() {}") + rust));
        let unit = PlainUnit {
            source: Source {
                path: "k/a.cu",
                text: text.to_owned().leak(),
                headers: given.to_vec().leak(),
                common: &source::AS_IT_IS,
            },
            entries: &["scale"],
            interface: declared.leak(),
            file: "kernels.rs",
            command: COMMAND,
        };
        let kernel = PlainKernel { name: "scale", unit: Box::leak(Box::new(unit)), parameters: &[] };
        let kernels = Kernels::new("of the test", &[], vec![&*Box::leak(Box::new(kernel))].leak());
        let read = std::cell::Cell::new(0);
        check(&kernels, dir.path(), &["third".into()], &|_| read.set(read.get() + 1))
            .map_err(|error| error.to_string())?;
        Ok(read.get())
    }

    #[test]
    fn what_stands_in_a_kernel_can_be_edited() {
        assert_eq!(check_of(TEXT, &[("third/b.h", HEADER)], ""), Ok(2));
        assert_eq!(check_of(&TEXT.replace("*=", "+="), &[("k/b.h", HEADER)], ""), Ok(2));
    }

    #[test]
    fn a_declaration_that_was_edited_is_refused_with_the_command() {
        for (text, header) in [(&*TEXT.replace("float*", "double*"), HEADER), (TEXT, "#define TWO 3")] {
            let said = check_of(text, &[("third/b.h", header)], "").unwrap_err();
            let expected = "kernels.rs is not of the declarations in k/a.cu as they are: `precast-aot abi k/a.cu";
            assert!(said.starts_with(expected), "{said}");
        }
        let said = check_of(TEXT, &[("third/b.h", HEADER)], "// more").unwrap_err();
        assert!(said.contains("kernels.rs was edited by hand"), "{said}");
    }

    #[test]
    fn headers_that_are_new_gone_or_elsewhere_are_named() {
        let said = check_of(&(TEXT.to_owned() + "\n#include \"c.h\""), &[("k/b.h", HEADER), ("k/c.h", "")], "");
        let expected = "kernels.rs does not have the headers that k/a.cu includes, `c.h`: `precast-aot abi";
        assert!(said.as_ref().is_err_and(|said| said.starts_with(expected)), "{said:?}");
        let said = check_of(TEXT, &[("other/b.h", HEADER)], "").unwrap_err();
        assert!(said.starts_with("k/a.cu includes `b.h`, found neither beside it nor in a folder"), "{said}");
        let said = check_of(&TEXT.replace("b.h", "../other/b.h"), &[("other/b.h", HEADER)], "").unwrap_err();
        assert!(said.contains("a.cu:1: `../other/b.h` is "), "{said}");
    }
}
