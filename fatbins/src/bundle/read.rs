//! Reads a bundle.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, SectionHeader};
use precast_core::{Arch, Kernels, KeyVariant, Registry};

use super::encode::{arch_of, elf, layout};
use super::error::BundleError;
use crate::fatbin;
use crate::manifest::{Code, Manifest, ManifestError, ModuleEntry};
use crate::{Digest, FATBIN_SECTION, MANIFEST_SECTION};

/// A bundle with checked structure. Digests and cubins are unchecked until [`Bundle::verify`] or [`Bundle::examine`].
/// `K` is the type of the list that it was read for: a [`Registry`], or [`Kernels`], of which some have no host
/// reference.
pub struct Bundle<'a, K = Registry> {
    /// Kernels of the program that reads it.
    pub(super) kernels: &'static Kernels,
    of: PhantomData<fn() -> K>,
    pub(super) manifest: Manifest,
    digest: Digest,
    fatbin: &'a [u8],
    /// Offset of each module's cubin in the section.
    pub(super) placed: Vec<Option<u64>>,
}

/// A module of a bundle.
#[derive(Clone, Debug)]
pub struct Module<'a> {
    /// Kernel that it has the code of.
    pub pair: KeyVariant,
    /// Architecture that it was compiled for.
    pub arch: Arch,
    /// Row of the manifest.
    pub entry: &'a ModuleEntry,
    /// The cubin; empty for the simulated GPU.
    pub image: &'a [u8],
}

impl<K> Clone for Bundle<'_, K> {
    fn clone(&self) -> Self {
        Self { manifest: self.manifest.clone(), placed: self.placed.clone(), ..*self }
    }
}

impl<K> fmt::Debug for Bundle<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle").field("manifest", &self.manifest).finish_non_exhaustive()
    }
}

impl<'a, K: AsRef<Kernels>> Bundle<'a, K> {
    /// Reads a bundle file for the program with these kernels: a bounded parse, then equality with the canonical
    /// encoding.
    ///
    /// # Errors
    /// [`BundleError`]: no part of the file may be used.
    pub fn read(file: &'a [u8], kernels: &'static K) -> Result<Self, BundleError> {
        let fatbin = section(file, FATBIN_SECTION)?;
        let manifest = section(file, MANIFEST_SECTION)?;
        let bundle = Self::from_parts(manifest, fatbin, kernels)?;
        let canonical = elf(fatbin, manifest);
        if canonical == file {
            return Ok(bundle);
        }
        let differs = canonical.iter().zip(file).position(|(a, b)| a != b);
        Err(BundleError::NotCanonical { offset: differs.unwrap_or(canonical.len().min(file.len())) })
    }

    /// Reads the two sections of a bundle, as a program embeds them.
    ///
    /// # Errors
    /// [`BundleError`] if either is not canonical.
    pub fn from_parts(manifest: &[u8], fatbin: &'a [u8], kernels: &'static K) -> Result<Self, BundleError> {
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
        Ok(Self { kernels: kernels.as_ref(), of: PhantomData, manifest, digest, fatbin, placed })
    }
}

impl<'a> Bundle<'a, Kernels> {
    /// Returns the part whose kernels a registry has, of a program that has others too: for plans and the self-test.
    /// Its [`digest`](Bundle::digest) is the whole bundle's.
    pub fn of_registry(&self, registry: &'static Registry) -> Bundle<'a, Registry> {
        let Self { digest, fatbin, .. } = *self;
        let rows = self.manifest.modules.iter().cloned().zip(self.placed.iter().copied());
        let (modules, placed) = rows.filter(|(module, _)| registry.parse(&module.key).is_ok()).unzip();
        let manifest = Manifest { modules, ..self.manifest.clone() };
        Bundle { kernels: registry.as_ref(), of: PhantomData, manifest, digest, fatbin, placed }
    }
}

impl<'a, K> Bundle<'a, K> {
    pub(super) fn image(&self, offset: u64, code: &Code) -> &'a [u8] {
        &self.fatbin[offset as usize..(offset + code.bytes) as usize]
    }

    /// Returns the kernels that it was read for.
    pub fn kernels(&self) -> &'static Kernels {
        self.kernels
    }

    /// Returns the manifest, as it was read.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Encodes the bundle file.
    ///
    /// # Panics
    /// If this is a part, which [`of_registry`](Bundle::of_registry) returns: the machine code is the whole bundle's.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.manifest.digest() == self.digest, "a part of a bundle is no bundle");
        elf(self.fatbin, &self.manifest.encode())
    }

    /// Returns the digest of the manifest that was read, which covers everything in the bundle.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the architectures with modules, sorted by name.
    pub fn archs(&self) -> Vec<Arch> {
        self.manifest.modules.iter().map(arch_of).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns every module with machine code, also under keys of other versions, for inspection.
    pub fn cubins(&self) -> impl Iterator<Item = (&ModuleEntry, &'a [u8])> {
        let modules = self.manifest.modules.iter().zip(&self.placed);
        modules.filter_map(|(module, at)| Some((module, self.image((*at)?, module.code.as_ref()?))))
    }

    /// Returns the modules of an architecture.
    ///
    /// # Errors
    /// [`ManifestError`] if this program does not know a key.
    pub fn modules(&self, arch: Arch) -> Result<Vec<Module<'_>>, ManifestError> {
        let of_arch = self.manifest.modules.iter().zip(&self.placed).filter(|(entry, _)| entry.arch == arch.name());
        of_arch
            .map(|(entry, offset)| {
                let (pair, arch) = entry.typed(self.kernels)?;
                let image = match (offset, &entry.code) {
                    (Some(offset), Some(code)) => self.image(*offset, code),
                    _ => &[],
                };
                Ok(Module { pair, arch, entry, image })
            })
            .collect()
    }
}

/// Returns the content of the only section with this name.
fn section<'a>(file: &'a [u8], name: &'static str) -> Result<&'a [u8], BundleError> {
    let header = FileHeader64::<Endianness>::parse(file)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, file)?;
    let found: Vec<_> = sections.iter().filter(|s| sections.section_name(endian, s) == Ok(name.as_bytes())).collect();
    let [section] = found[..] else { return Err(BundleError::Section { name, found: found.len() }) };
    Ok(section.data(endian, file)?)
}
