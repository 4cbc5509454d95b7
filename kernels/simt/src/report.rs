//! Reports a broken rule of a launch to people: the rule, the place in memory, and both accesses with their lines.

use std::path::Path;
use std::process::Command;

use precast_core::Geometry;

use crate::launch::{RawAccess, RawReport};

/// Stands in debugging information for the directory that an object was compiled in.
pub(crate) const SOURCES: &str = "/simt";

/// The first thing that is wrong with a launch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule}{}\n  {now}{}", behind(": ", place), behind("\n  ", before))]
pub struct Report {
    /// The rule that is broken.
    pub rule: &'static str,
    /// Place in memory, of a rule about one.
    pub place: Option<String>,
    /// Access that breaks it.
    pub now: String,
    /// Earlier access in conflict with it.
    pub before: Option<String>,
}

fn behind(sign: &str, text: &Option<String>) -> String {
    text.as_ref().map_or_else(String::new, |text| format!("{sign}{text}"))
}

const RULES: [&str; 23] = [
    "nothing",
    "access out of bounds",
    "write to an operand that is only read",
    "misaligned access",
    "read of uninitialized memory",
    "multiplication of uninitialized registers",
    "data race",
    "access to memory that an asynchronous copy has not finished with",
    "divergent barrier",
    "warp operation that some lanes do not reach",
    "deadlock",
    "use of an uninitialized mbarrier",
    "mbarrier without fence.mbarrier_init after its initialization",
    "more arrivals than the mbarrier expects",
    "mbarrier expects other bytes than its copies write",
    "asynchronous access without fence.proxy.async before it",
    "access to registers that wgmma has not finished with",
    "wgmma of registers without wgmma.fence before it",
    "invalid tensor map or matrix descriptor, or one without 128-byte swizzle",
    "access to shared memory of a block that may have ended",
    "more registers than a thread may have, or than the warpgroups have released",
    "grid that is not a multiple of the cluster",
    "instruction that the machine does not implement",
];

const ACTIONS: [&str; 14] = [
    "",
    "read",
    "write",
    "asynchronous copy",
    "waits",
    "ended",
    "acquire",
    "release",
    "bulk copy",
    "wgmma",
    "remote store",
    "arrives",
    "atomic operation",
    "atomic operation",
];

impl Report {
    /// From the machine's. `operands` and `shared` are names and sizes in bytes.
    pub(crate) fn new(
        raw: &RawReport,
        operands: &[(&str, u64)],
        shared: &[(&str, u64)],
        geometry: &Geometry,
        file: &Path,
        base: u64,
    ) -> Self {
        let memory = match raw.space {
            1 => operands.get(raw.index as usize).map(|(name, size)| (format!("operand `{name}`"), *size)),
            2 => shared.get(raw.index as usize).map(|(name, size)| (format!("shared `{name}`"), *size)),
            3 => Some(("dynamic shared memory".to_owned(), geometry.shared_bytes.into())),
            _ => None,
        };
        let of_block = match raw.owner {
            0 => String::new(),
            owner => format!(" of block {}", index(owner as u32 - 1, geometry.grid)),
        };
        let place = memory.map(|(name, size)| {
            format!("{} bytes at byte {} of {name}{of_block} ({size} bytes)", raw.bytes, raw.offset)
        });
        let access = |access: &RawAccess| {
            let action = ACTIONS.get(access.action as usize).copied().unwrap_or("unknown");
            let (block, thread) = (index(access.block, geometry.grid), index(access.thread, geometry.block));
            let at = if access.pc == 0 { String::new() } else { format!(" at {}", lines(access.pc - base, file)) };
            format!("block {block} thread {thread}: {action}{at}")
        };
        Self {
            rule: RULES.get(raw.kind as usize).copied().unwrap_or("unknown"),
            place,
            now: if raw.now.action == 0 { "at its launch".to_owned() } else { access(&raw.now) },
            before: (raw.before.action != 0).then(|| access(&raw.before)),
        }
    }
}

/// A linear index as (x, y, z).
fn index(linear: u32, size: [u32; 3]) -> String {
    format!("({}, {}, {})", linear % size[0], linear / size[0] % size[1], linear / size[0] / size[1])
}

/// Source lines of the call that returns to `address`: where it is written, and where what was inlined is used.
pub(crate) fn lines(address: u64, file: &Path) -> String {
    let call = format!("{:#x}", address - 1);
    let output = Command::new("addr2line").args(["--inlines", "--exe"]).arg(file).arg(call).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let frames = text.lines().filter_map(|line| {
        let line = line.split(" (discriminator").next()?;
        let line = line.strip_prefix(SOURCES)?.strip_prefix('/')?.trim_start_matches("./");
        // The machine's own headers are not what a person looks for.
        (!line.starts_with("../") && !line.starts_with("kernel.cc")).then(|| line.to_owned())
    });
    let frames: Vec<String> = frames.collect();
    if frames.is_empty() { "an unknown line".to_owned() } else { frames.join(", from ") }
}
