//! The checksum that ends an APR file, of everything before it.

use std::io;
use std::ops::Range;
use std::sync::OnceLock;

use crc32fast::Hasher;
use rayon::prelude::*;

use super::fault::Fault;
use super::file::{Access, Raw, WeightFile};

/// Bytes that it takes in a file.
pub(super) const CHECKSUM_BYTES: u64 = 4;
/// Bytes whose checksum one task computes.
const TASK_BYTES: u64 = 1 << 20;

/// A file's own checksum, and that of its bytes, once it is computed.
#[derive(Default)]
pub(super) struct Checksum(OnceLock<(u32, u32)>);

impl Checksum {
    /// Verifies it. The first call reads the file.
    pub fn check(&self, file: &WeightFile, access: Access) -> Result<(), Fault> {
        let (said, found) = match self.0.get() {
            Some(checksums) => *checksums,
            None => {
                let checksums = read(file, access)?;
                *self.0.get_or_init(|| checksums)
            }
        };
        compare("the file", said, found)
    }
}

/// Compares what a file says with what its bytes give.
pub(super) fn compare(of: &str, said: u32, found: u32) -> Result<(), Fault> {
    let differ = || {
        format!(
            "the checksum of {of} is {found:08x} and the file says {said:08x}: it is truncated or damaged, fetch it \
            again"
        )
    };
    if said == found { Ok(()) } else { Err(Fault::Wrong(differ())) }
}

fn read(file: &WeightFile, access: Access) -> io::Result<(u32, u32)> {
    let end = file.bytes - CHECKSUM_BYTES;
    let mut raw = Raw::new(access);
    let footer = file.part(end..file.bytes, &mut raw)?;
    let said = u32::from_le_bytes(footer.try_into().expect("four bytes"));
    let parts: Vec<Range<u64>> =
        (0..end.div_ceil(TASK_BYTES)).map(|i| i * TASK_BYTES..((i + 1) * TASK_BYTES).min(end)).collect();
    let hash = |raw: &mut Raw, part| {
        let mut hasher = Hasher::new();
        hasher.update(file.part(part, raw)?);
        Ok(hasher)
    };
    let hashed: Vec<Hasher> = parts.into_par_iter().map_init(|| Raw::new(access), hash).collect::<io::Result<_>>()?;
    let mut all = Hasher::new();
    hashed.iter().for_each(|part| all.combine(part));
    Ok((said, all.finalize()))
}
