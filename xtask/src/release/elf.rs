//! Checks what a program asks of the machine that it runs on.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use object::read::elf::{Dyn, ElfFile64, FileHeader};
use object::{Endianness, elf};

use super::hosts::GLIBC;

/// Libraries that a program may need: those that manylinux lists of glibc and GCC. libcuda is opened by name, if
/// present.
const LIBRARIES: [&str; 6] = ["libc.so.6", "libdl.so.2", "libgcc_s.so.1", "libm.so.6", "libpthread.so.0", "librt.so.1"];

/// Lists what a program asks the loader for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs {
    pub libraries: BTreeSet<String>,
    /// Versions of symbols: `GLIBC_2.28`.
    pub versions: BTreeSet<String>,
}

/// Reads them.
pub fn needs(program: &[u8]) -> Result<Needs> {
    let file = ElfFile64::<Endianness>::parse(program)?;
    let (endian, header) = (file.endian(), file.elf_header());
    let sections = header.sections(endian, program)?;
    let mut needs = Needs::default();
    let (entries, strings) = sections.dynamic(endian, program)?.context("it is linked to nothing")?;
    let strings = sections.strings(endian, program, strings)?;
    for entry in entries.iter().filter(|entry| entry.tag(endian) == elf::DT_NEEDED) {
        needs.libraries.insert(text(entry.string(endian, strings)?));
    }
    if let Some((mut files, strings)) = sections.gnu_verneed(endian, program)? {
        let strings = sections.strings(endian, program, strings)?;
        while let Some((_, mut versions)) = files.next()? {
            while let Some(version) = versions.next()? {
                needs.versions.insert(text(version.name(endian, strings)?));
            }
        }
    }
    Ok(needs)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Checks that a program asks for nothing that a machine with [`GLIBC`] lacks; names all that it does.
pub fn check(program: &[u8]) -> Result<Needs> {
    let needs = needs(program)?;
    let beyond = |library: &&String| !LIBRARIES.contains(&library.as_str()) && !library.starts_with("ld-linux-");
    let mut refused: Vec<String> = needs.libraries.iter().filter(beyond).cloned().collect();
    refused.extend(needs.versions.iter().filter(|version| !is_there(version)).cloned());
    let [major, minor] = GLIBC;
    ensure!(refused.is_empty(), "a machine with glibc {major}.{minor} lacks {}", refused.join(", "));
    if !needs.libraries.contains("libc.so.6") {
        bail!("it does not need libc.so.6: {needs:?}");
    }
    Ok(needs)
}

/// True for the versions of libgcc_s that manylinux lists, and of glibc up to [`GLIBC`].
fn is_there(version: &str) -> bool {
    let Some(glibc) = version.strip_prefix("GLIBC_") else { return version.starts_with("GCC_") };
    let numbers: Option<Vec<u32>> = glibc.split('.').map(|number| number.parse().ok()).collect();
    // Not `GLIBC_PRIVATE`.
    numbers.is_some_and(|numbers| numbers[..] < [GLIBC[0], GLIBC[1] + 1][..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_needs_is_read_and_newer_libraries_are_refused() {
        // This test, which the machine's own linker linked.
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let needs = needs(&own).unwrap();
        assert!(needs.libraries.contains("libc.so.6"), "{needs:?}");
        let version = needs.versions.iter().find(|version| version.starts_with("GLIBC_2.")).unwrap();
        let refused = |own: &[u8]| check(own).err().map(|error| error.to_string()).unwrap_or_default();
        // Names, as their text lies in the file. Machines have other versions.
        let replaced = |from: &str, to: &str| {
            let at = own.windows(from.len()).position(|bytes| bytes == from.as_bytes()).unwrap();
            [&own[..at], to.as_bytes(), &own[at + from.len()..]].concat()
        };
        let newer = version.replace("GLIBC_2.", "GLIBC_3.");
        assert!(!refused(&own).contains(&newer));
        assert!(refused(&replaced(&format!("\0{version}\0"), &format!("\0{newer}\0"))).contains(&newer));
        assert!(refused(&replaced("\0libc.so.6\0", "\0libz.so.6\0")).contains("libz.so.6"));
        assert!(refused(b"no program").contains("ELF"));
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        for (version, expected) in [
            ("GLIBC_2.2.5", true),
            ("GLIBC_2.28", true),
            ("GLIBC_2.29", false),
            ("GLIBC_2.100", false),
            ("GLIBC_3.0", false),
            ("GLIBC_ABI_DT_RELR", false),
            ("GLIBC_PRIVATE", false),
            ("GCC_3.0", true),
            ("CXXABI_1.3", false),
        ] {
            assert_eq!(is_there(version), expected, "{version}");
        }
    }
}
