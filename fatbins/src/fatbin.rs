//! NVIDIA's fatbin container, as `fatbinary` writes it: one header, then an entry header before each cubin.

use precast_core::Arch;

/// Magic number of a container.
const MAGIC: u32 = 0xBA55_ED50;
const CONTAINER_HEADER_BYTES: u64 = 16;
const ENTRY_HEADER_BYTES: u64 = 64;
/// Kind of an entry with a cubin; PTX is 1.
const KIND_CUBIN: u16 = 2;
/// 64-bit Linux host.
const FLAGS: u64 = 0x11;
/// The code runs only on its exact architecture (`a`).
const FLAG_EXACT: u64 = 0x10_0000;
/// Alignment of cubins, bytes.
const ALIGN: u64 = 8;

/// Offsets of the cubins of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Container {
    /// Offset of the container in its section.
    pub start: u64,
    /// Offset of each cubin in the section, in order.
    pub cubins: Vec<u64>,
    /// Offset past the container.
    pub end: u64,
}

impl Container {
    /// Lays out a container for cubins of these sizes. Saturates, so that absurd sizes fit no file.
    pub fn layout(start: u64, sizes: &[u64]) -> Self {
        let mut next = start.saturating_add(CONTAINER_HEADER_BYTES);
        let mut cubins = Vec::with_capacity(sizes.len());
        for size in sizes {
            next = next.saturating_add(ENTRY_HEADER_BYTES);
            cubins.push(next);
            next = next.saturating_add(size.checked_next_multiple_of(ALIGN).unwrap_or(u64::MAX));
        }
        Self { start, cubins, end: next }
    }

    /// Encodes the container's header.
    pub fn header(&self) -> [u8; CONTAINER_HEADER_BYTES as usize] {
        let mut header = [0; CONTAINER_HEADER_BYTES as usize];
        header[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        header[4..6].copy_from_slice(&1u16.to_le_bytes());
        header[6..8].copy_from_slice(&(CONTAINER_HEADER_BYTES as u16).to_le_bytes());
        header[8..16].copy_from_slice(&(self.end - self.start - CONTAINER_HEADER_BYTES).to_le_bytes());
        header
    }
}

/// Encodes the header before a cubin.
pub(crate) fn entry_header(arch: Arch, cubin_bytes: u64) -> [u8; ENTRY_HEADER_BYTES as usize] {
    let mut header = [0; ENTRY_HEADER_BYTES as usize];
    let (major, minor) = arch.compute_capability().unwrap_or((0, 0));
    let flags = if arch.is_exact() { FLAGS | FLAG_EXACT } else { FLAGS };
    let mut put = |offset: usize, bytes: &[u8]| header[offset..offset + bytes.len()].copy_from_slice(bytes);
    put(0, &KIND_CUBIN.to_le_bytes());
    put(2, &0x0101u16.to_le_bytes()); // version of the entry header
    put(4, &(ENTRY_HEADER_BYTES as u32).to_le_bytes());
    put(8, &cubin_bytes.next_multiple_of(ALIGN).to_le_bytes());
    put(24, &8u16.to_le_bytes()); // cubin ABI minor, major
    put(26, &1u16.to_le_bytes());
    put(28, &(10 * major + minor).to_le_bytes());
    put(40, &flags.to_le_bytes());
    header
}
