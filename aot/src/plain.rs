//! Kernels that are taken as they are: what was written of them is of the files as they stand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use precast_core::plain::interface;
use precast_core::{Kernels, PlainUnit, ReferenceError};
use precast_system::generated::{self, Stale};
use precast_system::includes::{self, IncludeError};

/// Declarations that are not of their CUDA files, or files that must not be read.
#[derive(Debug, thiserror::Error)]
pub enum PlainError {
    /// A header lies elsewhere, or a file cannot be read.
    #[error(transparent)]
    Include(#[from] IncludeError),
    /// The file includes headers that were not found when it was declared.
    #[error("{} does not have {headers} of {}: `{}` writes it again", unit.file, unit.source.path, unit.command)]
    More {
        /// The file, and what was written of it.
        unit: &'static PlainUnit,
        /// Names of the headers.
        headers: String,
    },
    /// Headers that were found when it was declared are not found.
    #[error(
        "{} includes {headers}, found neither beside it nor in a folder that build.rs names by \
        .include_dir(\"FOLDER\"); if it is included no longer, `{}` writes {} again",
        unit.source.path, unit.command, unit.file
    )]
    Gone {
        /// The file, and what was written of it.
        unit: &'static PlainUnit,
        /// Names of the headers.
        headers: String,
    },
    /// Declarations were edited since.
    #[error("{} is not of {} as it declares now: `{}` writes it again", .0.file, .0.source.path, .0.command)]
    Declarations(&'static PlainUnit),
    /// A header does not declare a kernel as its file does.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The generated file is not as it was written.
    #[error(transparent)]
    Generated(#[from] Stale),
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
    let folders: Vec<PathBuf> = folders.iter().map(|folder| package.join(folder)).collect();
    let units: BTreeMap<&str, &'static PlainUnit> =
        kernels.plain_kernels().into_iter().map(|kernel| (kernel.unit.source.path, kernel.unit)).collect();
    for (path, unit) in units {
        let found = includes::included(&package.join(path), &folders)?;
        read(&package.join(path));
        found.iter().for_each(|header| read(&header.path));
        let names: Vec<&str> = found.iter().map(|header| &*header.name).collect();
        let known: Vec<&str> = unit.source.headers.iter().map(|(name, _)| *name).collect();
        let lacks = |all: &[&str], some: &[&str]| {
            let names = all.iter().filter(|name| !some.contains(name)).map(|name| format!("`{name}`"));
            Some(names.collect::<Vec<_>>().join(", ")).filter(|names| !names.is_empty())
        };
        if let Some(headers) = lacks(&known, &names) {
            return Err(PlainError::Gone { unit, headers });
        }
        if let Some(headers) = lacks(&names, &known) {
            return Err(PlainError::More { unit, headers });
        }
        let texts = [(path, unit.source.text)].into_iter().chain(unit.source.headers.iter().copied());
        if interface(texts).to_string() != unit.interface {
            return Err(PlainError::Declarations(unit));
        }
        generated::check_head(None, &package.join(unit.file))?;
    }
    Ok(kernels.are_as_their_files()?)
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
        put("kernels.rs", &(generated::head("Of the test.", COMMAND, &declared, "fn scale() {}") + rust));
        let unit = PlainUnit {
            source: Source {
                path: "k/a.cu",
                text: text.to_owned().leak(),
                headers: given.to_vec().leak(),
                common: &source::AS_IT_IS,
            },
            entries: &["scale"],
            instances: &[],
            interface: declared.leak(),
            file: "kernels.rs",
            command: COMMAND,
        };
        let unit = Box::leak(Box::new(unit));
        let kernel = PlainKernel { name: "scale", symbol: "scale", unit, parameters: &[] };
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
            let expected = "kernels.rs is not of k/a.cu as it declares now: `precast-aot abi k/a.cu";
            assert!(said.starts_with(expected), "{said}");
        }
        let said = check_of(TEXT, &[("third/b.h", HEADER)], "// more").unwrap_err();
        assert!(said.contains("kernels.rs was edited by hand"), "{said}");
    }

    #[test]
    fn headers_that_are_new_gone_or_elsewhere_are_named() {
        let said = check_of(&(TEXT.to_owned() + "\n#include \"c.h\""), &[("k/b.h", HEADER), ("k/c.h", "")], "");
        let expected = "kernels.rs does not have `c.h` of k/a.cu: `precast-aot abi";
        assert!(said.as_ref().is_err_and(|said| said.starts_with(expected)), "{said:?}");
        let said = check_of(TEXT, &[("other/b.h", HEADER)], "").unwrap_err();
        assert!(said.starts_with("k/a.cu includes `b.h`, found neither beside it nor in a folder"), "{said}");
        let said = check_of(&TEXT.replace("b.h", "../other/b.h"), &[("other/b.h", HEADER)], "").unwrap_err();
        assert!(said.contains("a.cu:1: `../other/b.h` is "), "{said}");
    }
}
