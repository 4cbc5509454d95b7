//! Reads a cubin's facts.
//!
//! A cubin is an ELF file for machine 190. The facts come from `.nv.info*` attributes, the symbol table, the size of
//! `.nv.shared.*` and the compiler's note, never from the request to compile.

use object::Endianness;
use object::elf::{EM_CUDA, FileHeader64, SHT_NOBITS, STB_GLOBAL, STB_WEAK, STT_FUNC, STT_OBJECT};
use object::read::elf::{FileHeader, SectionHeader, SectionTable};
use precast_core::{KeyVariant, Parameter, PlainKernel, ReferenceError};

/// Facts that a cubin states of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CubinFacts {
    /// Architecture with its suffix: `sm_90a`.
    pub arch: String,
    /// The one entry symbol.
    pub entry: String,
    /// Size of the one parameter, bytes.
    pub params_bytes: u32,
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory per CTA, bytes.
    pub static_shared_bytes: u32,
    /// Stack frame per thread, bytes: 0 means no spills.
    pub stack_bytes: u32,
    /// Largest CTA that the code was compiled for, threads.
    pub max_threads: u32,
    /// The compiler's release, from its note.
    pub compiler: String,
}

/// Facts of a kernel, and what they leave out.
struct Entry {
    facts: CubinFacts,
    /// Offset and size of each parameter, in order.
    parameters: Vec<(u32, u32)>,
    /// Place of the parameters in constant memory, by which they are aligned.
    base: u32,
    has_bounds: bool,
}

/// A file that is no cubin of this project.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CubinError {
    /// Not an ELF file, or a broken one.
    #[error("not a readable ELF file: {0}")]
    Elf(#[from] object::read::Error),
    /// An ELF file for another machine.
    #[error("ELF machine {found}, expected 190 (CUDA): not a cubin")]
    Machine {
        /// Machine in the header.
        found: u16,
    },
    /// Not exactly one kernel.
    #[error("{found} entry symbols, expected exactly 1")]
    Entries {
        /// Number of kernels.
        found: usize,
    },
    /// A symbol with internal linkage: its name carries a hash of a path.
    #[error("internal-linkage symbol `{0}`: its name depends on the source's path; make it a constant or inline")]
    InternalSymbol(String),
    /// No such kernel.
    #[error("no entry symbol `{0}`")]
    NoEntry(String),
    /// A parameter is not where, or not as large, as it is declared.
    #[error("{declared}, and the machine code says {found}: {command} declares it again")]
    Parameter {
        /// Kernel, file, and a parameter's number, name, offset and size, as declared.
        declared: String,
        /// Offset and size in the cubin.
        found: String,
        /// Writes the declaration again.
        command: &'static str,
    },
    /// A header does not declare the kernel as its file does.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// Not exactly one parameter.
    #[error("{found} kernel parameters, expected exactly 1 (the parameter block)")]
    Parameters {
        /// Number of parameters.
        found: usize,
    },
    /// A mandatory fact is missing.
    #[error("cubin has no {0}")]
    Missing(&'static str),
    /// The ELF flags and the compiler's note name different architectures.
    #[error("ELF flags say sm_{flags}, the compiler's note says {note}")]
    Arch {
        /// In the ELF flags.
        flags: u32,
        /// In the note.
        note: String,
    },
}

/// Shared memory per CTA that the system reserves, from compute capability 9.0 on, bytes.
const SHARED_RESERVED_BYTES: u32 = 1024;

/// Attributes of `.nv.info` sections (names as `cuobjdump -elf` prints them).
mod attribute {
    pub const MAX_THREADS: u8 = 0x05;
    pub const PARAM_CBANK: u8 = 0x0a;
    pub const FRAME_SIZE: u8 = 0x11;
    pub const KPARAM_INFO: u8 = 0x17;
    pub const REGCOUNT: u8 = 0x2f;
    /// Of a kernel with a parameter too large for the other.
    pub const KPARAM_INFO_V2: u8 = 0x45;
}

type Elf = FileHeader64<Endianness>;

impl CubinFacts {
    /// Reads a cubin.
    ///
    /// # Errors
    /// [`CubinError`] for anything but one kernel with one parameter and no internal-linkage symbols.
    pub fn read(cubin: &[u8]) -> Result<Self, CubinError> {
        let Entry { facts, parameters, has_bounds, .. } = Self::of(cubin, None)?;
        match parameters.len() {
            1 if has_bounds => Ok(facts),
            1 => Err(CubinError::Missing("launch bounds")),
            found => Err(CubinError::Parameters { found }),
        }
    }

    /// Reads what a cubin says of one of its kernels, whatever its parameters. The largest CTA of a kernel without
    /// launch bounds is the largest that registers hold.
    ///
    /// # Errors
    /// [`CubinError`] if it has no such kernel.
    pub fn of_entry(cubin: &[u8], entry: &str) -> Result<Self, CubinError> {
        Self::of(cubin, Some(entry)).map(|entry| entry.facts)
    }

    /// Reads the cubin that a kernel was compiled to. The parameters of one that is taken as it is are as declared, by
    /// what was written of its file and by a header if there is one.
    ///
    /// # Errors
    /// [`CubinError`] if the cubin is not this kernel's.
    pub fn of_pair(cubin: &[u8], pair: &KeyVariant, entry: &str) -> Result<Self, CubinError> {
        let Some(plain) = pair.key.plain() else { return Self::read(cubin) };
        let Entry { facts, parameters, base, .. } = Self::of(cubin, Some(entry))?;
        compare(plain, &parameters, base)?;
        pair.key.is_as_its_file()?;
        Ok(Self { params_bytes: plain.params_bytes() as u32, ..facts })
    }

    /// Reads a kernel, or the only one.
    fn of(cubin: &[u8], entry: Option<&str>) -> Result<Entry, CubinError> {
        let header = Elf::parse(cubin)?;
        let endian = header.endian()?;
        if header.e_machine(endian) != EM_CUDA {
            return Err(CubinError::Machine { found: header.e_machine(endian).0 });
        }
        let sections = header.sections(endian, cubin)?;
        let (entry, symbol) = self::entry(&sections, endian, cubin, entry)?;
        let section = |name: &str| -> Result<Option<&[u8]>, CubinError> {
            match sections.section_by_name(endian, name.as_bytes()) {
                Some((_, section)) => Ok(Some(section.data(endian, cubin)?)),
                None => Ok(None),
            }
        };
        let shared = sections.section_by_name(endian, format!(".nv.shared.{entry}").as_bytes());
        let shared = shared.filter(|(_, section)| section.sh_type(endian) == SHT_NOBITS);
        // The compiler includes shared memory that the system reserves in every CTA.
        let reserved = sections.section_by_name(endian, b".nv.shared.reserved.0").map_or(0, |_| SHARED_RESERVED_BYTES);
        let global = section(".nv.info")?.ok_or(CubinError::Missing(".nv.info section"))?;
        let own = section(&format!(".nv.info.{entry}"))?.ok_or(CubinError::Missing(".nv.info of its entry"))?;
        let note = section(".note.nv.tkinfo")?.ok_or(CubinError::Missing(".note.nv.tkinfo section"))?;
        let note = ToolNote::find(note).ok_or(CubinError::Missing("readable .note.nv.tkinfo"))?;

        let of_symbol = |wanted: u8| {
            let values = attributes(global).filter(|(code, _)| *code == wanted).map(|(_, value)| value);
            values.filter_map(pair).find(|(index, _)| *index == symbol).map(|(_, value)| value)
        };
        let mut parameters: Vec<(u32, u32)> = attributes(own)
            .filter_map(|(code, value)| match code {
                attribute::KPARAM_INFO => Some((word(value, 1)? >> 16, word(value, 2)? >> 18)),
                attribute::KPARAM_INFO_V2 => Some((word(value, 1)? >> 16, word(value, 2)?)),
                _ => None,
            })
            .collect();
        parameters.sort_unstable();
        let max_threads = attributes(own).find(|(code, _)| *code == attribute::MAX_THREADS);
        let max_threads = max_threads.and_then(|(_, value)| word(value, 0));
        let registers = of_symbol(attribute::REGCOUNT).ok_or(CubinError::Missing("register count"))?;
        let facts = Self {
            arch: arch(header.e_flags(endian).0, &note.arch)?,
            params_bytes: parameters.first().map_or(0, |(_, bytes)| *bytes),
            registers,
            static_shared_bytes: shared
                .map_or(0, |(_, section)| (section.sh_size(endian) as u32).saturating_sub(reserved)),
            stack_bytes: of_symbol(attribute::FRAME_SIZE).ok_or(CubinError::Missing("frame size"))?,
            max_threads: max_threads.unwrap_or_else(|| most_threads(registers)),
            compiler: note.compiler,
            entry,
        };
        let bank = attributes(own).find(|(code, _)| *code == attribute::PARAM_CBANK);
        let base = bank.and_then(|(_, value)| word(value, 1)).map_or(0, |word| word & 0xffff);
        Ok(Entry { facts, parameters, base, has_bounds: max_threads.is_some() })
    }
}

/// Returns the threads of the largest CTA whose registers a multiprocessor has: 64 Ki of them, which warps are given in
/// units of 256.
fn most_threads(registers: u32) -> u32 {
    let of_warp = (32 * registers).next_multiple_of(256).max(256);
    (65_536 / of_warp * 32).min(1024)
}

/// Compares the parameters of a kernel with those that are declared.
fn compare(plain: &PlainKernel, found: &[(u32, u32)], base: u32) -> Result<(), CubinError> {
    let mut end = base;
    let text = |place: Option<(u32, u32)>| match place {
        Some((offset, bytes)) => format!("{bytes} bytes at offset {offset}"),
        None => "there is none".to_owned(),
    };
    for index in 0..plain.parameters.len().max(found.len()) {
        let declared = plain.parameters.get(index);
        let place = declared.map(|Parameter { bytes, align, .. }| (end.next_multiple_of(*align) - base, *bytes));
        end = place.map_or(end, |(offset, bytes)| base + offset + bytes);
        if place == found.get(index).copied() {
            continue;
        }
        let name = declared.map_or(String::new(), |parameter| format!("`{}` is declared as ", parameter.name));
        let at = format!("parameter {} of `{}` in {}", index + 1, plain.name, plain.unit.source.path);
        let (declared, found) = (format!("{at}: {name}{}", text(place)), text(found.get(index).copied()));
        return Err(CubinError::Parameter { declared, found, command: plain.unit.command });
    }
    Ok(())
}

/// Returns the name and symbol index of a global function, or of the only one. A file that is taken as it is may have
/// symbols of its own besides.
fn entry(
    sections: &SectionTable<'_, Elf>,
    endian: Endianness,
    cubin: &[u8],
    wanted: Option<&str>,
) -> Result<(String, u32), CubinError> {
    let mut entries = entries(sections, endian, cubin, wanted.is_none())?;
    entries.retain(|(name, _)| wanted.is_none_or(|wanted| wanted == name));
    match (entries.len(), wanted) {
        (1, _) => Ok(entries.remove(0)),
        (_, Some(wanted)) => Err(CubinError::NoEntry(wanted.to_owned())),
        (found, None) => Err(CubinError::Entries { found }),
    }
}

/// Returns name and symbol index of every global function, and refuses symbols that are not global if `all` are to be.
/// An instance of a template is a weak one.
pub(crate) fn entries(
    sections: &SectionTable<'_, Elf>,
    endian: Endianness,
    cubin: &[u8],
    all: bool,
) -> Result<Vec<(String, u32)>, CubinError> {
    let symbols = sections.symbols(endian, cubin, object::elf::SHT_SYMTAB)?;
    let mut entries = Vec::new();
    for (index, symbol) in symbols.enumerate() {
        if !matches!(symbol.st_type(), STT_FUNC | STT_OBJECT) {
            continue;
        }
        let name = symbols.symbol_name(endian, symbol)?;
        if name.starts_with(b".nv.") || name.starts_with(b"$") {
            continue; // the assembler's own (slow paths of division, square root): their names carry no path
        }
        let name = String::from_utf8_lossy(name).into_owned();
        let is_global = symbol.st_bind() == STB_GLOBAL || symbol.st_bind() == STB_WEAK && !all;
        match (is_global, symbol.st_type()) {
            (true, STT_FUNC) => entries.push((name, index.0 as u32)),
            (false, _) if all => return Err(CubinError::InternalSymbol(name)),
            _ => {}
        }
    }
    Ok(entries)
}

/// Returns the attributes of an `.nv.info` section as (code, value), up to the first of unknown format.
fn attributes(mut data: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let [format, code, low, high, ..] = *data else { return None };
        // Formats 1 to 3 hold a value in their two bytes; format 4 holds that many bytes after them.
        let length = match format {
            1..=3 => 0,
            4 => usize::from(u16::from_le_bytes([low, high])),
            _ => return None,
        };
        let value = data.get(4..4 + length)?;
        data = &data[4 + length..];
        Some((code, value))
    })
}

fn word(value: &[u8], index: usize) -> Option<u32> {
    let bytes = value.get(4 * index..4 * index + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// Decodes a (symbol index, value) attribute.
fn pair(value: &[u8]) -> Option<(u32, u32)> {
    Some((word(value, 0)?, word(value, 1)?))
}

/// The compiler's note.
struct ToolNote {
    compiler: String,
    arch: String,
}

impl ToolNote {
    /// Finds the note of the tool that was told an architecture: a linker's may stand before the assembler's.
    fn find(mut notes: &[u8]) -> Option<Self> {
        loop {
            if let Some(note) = Self::read(notes) {
                return Some(note);
            }
            let [name, description] = [word(notes, 0)?, word(notes, 1)?].map(|bytes| bytes as usize);
            let end = [name.checked_next_multiple_of(4)?, description.checked_next_multiple_of(4)?];
            notes = notes.get(12usize.checked_add(end[0])?.checked_add(end[1])?..)?;
        }
    }

    /// Parses an ELF note whose description is: version, three words, then offsets of the tool's name, its release,
    /// branch and arguments in the strings that follow.
    fn read(note: &[u8]) -> Option<Self> {
        let (name, description) = (word(note, 0)? as usize, word(note, 1)? as usize);
        let start = 12 + name.next_multiple_of(4);
        let description = note.get(start..start.checked_add(description)?)?;
        let strings = description.get(24..)?;
        let string = |offset: u32| {
            let rest = strings.get(offset as usize..)?;
            let end = rest.iter().position(|byte| *byte == 0)?;
            std::str::from_utf8(&rest[..end]).ok()
        };
        let release = string(word(description, 3)?)?;
        let compiler = release.rsplit(", ").next()?.to_owned();
        let mut arguments = string(word(description, 5)?)?.split_whitespace();
        arguments.find(|argument| *argument == "-arch")?;
        Some(Self { compiler, arch: arguments.next()?.to_owned() })
    }
}

/// The flags hold the number in their second byte; only the note has the suffix.
fn arch(flags: u32, note: &str) -> Result<String, CubinError> {
    let number = flags >> 8 & 0xff;
    let digits = note.strip_prefix("sm_").map(|rest| rest.trim_end_matches(|c: char| c.is_ascii_lowercase()));
    if digits.and_then(|digits| digits.parse::<u32>().ok()) == Some(number) {
        Ok(note.to_owned())
    } else {
        Err(CubinError::Arch { flags: number, note: note.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use precast_core::{Key, PlainUnit, Source, Variant, source};

    use super::*;

    /// `saxpy(const float*, float*, int)` and `two(float4, double, char, float3, float4*)` of one file.
    const PLAIN: &[u8] = include_bytes!("../tests/fixtures/plain.sm_89.cubin");

    static UNIT: PlainUnit = PlainUnit {
        source: Source { path: "k/a.cu", text: "", headers: &[], common: &source::AS_IT_IS },
        entries: &["saxpy", "two"],
        instances: &[],
        interface: "",
        file: "src/kernels.rs",
        command: "precast-aot abi k/a.cu --out src/kernels.rs",
    };

    /// A kernel with parameters of these sizes and alignments.
    fn pair(name: &'static str, sizes: &[(u32, u32)]) -> KeyVariant {
        let (mut parameters, mut end) = (Vec::new(), 0u32);
        for (name, (bytes, align)) in ["a", "b", "c", "d", "y", "z"].into_iter().zip(sizes.iter().copied()) {
            let offset = end.next_multiple_of(align);
            parameters.push(Parameter { name, offset, bytes, align });
            end = offset + bytes;
        }
        let kernel = PlainKernel { name, symbol: name, unit: &UNIT, parameters: parameters.leak() };
        KeyVariant { key: Key::of_plain(Box::leak(Box::new(kernel))), variant: Variant::new(&[]) }
    }

    /// Reads `two` with such parameters.
    fn two(sizes: &[(u32, u32)]) -> Result<CubinFacts, String> {
        CubinFacts::of_pair(PLAIN, &pair("two", sizes), "two__0123").map_err(|error| error.to_string())
    }

    #[test]
    fn a_cubin_of_many_kernels_says_what_each_takes() {
        let facts = two(&[(16, 16), (8, 8), (1, 1), (12, 4), (8, 8)]).unwrap();
        assert_eq!((facts.params_bytes, facts.stack_bytes, &*facts.entry), (48, 0, "two__0123"));
        // Neither has launch bounds, and registers for as many threads as there can be.
        assert!(facts.registers <= 64 && facts.max_threads == 1024, "{facts:?}");
        assert_eq!(CubinFacts::of_entry(PLAIN, "saxpy__0123").unwrap().entry, "saxpy__0123");
        let missing = CubinFacts::of_entry(PLAIN, "three").unwrap_err();
        assert_eq!(missing, CubinError::NoEntry("three".to_owned()));
        assert_eq!(CubinFacts::read(PLAIN), Err(CubinError::Entries { found: 2 }));
    }

    #[test]
    fn parameters_of_another_place_size_or_number_are_refused_by_name() {
        let places = [(16, 16), (8, 8), (1, 1), (12, 4), (8, 8), (4, 4)];
        let said = two(&places[..4]).unwrap_err();
        assert!(said.starts_with("parameter 5 of `two` in k/a.cu: there is none, and the machine code says 8 bytes"));
        let said = two(&places).unwrap_err();
        assert!(said.contains("`z` is declared as 4 bytes at offset 48, and the machine code says there is none"));
        let said = two(&[places[0], places[1], (4, 4), places[3], places[4]]).unwrap_err();
        assert!(
            said.contains("`c` is declared as 4 bytes at offset 24, and the machine code says 1 bytes at offset 24")
        );
        let said = two(&[places[0], places[1], places[2], (12, 8), places[4]]).unwrap_err();
        assert!(said.ends_with("12 bytes at offset 28: precast-aot abi k/a.cu --out src/kernels.rs declares it again"));
    }

    #[test]
    fn the_assembler_says_the_architecture_where_a_linker_does_not() {
        let facts = CubinFacts::of_entry(include_bytes!("../tests/fixtures/ptx.sm_89.cubin"), "two").unwrap();
        assert_eq!((&*facts.arch, &*facts.compiler), ("sm_89", "V13.0.88"));
    }

    #[test]
    fn a_parameter_of_kilobytes_has_its_size() {
        // `f(struct of 5000 floats, float*, int)`.
        let large = include_bytes!("../tests/fixtures/large.sm_90a.cubin");
        let facts = CubinFacts::of_pair(large, &pair("f", &[(20_000, 4), (8, 8), (4, 4)]), "f").unwrap();
        assert_eq!(facts.params_bytes, 20_012);
    }

    #[test]
    fn what_is_aligned_to_64_bytes_lies_where_the_gpu_has_it() {
        // `f(int, struct of 320 bytes, struct of 320 bytes)`.
        let aligned = include_bytes!("../tests/fixtures/aligned.sm_89.cubin");
        let facts = CubinFacts::of_pair(aligned, &pair("f", &[(4, 4), (320, 64), (320, 64)]), "f").unwrap();
        assert_eq!(facts.params_bytes, 704);
        assert!(CubinFacts::of_pair(aligned, &pair("f", &[(4, 4), (320, 64), (320, 8)]), "f").is_ok());
        assert!(CubinFacts::of_pair(aligned, &pair("f", &[(4, 4), (320, 16), (320, 64)]), "f").is_err());
    }

    #[test]
    fn the_largest_block_follows_from_registers() {
        assert_eq!([16, 64, 72, 128, 255].map(most_threads), [1024, 1024, 896, 512, 256]);
    }
}
