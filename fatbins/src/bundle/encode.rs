//! Encodes bundles: a manifest and its cubins have exactly one file.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use object::Endianness;
use object::elf::{ELFOSABI_NONE, EM_NONE, ET_REL, FileFlags, SHF_ALLOC, SHT_PROGBITS};
use object::write::elf::{FileHeader, SectionHeader, Writer};

use precast_core::Arch;

use crate::fatbin::{self, Container};
use crate::manifest::{Code, Manifest, ModuleEntry};
use crate::{Digest, FATBIN_SECTION, MANIFEST_SECTION};

/// Architectures are known here: decoding a manifest refuses others.
pub(super) fn arch_of(module: &ModuleEntry) -> Arch {
    Arch::of_name(&module.arch).unwrap_or(Arch::Sim)
}

/// Returns the offset of every cubin of a manifest, and the size of the section. Kernels of one file share its cubin,
/// which lies where the first of them is.
pub(super) fn layout<'m>(manifest: &'m Manifest) -> (Vec<Container>, Vec<Option<u64>>, u64) {
    let mut containers = Vec::new();
    let mut placed = Vec::with_capacity(manifest.modules.len());
    let mut shared: BTreeMap<(Digest, u64, &str), u64> = BTreeMap::new();
    let mut end = 0u64;
    for group in manifest.modules.chunk_by(|a, b| (&a.key, &a.variant) == (&b.key, &b.variant)) {
        let image = |module: &'m ModuleEntry| Some((module.code.as_ref()?, &*module.arch));
        let own = |(code, arch): &(&Code, &str)| !shared.contains_key(&(code.digest, code.bytes, *arch));
        let sizes: Vec<u64> = group.iter().filter_map(image).filter(own).map(|(code, _)| code.bytes).collect();
        let container = Container::layout(end, &sizes);
        let mut cubins = container.cubins.iter();
        placed.extend(group.iter().map(|module| {
            let (code, arch) = image(module)?;
            match shared.entry((code.digest, code.bytes, arch)) {
                Entry::Occupied(place) => Some(*place.get()),
                Entry::Vacant(place) => cubins.next().map(|offset| *place.insert(*offset)),
            }
        }));
        if !sizes.is_empty() {
            end = container.end;
            containers.push(container);
        }
    }
    (containers, placed, end)
}

/// Encodes the two sections of a bundle: (fatbin containers, manifest). `cubin` returns the machine code of a module.
///
/// # Panics
/// If a cubin's size differs from the manifest's.
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

/// Wraps the two sections in an ELF object.
pub(super) fn elf(fatbin: &[u8], manifest: &[u8]) -> Vec<u8> {
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
    let header = FileHeader {
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
        writer.write_section_header(&SectionHeader {
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
/// If a cubin's size differs from the manifest's.
pub fn encode<'c>(manifest: &Manifest, cubin: impl Fn(&ModuleEntry) -> &'c [u8]) -> Vec<u8> {
    let (fatbin, manifest) = parts(manifest, cubin);
    elf(&fatbin, &manifest)
}
