//! Reads a cubin's facts.
//!
//! A cubin is an ELF file for machine 190. The facts come from `.nv.info*` attributes, the symbol table, the size of
//! `.nv.shared.*` and the compiler's note, never from the request to compile.

use object::Endianness;
use object::elf::{EM_CUDA, FileHeader64, SHT_NOBITS, STB_GLOBAL, STT_FUNC, STT_OBJECT};
use object::read::elf::{FileHeader, SectionHeader, SectionTable};

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

/// A file that is no cubin of this project.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CubinError {
    /// Not an ELF file, or a broken one.
    #[error("not a readable ELF file: {0}")]
    Elf(String),
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
    pub const FRAME_SIZE: u8 = 0x11;
    pub const KPARAM_INFO: u8 = 0x17;
    pub const REGCOUNT: u8 = 0x2f;
}

type Elf = FileHeader64<Endianness>;

impl CubinFacts {
    /// Reads a cubin.
    ///
    /// # Errors
    /// [`CubinError`] for anything but one kernel with one parameter and no internal-linkage symbols.
    pub fn read(cubin: &[u8]) -> Result<Self, CubinError> {
        let elf = |error: object::read::Error| CubinError::Elf(error.to_string());
        let header = Elf::parse(cubin).map_err(elf)?;
        let endian = header.endian().map_err(elf)?;
        if header.e_machine(endian) != EM_CUDA {
            return Err(CubinError::Machine { found: header.e_machine(endian).0 });
        }
        let sections = header.sections(endian, cubin).map_err(elf)?;
        let (entry, symbol) = entry(&sections, endian, cubin)?;
        let section = |name: &str| -> Result<Option<&[u8]>, CubinError> {
            match sections.section_by_name(endian, name.as_bytes()) {
                Some((_, section)) => section.data(endian, cubin).map(Some).map_err(elf),
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
        let note = ToolNote::read(note).ok_or(CubinError::Missing("readable .note.nv.tkinfo"))?;

        let of_symbol = |wanted: u8| {
            let values = attributes(global).filter(|(code, _)| *code == wanted).map(|(_, value)| value);
            values.filter_map(pair).find(|(index, _)| *index == symbol).map(|(_, value)| value)
        };
        let parameters: Vec<u32> = attributes(own)
            .filter(|(code, _)| *code == attribute::KPARAM_INFO)
            .filter_map(|(_, value)| word(value, 2))
            .map(|word| word >> 18)
            .collect();
        let [params_bytes] = parameters[..] else { return Err(CubinError::Parameters { found: parameters.len() }) };
        let max_threads = attributes(own).find(|(code, _)| *code == attribute::MAX_THREADS);
        let max_threads = max_threads.and_then(|(_, value)| word(value, 0));
        Ok(Self {
            arch: arch(header.e_flags(endian).0, &note.arch)?,
            params_bytes,
            registers: of_symbol(attribute::REGCOUNT).ok_or(CubinError::Missing("register count"))?,
            static_shared_bytes: shared
                .map_or(0, |(_, section)| (section.sh_size(endian) as u32).saturating_sub(reserved)),
            stack_bytes: of_symbol(attribute::FRAME_SIZE).ok_or(CubinError::Missing("frame size"))?,
            max_threads: max_threads.ok_or(CubinError::Missing("launch bounds"))?,
            compiler: note.compiler,
            entry,
        })
    }
}

/// Returns the name and symbol index of the one global function.
fn entry(sections: &SectionTable<'_, Elf>, endian: Endianness, cubin: &[u8]) -> Result<(String, u32), CubinError> {
    let elf = |error: object::read::Error| CubinError::Elf(error.to_string());
    let symbols = sections.symbols(endian, cubin, object::elf::SHT_SYMTAB).map_err(elf)?;
    let mut entries = Vec::new();
    for (index, symbol) in symbols.enumerate() {
        if !matches!(symbol.st_type(), STT_FUNC | STT_OBJECT) {
            continue;
        }
        let name = symbols.symbol_name(endian, symbol).map_err(elf)?;
        if name.starts_with(b".nv.") || name.starts_with(b"$") {
            continue; // the assembler's own (slow paths of division, square root): their names carry no path
        }
        let name = String::from_utf8_lossy(name).into_owned();
        if symbol.st_bind() != STB_GLOBAL {
            return Err(CubinError::InternalSymbol(name));
        }
        if symbol.st_type() == STT_FUNC {
            entries.push((name, index.0 as u32));
        }
    }
    match entries.len() {
        1 => Ok(entries.remove(0)),
        found => Err(CubinError::Entries { found }),
    }
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
