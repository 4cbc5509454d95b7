//! Copies between the GPUs of one host by copy engines, which take no multiprocessors from concurrent kernels. NCCL's
//! send and receive are kernels, and a GEMM with one CTA per multiprocessor takes twice as long beside any.
//!
//! A rank opens the others' memory and copies their sends. Flags in host memory that all ranks share record progress:
//! the devices write them and wait for them in stream order. An exchange begins when the sends of all ranks are ready,
//! and ends when all are copied.

use std::fs::{self, OpenOptions};
use std::sync::Arc;

use cudarc::driver::sys;

use super::agreement::{AllGather, decode, encode};
use super::flags::{self, Flag, Flags, Registered, SHARED};
use crate::cuda::call::{check, check_on};
use crate::driver::{BoundExchange, DriverError};

/// The kernel's identifier of a host's boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Memory that a rank exports to the others, as text: each field fits a line.
struct Export {
    host: String,
    base: u64,
    bytes: u64,
    handle: [u8; 64],
    /// Path of the flags that rank 0 created; empty on the others.
    flags: String,
}

impl Export {
    fn text(&self) -> String {
        let handle: String = self.handle.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}\n{}\n{}\n{handle}\n{}", self.host, self.base, self.bytes, self.flags)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.split('\n');
        let (host, base, bytes) = (lines.next()?.to_owned(), lines.next()?.parse().ok()?, lines.next()?.parse().ok()?);
        let hex = lines.next()?;
        let mut handle = [0; 64];
        for (index, byte) in handle.iter_mut().enumerate() {
            *byte = u8::from_str_radix(hex.get(2 * index..2 * index + 2)?, 16).ok()?;
        }
        Some(Self { host, base, bytes, handle, flags: lines.next()?.to_owned() })
    }
}

/// A range of another rank's memory.
#[derive(Clone, Copy)]
struct Range {
    /// Start and length in the owner's address space.
    base: u64,
    bytes: u64,
    /// Start in this rank's address space.
    mapped: u64,
}

impl Range {
    /// Translates an address of the other rank; none outside of the range.
    fn here(&self, address: u64, bytes: u64) -> Option<u64> {
        let offset = address.checked_sub(self.base)?;
        (offset.checked_add(bytes)? <= self.bytes).then(|| self.mapped + offset)
    }
}

/// Another rank's opened memory.
struct Peer(Range);

impl Drop for Peer {
    fn drop(&mut self) {
        // SAFETY: it was opened when this value was made, and nothing copies from it any more.
        let _ = unsafe { sys::cuIpcCloseMemHandle(self.0.mapped) };
    }
}

/// One rank's connections to the ranks of its host.
pub(super) struct Copies {
    rank: u32,
    /// By rank; none at this rank.
    peers: Vec<Option<Peer>>,
    flags: Arc<Registered>,
}

/// A copy from another rank's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cuda) struct PeerCopy {
    from: u32,
    source: u64,
    destination: u64,
    bytes: u64,
}

fn text(error: DriverError) -> String {
    error.to_string()
}

impl Copies {
    /// Opens the memory of all ranks, one allocation each. `wanted` carries a reason not to; if one rank declines or
    /// fails, all do.
    ///
    /// # Errors
    /// The reason that copies cannot be used, equal on all ranks; or the error of `all_gather`.
    pub fn open(
        (rank, ranks): (u32, u32),
        memory: &[(u64, u64)],
        wanted: Result<(), String>,
        all_gather: &mut AllGather,
    ) -> Result<Result<Self, String>, String> {
        let mut created = None;
        let export = wanted.and_then(|()| {
            let [(base, bytes)] = *memory else { return Err("memory is not one allocation".to_owned()) };
            let host = fs::read_to_string(BOOT).map_err(|error| format!("{BOOT}: {error}"))?.trim().to_owned();
            let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
            // SAFETY: writes one handle of memory that was allocated.
            check("cuIpcGetMemHandle", unsafe { sys::cuIpcGetMemHandle(&mut handle, base) }).map_err(text)?;
            let flags = if rank == 0 {
                let (path, _) = created.insert(flags::create(ranks).map_err(|error| format!("{SHARED}: {error}"))?);
                path.display().to_string()
            } else {
                String::new()
            };
            Ok(Export { host, base, bytes, handle: handle.reserved.map(|byte| byte as u8), flags })
        });
        let exports = all_gather(&encode(export.map(|export| export.text())));
        let opened = exports.and_then(|exports| {
            // All ranks read the same: a refusal is known to all, by the rank that refuses.
            let exports = match decode(&exports) {
                Ok(exports) => exports,
                Err(why) => return Ok(Err(why)),
            };
            let exports: Option<Vec<Export>> = exports.iter().map(|text| Export::parse(text)).collect();
            let exports = exports.ok_or_else(|| "what a rank exports cannot be read".to_owned());
            let (opened, why) = match exports.and_then(|exports| Self::map((rank, ranks), &exports)) {
                Ok(opened) => (Some(opened), Ok(String::new())),
                Err(why) => (None, Err(why)),
            };
            let all = decode(&all_gather(&encode(why))?);
            Ok(all.and_then(|_| opened.ok_or_else(String::new)))
        });
        // All ranks have it open, or none needs it.
        if let Some((path, _)) = created {
            let _ = fs::remove_file(path);
        }
        opened
    }

    fn map((rank, ranks): (u32, u32), exports: &[Export]) -> Result<Self, String> {
        let [first, ..] = exports else { return Err("there are no ranks".to_owned()) };
        if exports.iter().any(|export| export.host != first.host) {
            return Err("ranks are on several hosts".to_owned());
        }
        let open = |(of, export): (u32, &Export)| {
            if of == rank {
                return Ok(None);
            }
            let mut mapped = 0;
            let handle = sys::CUipcMemHandle { reserved: export.handle.map(|byte| byte as _) };
            let flags = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
            // SAFETY: writes one address; the handle is the driver's of another process.
            let result = unsafe { sys::cuIpcOpenMemHandle_v2(&mut mapped, handle, flags) };
            check_on("cuIpcOpenMemHandle", result, &format!("rank {of}")).map_err(text)?;
            Ok(Some(Peer(Range { base: export.base, bytes: export.bytes, mapped })))
        };
        let peers = (0..).zip(exports).map(open).collect::<Result<_, String>>()?;
        let path = &first.flags;
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(|error| format!("{path}: {error}"))?;
        let flags = Flags::open(&file, ranks).and_then(Registered::new).map_err(|why| format!("{path}: {why}"))?;
        Ok(Self { rank, peers, flags: Arc::new(flags) })
    }

    pub fn flags(&self) -> &Arc<Registered> {
        &self.flags
    }

    /// Matches this rank's receives with the others' sends.
    ///
    /// # Errors
    /// The error of `all_gather`, and sends and receives that do not match.
    pub fn prepare(&self, exchange: &BoundExchange, all_gather: &mut AllGather) -> Result<Vec<PeerCopy>, String> {
        let sends = exchange.sends.iter().map(|(to, address, bytes)| format!("{to} {address} {bytes}"));
        let all_sends = all_gather(sends.collect::<Vec<_>>().join("\n").as_bytes())?;
        let peers: Vec<Option<Range>> = self.peers.iter().map(|peer| peer.as_ref().map(|peer| peer.0)).collect();
        matched(self.rank, exchange, &all_sends, &peers)
    }

    /// Enqueues an exchange on a stream.
    pub fn exchange(&self, label: &str, copies: &[PeerCopy], stream: sys::CUstream) -> Result<(), DriverError> {
        let number = self.flags.count();
        self.signal(Flag::Ready, number, stream)?;
        self.wait(Flag::Ready, number, stream)?;
        for PeerCopy { source, destination, bytes, .. } in copies {
            // SAFETY: ranges of memory of this rank and of another one's, which has it until the exchange has ended.
            let copied = unsafe { sys::cuMemcpyDtoDAsync_v2(*destination, *source, *bytes as usize, stream) };
            check_on("cuMemcpyDtoDAsync", copied, &label)?;
        }
        self.signal(Flag::Done, number, stream)?;
        self.wait(Flag::Done, number, stream)
    }

    fn others(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.peers).filter(|(_, peer)| peer.is_some()).map(|(rank, _)| rank)
    }

    fn signal(&self, flag: Flag, number: u32, stream: sys::CUstream) -> Result<(), DriverError> {
        self.others().try_for_each(|to| {
            let address = self.flags.address(flag, self.rank, to);
            // SAFETY: a word of registered memory. It is written when all that was asked of the stream before can be
            // seen.
            check("cuStreamWriteValue32", unsafe { sys::cuStreamWriteValue32_v2(stream, address, number, 0) })
        })
    }

    fn wait(&self, flag: Flag, number: u32, stream: sys::CUstream) -> Result<(), DriverError> {
        let at_least = sys::CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as u32;
        self.others().try_for_each(|from| {
            let address = self.flags.address(flag, from, self.rank);
            // SAFETY: as above.
            check("cuStreamWaitValue32", unsafe { sys::cuStreamWaitValue32_v2(stream, address, number, at_least) })
        })
    }
}

/// Returns the copies that fill a rank's receives. `all_sends` and `peers` (memory) are by rank; `peers` has none at
/// its own.
fn matched(
    rank: u32,
    exchange: &BoundExchange,
    all_sends: &[Vec<u8>],
    peers: &[Option<Range>],
) -> Result<Vec<PeerCopy>, String> {
    let mut copies = Vec::new();
    // Ranks start with different peers.
    let ranks = peers.len() as u32;
    for from in (1..=ranks).map(|step| (rank + step) % ranks) {
        let text = String::from_utf8_lossy(&all_sends[from as usize]);
        let sends: Option<Vec<(u64, u64, u64)>> = text.lines().map(send).collect();
        let sends = sends.ok_or_else(|| format!("the sends of rank {from} cannot be read"))?;
        let mut sends = sends.into_iter().filter(|(to, ..)| *to == u64::from(rank));
        for (_, destination, bytes) in exchange.receives.iter().filter(|(of, ..)| *of == from) {
            let source = sends.next().filter(|(.., sent)| sent == bytes).and_then(|(_, address, _)| {
                peers[from as usize].map_or(Some(address), |range| range.here(address, *bytes))
            });
            let source = source.ok_or_else(|| format!("rank {from} does not send what rank {rank} receives"))?;
            copies.push(PeerCopy { from, source, destination: *destination, bytes: *bytes });
        }
        if sends.next().is_some() {
            return Err(format!("rank {from} sends what rank {rank} does not receive"));
        }
    }
    Ok(copies)
}

/// Parses a line: rank, address and bytes.
fn send(line: &str) -> Option<(u64, u64, u64)> {
    let numbers: Option<Vec<u64>> = line.split(' ').map(|number| number.parse().ok()).collect();
    let [to, address, bytes] = numbers?[..] else { return None };
    Some((to, address, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_reads_as_it_was_written() {
        let handle = std::array::from_fn(|index| index as u8 * 3);
        let export = Export { host: "a-b".to_owned(), base: 1 << 40, bytes: 7, handle, flags: "/dev/shm/x".to_owned() };
        let read = Export::parse(&export.text()).unwrap();
        assert_eq!((read.host.as_str(), read.base, read.bytes, read.handle), ("a-b", 1 << 40, 7, handle));
        assert_eq!(read.flags, "/dev/shm/x");
        assert!(Export::parse("a\n1\n2\nxyz\n").is_none() && Export::parse("").is_none());
    }

    /// Returns the copies of rank 1 of three: rank, source, destination and bytes. `receives` are ranks, addresses and
    /// bytes. The others' 100 bytes from 1000 on are mapped at 5000 and at 9000.
    fn copies(receives: &[(u32, u64, u64)], all_sends: [&str; 3]) -> Result<Vec<(u32, u64, u64, u64)>, String> {
        let exchange = BoundExchange { sends: Vec::new(), receives: receives.to_vec() };
        let range = |mapped| Some(Range { base: 1000, bytes: 100, mapped });
        let all_sends = all_sends.map(|text| text.as_bytes().to_vec());
        let copies = matched(1, &exchange, &all_sends, &[range(5000), None, range(9000)])?;
        Ok(copies.iter().map(|copy| (copy.from, copy.source, copy.destination, copy.bytes)).collect())
    }

    #[test]
    fn a_rank_copies_what_others_send_it_in_their_order() {
        let all_sends = ["1 1000 8\n2 1004 4\n1 1092 8", "1 300 2", "0 1000 4\n1 1010 16"];
        let receives = [(0, 70, 8), (2, 80, 16), (1, 90, 2), (0, 60, 8)];
        let expected = vec![(2, 9010, 80, 16), (0, 5000, 70, 8), (0, 5092, 60, 8), (1, 300, 90, 2)];
        assert_eq!(copies(&receives, all_sends), Ok(expected));
    }

    #[test]
    fn sends_and_receives_that_do_not_match_are_refused() {
        let taken = Err("rank 0 does not send what rank 1 receives".to_owned());
        // Another length, another order, nothing, a send to another rank.
        assert_eq!(copies(&[(0, 70, 8)], ["1 1000 4", "", ""]), taken);
        assert_eq!(copies(&[(0, 70, 8), (0, 80, 4)], ["1 1000 4\n1 1004 8", "", ""]), taken);
        assert_eq!(copies(&[(0, 70, 8)], ["", "", ""]), taken);
        assert_eq!(copies(&[(0, 70, 8)], ["2 1000 8", "", ""]), taken);
        // Below the memory, above it, and past the address space.
        for address in ["999", "1093", "18446744073709551615"] {
            assert_eq!(copies(&[(0, 70, 8)], [&format!("1 {address} 8"), "", ""]), taken, "{address}");
        }
        assert_eq!(copies(&[(0, 70, u64::MAX)], ["1 1001 18446744073709551615", "", ""]), taken);
        // Ignoring this would lose data silently.
        let left = Err("rank 2 sends what rank 1 does not receive".to_owned());
        assert_eq!(copies(&[(2, 70, 8)], ["", "", "1 1000 8\n1 1008 8"]), left);
        assert_eq!(copies(&[], ["", "", "1 1000 8"]), left);
    }

    #[test]
    fn sends_that_cannot_be_read_are_refused() {
        for line in ["1 1000", "1 1000 8 9", "1 a 8", "1 -1 8", "1  8", "?"] {
            let sends = format!("1 1000 8\n{line}");
            let refused = Err("the sends of rank 2 cannot be read".to_owned());
            assert_eq!(copies(&[(2, 70, 8)], ["", "", &sends]), refused, "{line}");
        }
    }
}
