//! Encoding, reading and verifying bundles.

use object::Endianness;
use object::elf::{ELFOSABI_NONE, EM_NONE, ET_REL, FileFlags, FileHeader64, SHF_ALLOC, SHT_PROGBITS};
use object::read::elf::{FileHeader, SectionHeader};
use object::write::elf::{FileHeader as WriteHeader, SectionHeader as WriteSection, Writer};
use precast_kernels::{Arch, KeyVariant, OPTIONS};
use rayon::prelude::*;

use crate::Digest;
use crate::cubin::{CubinError, CubinFacts};
use crate::fatbin::{self, Container};
use crate::manifest::{Code, Manifest, ManifestError, ModuleEntry};
use crate::stale::{Stale, StaleModule};
use crate::trust::SignatureError;
use crate::{FATBIN_SECTION, MANIFEST_SECTION};

/// A bundle whose structure has been checked. Its digests and cubins have not until [`Bundle::verify`].
#[derive(Clone, Debug)]
pub struct Bundle<'a> {
    manifest: Manifest,
    digest: Digest,
    fatbin: &'a [u8],
    /// Offset of each module's cubin in the section.
    placed: Vec<Option<u64>>,
}

/// A module of a bundle.
#[derive(Clone, Debug)]
pub struct Module<'a> {
    /// What it computes and how it is built.
    pub pair: KeyVariant,
    /// For which architecture.
    pub arch: Arch,
    /// Its row of the manifest.
    pub entry: &'a ModuleEntry,
    /// The cubin; empty for the simulated GPU.
    pub image: &'a [u8],
}

/// A bundle that must not be used.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// No trusted key signed the file.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// The file is no bundle, or is cut short.
    #[error("not a bundle ({0}): it is another file or cut short; precast-aot build writes one")]
    Elf(String),
    /// A section is not there exactly once.
    #[error("section {name} occurs {found} times, expected once")]
    Section {
        name: &'static str,
        /// How often it is there.
        found: usize,
    },
    /// The manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Sizes in the manifest and in the file disagree.
    #[error("section {FATBIN_SECTION} is {found} bytes, the manifest adds up to {expected}")]
    Size {
        /// By the manifest.
        expected: u64,
        /// In the file.
        found: u64,
    },
    /// Bytes between the cubins are not what the manifest implies.
    #[error("section {FATBIN_SECTION} differs from its canonical encoding at offset {offset} (in {module})")]
    Layout {
        offset: u64,
        /// The module before or around it.
        module: String,
    },
    /// The file has bytes that its own re-encoding has not.
    #[error("file differs from its canonical encoding at offset {offset}")]
    NotCanonical { offset: usize },
    /// A cubin was altered.
    #[error("{module}: cubin at offset {offset} has SHA-256 {found}, the manifest says {expected}")]
    Digest {
        module: String,
        /// Its offset in the section.
        offset: u64,
        /// By the manifest.
        expected: Digest,
        /// In the file.
        found: Digest,
    },
    /// A cubin is not readable.
    #[error("{module}: {source}")]
    Cubin { module: String, source: CubinError },
    /// Kernels are of other sources than this program's: all of them.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// A cubin is not what the manifest, or its key, says.
    #[error("{module}: {what} is {found}, expected {expected}")]
    Claim {
        module: String,
        what: &'static str,
        /// By the manifest or the key.
        expected: String,
        /// By the cubin, or by the manifest.
        found: String,
    },
}

/// What verification finds wrong with a module, by what it is told before.
enum Finding {
    Altered(BundleError),
    Stale(StaleModule),
    Untrue(BundleError),
}

/// Where every cubin of a manifest lies, and the size of the section.
fn layout(manifest: &Manifest) -> (Vec<Container>, Vec<Option<u64>>, u64) {
    let mut containers = Vec::new();
    let mut placed = Vec::with_capacity(manifest.modules.len());
    let mut end = 0u64;
    for group in manifest.modules.chunk_by(|a, b| (&a.key, &a.variant) == (&b.key, &b.variant)) {
        let sizes: Vec<u64> = group.iter().filter_map(|module| Some(module.code.as_ref()?.bytes)).collect();
        let container = Container::layout(end, &sizes);
        let mut cubins = container.cubins.iter();
        placed.extend(group.iter().map(|module| module.code.as_ref().and_then(|_| cubins.next().copied())));
        if !sizes.is_empty() {
            end = container.end;
            containers.push(container);
        }
    }
    (containers, placed, end)
}

/// The two sections of a bundle: (fatbin containers, manifest). `cubin` gives the machine code of a module.
///
/// # Panics
/// If a cubin is not as long as the manifest says.
pub fn parts<'c>(manifest: &Manifest, cubin: impl Fn(&ModuleEntry) -> &'c [u8]) -> (Vec<u8>, Vec<u8>) {
    let (containers, placed, end) = layout(manifest);
    let mut section = vec![0; end as usize];
    for container in containers {
        let start = container.start as usize;
        let header = container.header();
        section[start..start + header.len()].copy_from_slice(&header);
    }
    for (module, offset) in manifest.modules.iter().zip(placed) {
        let (Some(offset), Some(code)) = (offset, &module.code) else { continue };
        let (bytes, offset) = (cubin(module), offset as usize);
        assert_eq!(bytes.len() as u64, code.bytes, "{module}");
        let header = fatbin::entry_header(arch_of(module), code.bytes);
        section[offset - header.len()..offset].copy_from_slice(&header);
        section[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    (section, manifest.encode())
}

/// An unknown architecture has no header; decoding a manifest refuses it before anyone looks.
fn arch_of(module: &ModuleEntry) -> Arch {
    Arch::of_name(&module.arch).unwrap_or(Arch::Sim)
}

/// Wraps the two sections in an ELF object.
fn elf(fatbin: &[u8], manifest: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::new(Endianness::Little, true, &mut file);
    let names = [FATBIN_SECTION, MANIFEST_SECTION].map(|name| writer.add_section_name(name.as_bytes()));
    writer.reserve_file_header();
    let contents = [fatbin, manifest];
    let offsets = contents.map(|bytes| {
        writer.reserve_section_index();
        writer.reserve(bytes.len() as u64, 16)
    });
    writer.reserve_shstrtab_section_index();
    writer.reserve_shstrtab().expect("two section names are short");
    writer.reserve_section_headers();
    let header = WriteHeader {
        os_abi: ELFOSABI_NONE,
        abi_version: 0,
        e_type: ET_REL,
        e_machine: EM_NONE,
        e_entry: 0,
        e_flags: FileFlags(0),
    };
    writer.write_file_header(&header).expect("a bundle has few sections");
    for bytes in contents {
        writer.write_align(16);
        writer.write(bytes);
    }
    writer.write_shstrtab();
    writer.write_null_section_header();
    for ((name, offset), bytes) in names.into_iter().zip(offsets).zip(contents) {
        writer.write_section_header(&WriteSection {
            sh_name: writer.section_name_offset(Some(name)),
            sh_type: SHT_PROGBITS,
            sh_flags: SHF_ALLOC,
            sh_addr: 0,
            sh_offset: offset,
            sh_size: bytes.len() as u64,
            sh_link: 0,
            sh_info: 0,
            sh_addralign: 16,
            sh_entsize: 0,
        });
    }
    writer.write_shstrtab_section_header();
    file
}

/// Encodes a bundle file.
///
/// # Panics
/// If a cubin is not as long as the manifest says.
pub fn encode<'c>(manifest: &Manifest, cubin: impl Fn(&ModuleEntry) -> &'c [u8]) -> Vec<u8> {
    let (fatbin, manifest) = parts(manifest, cubin);
    elf(&fatbin, &manifest)
}

impl<'a> Bundle<'a> {
    /// Reads a bundle file: a bounded parse, then equality with the canonical encoding.
    ///
    /// # Errors
    /// [`BundleError`]: nothing of the file is to be used.
    pub fn read(file: &'a [u8]) -> Result<Self, BundleError> {
        let fatbin = section(file, FATBIN_SECTION)?;
        let manifest = section(file, MANIFEST_SECTION)?;
        let bundle = Self::from_parts(manifest, fatbin)?;
        let canonical = elf(fatbin, manifest);
        if canonical == file {
            return Ok(bundle);
        }
        let differs = canonical.iter().zip(file).position(|(a, b)| a != b);
        Err(BundleError::NotCanonical { offset: differs.unwrap_or(canonical.len().min(file.len())) })
    }

    /// Reads the two sections of a bundle, as a trainer has them embedded.
    ///
    /// # Errors
    /// [`BundleError`] where one of them is not canonical.
    pub fn from_parts(manifest: &[u8], fatbin: &'a [u8]) -> Result<Self, BundleError> {
        let manifest = Manifest::decode(manifest)?;
        let digest = manifest.digest();
        let (containers, placed, expected) = layout(&manifest);
        if fatbin.len() as u64 != expected {
            return Err(BundleError::Size { expected, found: fatbin.len() as u64 });
        }
        let check = |offset: u64, bytes: &[u8], module: &dyn Fn() -> String| {
            let start = offset as usize;
            let same = fatbin[start..start + bytes.len()].iter().zip(bytes).position(|(a, b)| a != b);
            match same {
                None => Ok(()),
                Some(index) => Err(BundleError::Layout { offset: offset + index as u64, module: module() }),
            }
        };
        for container in &containers {
            let module = || {
                manifest.modules[placed.iter().position(|p| *p == Some(container.cubins[0])).unwrap_or(0)].to_string()
            };
            check(container.start, &container.header(), &module)?;
        }
        for (module, offset) in manifest.modules.iter().zip(&placed) {
            let (Some(offset), Some(code)) = (*offset, &module.code) else { continue };
            let header = fatbin::entry_header(module.arch()?, code.bytes);
            check(offset - header.len() as u64, &header, &|| module.to_string())?;
            let padding = [0; 8];
            let pad = code.bytes.next_multiple_of(8) - code.bytes;
            check(offset + code.bytes, &padding[..pad as usize], &|| module.to_string())?;
        }
        Ok(Self { manifest, digest, fatbin, placed })
    }

    /// Checks every digest; then that this program would make every module from the same sources; then what every cubin
    /// says of itself against the manifest and its key.
    ///
    /// # Errors
    /// An altered cubin before [`BundleError::Stale`] with all stale modules, before a claim that is not true.
    pub fn verify(&self) -> Result<(), BundleError> {
        let modules = self.manifest.modules.par_iter().zip(&self.placed);
        let findings: Vec<Finding> = modules.filter_map(|(module, at)| self.verify_module(module, *at).err()).collect();
        let (mut stale, mut untrue) = (Vec::new(), Vec::new());
        for finding in findings {
            match finding {
                Finding::Altered(error) => return Err(error),
                Finding::Stale(module) => stale.push(module),
                Finding::Untrue(error) => untrue.push(error),
            }
        }
        if !stale.is_empty() {
            return Err(Stale::new(&self.manifest, stale).into());
        }
        untrue.into_iter().next().map_or(Ok(()), Err)?;
        let has_code = self.manifest.modules.iter().any(|module| module.code.is_some());
        let (expected, found) = (OPTIONS.join(" "), self.manifest.options.join(" "));
        if has_code && expected != found {
            return Err(BundleError::Claim { module: "manifest".to_owned(), what: "options", expected, found });
        }
        Ok(())
    }

    fn verify_module(&self, module: &ModuleEntry, offset: Option<u64>) -> Result<(), Finding> {
        if let (Some(offset), Some(code)) = (offset, &module.code) {
            let found = Digest::of(self.image(offset, code));
            if found != code.digest {
                let (module, expected) = (module.to_string(), code.digest);
                return Err(Finding::Altered(BundleError::Digest { module, offset, expected, found }));
            }
        }
        let typed = module.typed().map_err(|_| Finding::Stale(StaleModule::Unknown(module.to_string())));
        let (pair, arch) = typed?;
        if module.source != pair.source_digest(arch) {
            return Err(Finding::Stale(StaleModule::Source(module.to_string())));
        }
        self.verify_claims(module, offset, &pair, arch).map_err(Finding::Untrue)
    }

    fn verify_claims(
        &self,
        module: &ModuleEntry,
        offset: Option<u64>,
        pair: &KeyVariant,
        arch: Arch,
    ) -> Result<(), BundleError> {
        let claim = |what, expected: &dyn ToString, found: &dyn ToString| {
            let (expected, found) = (expected.to_string(), found.to_string());
            if expected == found {
                return Ok(());
            }
            Err(BundleError::Claim { module: module.to_string(), what, expected, found })
        };
        claim("parameter block size", &pair.key.params_bytes(), &module.params_bytes)?;
        let (Some(offset), Some(code)) = (offset, &module.code) else {
            return claim("machine code", &(arch != Arch::Sim), &false);
        };
        let facts = CubinFacts::read(self.image(offset, code))
            .map_err(|source| BundleError::Cubin { module: module.to_string(), source })?;
        claim("architecture", &arch.target(), &facts.arch.as_str())?;
        claim("entry symbol", &pair.entry(arch), &facts.entry)?;
        claim("entry symbol", &code.entry, &facts.entry)?;
        claim("parameter block size", &module.params_bytes, &facts.params_bytes)?;
        claim("registers", &code.registers, &facts.registers)?;
        claim("static shared memory", &code.static_shared_bytes, &facts.static_shared_bytes)?;
        claim("stack frame", &code.stack_bytes, &facts.stack_bytes)?;
        claim("largest block", &code.max_threads, &facts.max_threads)?;
        claim("largest block", &pair.variant.threads(), &facts.max_threads)
    }

    fn image(&self, offset: u64, code: &Code) -> &'a [u8] {
        &self.fatbin[offset as usize..(offset + code.bytes) as usize]
    }

    /// What it holds.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Digest of the manifest, and so of everything the bundle holds.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The architectures it holds, sorted by name.
    pub fn archs(&self) -> Vec<Arch> {
        let mut archs: Vec<Arch> = self.manifest.modules.iter().map(arch_of).collect();
        archs.sort_unstable();
        archs.dedup();
        archs
    }

    /// Every module with machine code, whatever its key: bundles of other versions are looked at, too.
    pub fn cubins(&self) -> impl Iterator<Item = (&ModuleEntry, &'a [u8])> {
        let modules = self.manifest.modules.iter().zip(&self.placed);
        modules.filter_map(|(module, at)| Some((module, self.image((*at)?, module.code.as_ref()?))))
    }

    /// The modules of an architecture.
    ///
    /// # Errors
    /// [`ManifestError`] where this program does not know a key.
    pub fn modules(&self, arch: Arch) -> Result<Vec<Module<'_>>, ManifestError> {
        let of_arch = self.manifest.modules.iter().zip(&self.placed).filter(|(entry, _)| entry.arch == arch.name());
        of_arch
            .map(|(entry, offset)| {
                let (pair, arch) = entry.typed()?;
                let image = match (offset, &entry.code) {
                    (Some(offset), Some(code)) => self.image(*offset, code),
                    _ => &[],
                };
                Ok(Module { pair, arch, entry, image })
            })
            .collect()
    }
}

/// The content of the one section of this name.
fn section<'a>(file: &'a [u8], name: &'static str) -> Result<&'a [u8], BundleError> {
    let elf = |error: object::read::Error| BundleError::Elf(error.to_string());
    let header = FileHeader64::<Endianness>::parse(file).map_err(elf)?;
    let endian = header.endian().map_err(elf)?;
    let sections = header.sections(endian, file).map_err(elf)?;
    let found: Vec<_> = sections.iter().filter(|s| sections.section_name(endian, s) == Ok(name.as_bytes())).collect();
    let [section] = found[..] else { return Err(BundleError::Section { name, found: found.len() }) };
    section.data(endian, file).map_err(elf)
}
