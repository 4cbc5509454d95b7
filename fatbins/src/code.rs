//! Machine code apart from names: the parts of two cubins that must be equal for equal results with equal resources.
//!
//! A cubin spells its entry symbol only in section names and in the string tables. So its code is: the flags of the ELF
//! header, and every section but the string tables and the compiler's notes, in order, by header and content, with
//! `ENTRY` for the entry symbol in the names of sections and of symbols; each of several without its digest. That
//! covers the instructions (`.text`), registers, stack, shared memory, barriers, launch bounds and parameters
//! (`.nv.info`, `.nv.shared`, `.nv.constant0`), constants, relocations and call frames. Offsets in the file and the
//! notes, which name compiler and options, are left out.

use std::collections::BTreeSet;

use object::Endianness;
use object::SectionIndex;
use object::elf::{FileHeader64, SHT_NOBITS, SHT_NOTE, SHT_NULL, SHT_STRTAB, SHT_SYMTAB, SectionType};
use object::read::elf::{FileHeader, SectionHeader};

use crate::Digest;
use crate::cubin::{CubinError, entries};

/// The code of a cubin: a digest per section, by its name without the entry symbol.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CubinCode(Vec<(String, Digest)>);

/// Symbol table of code that the driver may translate (sm_100 and later).
const SHT_MERCURY_SYMTAB: SectionType = SectionType(0x7000_0085);
/// Size of a symbol, bytes; the offset of its name comes first.
const SYMBOL_BYTES: usize = 24;

impl CubinCode {
    /// Reads a cubin.
    ///
    /// # Errors
    /// [`CubinError`] if the bytes are no cubin of this project.
    pub fn read(cubin: &[u8]) -> Result<Self, CubinError> {
        let header = FileHeader64::<Endianness>::parse(cubin)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, cubin)?;
        let entries = entries(&sections, endian, cubin, false)?;
        // Of several, each has a name of its own before the digest.
        let named: Vec<(&str, String)> = match &entries[..] {
            [(only, _)] => vec![(only, "ENTRY".to_owned())],
            all => all.iter().map(|(name, _)| (&**name, without_digest(name))).collect(),
        };
        let renamed = |name: &[u8]| {
            let name = String::from_utf8_lossy(name).into_owned();
            named.iter().fold(name, |name, (entry, new)| match name == *entry {
                true => new.clone(),
                false => name.replace(&format!(".{entry}"), &format!(".{new}")),
            })
        };
        let mut parts = vec![("ELF flags".to_owned(), Digest::of(&header.e_flags(endian).0.to_le_bytes()))];
        for section in sections.iter() {
            let kind = section.sh_type(endian);
            if matches!(kind, SHT_NULL | SHT_STRTAB | SHT_NOTE) {
                continue;
            }
            let name = renamed(sections.section_name(endian, section)?);
            let numbers = [
                u64::from(kind.0),
                section.sh_flags(endian).0,
                section.sh_size(endian),
                section.sh_link(endian).into(),
                section.sh_info(endian).into(),
                section.sh_addralign(endian),
                section.sh_entsize(endian),
            ];
            let content = match kind {
                SHT_NOBITS => Vec::new(),
                SHT_SYMTAB | SHT_MERCURY_SYMTAB => {
                    let link = SectionIndex(section.sh_link(endian) as usize);
                    let names = sections.strings(endian, cubin, link)?;
                    symbols(section.data(endian, cubin)?, |offset| names.get(offset).map(renamed).ok())
                        .ok_or(CubinError::Missing("readable symbol table"))?
                }
                _ => section.data(endian, cubin)?.to_vec(),
            };
            let numbers = numbers.map(u64::to_le_bytes).concat();
            parts.push((name, Digest::of_parts("precast.code", [&numbers[..], &content])));
        }
        Ok(Self(parts))
    }

    /// Keeps instructions, constants and shared memory: equal in cubins of two architectures with equal instructions.
    #[must_use]
    pub fn of_any_arch(mut self) -> Self {
        self.0.retain(|(name, _)| [".text", ".nv.constant", ".nv.shared"].iter().any(|kind| name.starts_with(kind)));
        self
    }

    /// Returns the names of the sections that differ, each once.
    pub fn differing<'c>(&'c self, other: &'c Self) -> Vec<&'c str> {
        let (own, others) = (self.0.iter().collect::<BTreeSet<_>>(), other.0.iter().collect::<BTreeSet<_>>());
        let names: BTreeSet<&str> = own.symmetric_difference(&others).map(|(name, _)| name.as_str()).collect();
        names.into_iter().collect()
    }
}

/// Removes the digest, which stands at the end of an entry symbol, or of each name within one that C++ mangles.
fn without_digest(entry: &str) -> String {
    if !entry.starts_with("_Z") {
        return entry.rsplit_once("__").map_or(entry, |(name, _)| name).to_owned();
    }
    let is_digest = |text: &str| {
        let digits = text.strip_prefix("__").and_then(|digits| digits.get(..16));
        digits.is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
    };
    let (mut kept, mut rest) = (String::new(), entry);
    while let Some(at) = (0..rest.len()).find(|at| rest.get(*at..).is_some_and(is_digest)) {
        kept += &rest[..at];
        rest = &rest[at + 18..];
    }
    kept + rest
}

/// Rewrites a symbol table with names in place of string table offsets.
fn symbols(table: &[u8], name: impl Fn(u32) -> Option<String>) -> Option<Vec<u8>> {
    let mut named = Vec::new();
    for symbol in table.chunks(SYMBOL_BYTES) {
        let (offset, rest) = symbol.split_first_chunk::<4>()?;
        let name = name(u32::from_le_bytes(*offset))?;
        named.extend((name.len() as u64).to_le_bytes());
        named.extend(name.as_bytes());
        named.extend(rest);
    }
    Some(named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CubinFacts;

    const FILL: &[u8] = include_bytes!("../tests/fixtures/fill.sm_121.cubin");
    const OTHERS: [&[u8]; 2] =
        [include_bytes!("../tests/fixtures/fill.sm_89.cubin"), include_bytes!("../tests/fixtures/cast.sm_121.cubin")];

    fn read(cubin: &[u8]) -> CubinCode {
        CubinCode::read(cubin).unwrap()
    }

    /// Replaces every `from` in the fixture by bytes of the same length.
    fn replaced(from: &[u8], to: &[u8]) -> Vec<u8> {
        let mut cubin = FILL.to_vec();
        for at in 0..cubin.len() - from.len() {
            if cubin[at..].starts_with(from) {
                cubin[at..at + to.len()].copy_from_slice(to);
            }
        }
        assert!(cubin != FILL);
        cubin
    }

    #[test]
    fn names_are_no_part_of_the_code() {
        let code = read(FILL);
        let entry = CubinFacts::read(FILL).unwrap().entry;
        for name in [entry.replace("fill", "pour"), entry.replace("first_false", "first_wrong")] {
            let other = replaced(entry.as_bytes(), name.as_bytes());
            assert_eq!(CubinFacts::read(&other).unwrap().entry, name);
            assert_eq!(read(&other), code);
        }
        // The compiler's release, in its note.
        assert_eq!(read(&replaced(b"V13.0.88", b"V13.0.89")), code);
        assert!(OTHERS.iter().all(|other| read(other) != code));
    }

    #[test]
    fn a_digest_ends_a_name_also_within_a_mangled_one() {
        for (entry, name) in [
            ("row_sum__0123456789abcdef", "row_sum"),
            ("_Z23scale__0123456789abcdefIfEvPT_", "_Z23scaleIfEvPT_"),
            ("_Z27my__scale__0123456789abcdefPf", "_Z27my__scalePf"),
            ("_Z24scale___0123456789abcdefIfEvT_", "_Z24scale_IfEvT_"),
            ("_ZN19a__0123456789abcdef19b__0123456789abcdefEv", "_ZN19a19bEv"),
        ] {
            assert_eq!(without_digest(entry), name);
        }
    }

    #[test]
    fn several_kernels_of_a_file_are_told_apart_without_its_digest() {
        const PLAIN: &[u8] = include_bytes!("../tests/fixtures/plain.sm_89.cubin");
        let with = |from: &[u8], to: &[u8]| {
            let mut other = PLAIN.to_vec();
            let places: Vec<usize> =
                (0..other.len() - from.len()).filter(|at| other[*at..].starts_with(from)).collect();
            assert!(!places.is_empty());
            places.into_iter().for_each(|at| other[at..at + to.len()].copy_from_slice(to));
            read(&other)
        };
        assert_eq!(with(b"__0123", b"__4567"), read(PLAIN));
        assert!(with(b"saxpy", b"daxpy").differing(&read(PLAIN)).contains(&".text.saxpy"));
    }

    #[test]
    fn every_byte_of_instructions_and_resources_is() {
        let code = read(FILL);
        let header = FileHeader64::<Endianness>::parse(FILL).unwrap();
        let endian = header.endian().unwrap();
        let sections = header.sections(endian, FILL).unwrap();
        let entry = CubinFacts::read(FILL).unwrap().entry;
        for name in [".text", ".nv.constant0", ".nv.info"] {
            let (_, section) = sections.section_by_name(endian, format!("{name}.{entry}").as_bytes()).unwrap();
            let (start, size) = (section.sh_offset(endian) as usize, section.sh_size(endian) as usize);
            for at in start..start + size {
                let mut other = FILL.to_vec();
                other[at] ^= 1;
                // Damage may also make the cubin unreadable.
                if let Ok(other) = CubinCode::read(&other) {
                    assert_eq!(other.differing(&code), [format!("{name}.ENTRY")], "byte {at}");
                }
            }
        }
    }
}
