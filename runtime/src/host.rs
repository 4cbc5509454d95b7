//! The host's memory, as /proc says it.

use std::path::PathBuf;

use precast_system::input;

/// Names another directory than /proc: tests describe other machines so.
const PROC: &str = "PRECAST_PROC";

fn read(name: &str) -> Option<String> {
    let proc = std::env::var_os(PROC).map_or_else(|| PathBuf::from("/proc"), PathBuf::from);
    input::read_text(&proc.join(name), input::SETTINGS_BYTES).ok()
}

/// Bytes of the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostBytes {
    pub total: u64,
    /// What can be taken without swapping: what the page cache holds and gives back is not counted as used.
    pub available: u64,
}

/// All of the host's memory and what of it can be taken; none where the system does not say.
pub fn memory() -> Option<HostBytes> {
    let text = read("meminfo")?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
        kib.checked_mul(1024)
    };
    Some(HostBytes { total: field("MemTotal")?, available: field("MemAvailable")? })
}

/// What stays with the system where host and device have one memory: a machine that has none left stops, and nothing ends a
/// process for it.
pub fn reserve_bytes(total: u64) -> u64 {
    (total / 32).max(512 << 20)
}

/// What a run can take of one memory of so many bytes, of which so many are available.
pub fn takeable_bytes(total: u64, available: u64) -> u64 {
    available.min(total).saturating_sub(reserve_bytes(total))
}

/// The share of free pages that lie in runs of 2^9 pages and more, which are as long as the driver's own pages; none where the
/// system does not say. What the page cache holds is not free.
pub fn unfragmented_share() -> Option<f64> {
    share(&read("buddyinfo")?)
}

fn share(buddyinfo: &str) -> Option<f64> {
    let (mut all, mut long) = (0u64, 0u64);
    for line in buddyinfo.lines() {
        // `Node 0, zone   Normal   1046    527 ...`: runs of 1 page, of 2, of 4 and so on.
        let counts = line.split_once("zone")?.1.split_whitespace().skip(1);
        for (order, count) in counts.enumerate() {
            let pages = count.parse::<u64>().ok()?.checked_shl(order as u32)?;
            all += pages;
            long += if order >= 9 { pages } else { 0 };
        }
    }
    (all > 0).then(|| long as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_runs_are_a_share_of_what_is_free() {
        let text = "Node 0, zone      DMA      0      0      0      0      0      0      0      0      0      0      1\n\
                    Node 0, zone   Normal   1024      0      0      0      0      0      0      0      0      2      2\n";
        // 1024 pages one by one; two runs of 512 and three of 1024.
        assert_eq!(share(text), Some(4096.0 / 5120.0));
        for wrong in ["", "Node 0, zone Normal", "Node 0, zone Normal x", "nothing"] {
            assert_eq!(share(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_reserve_is_kept() {
        const GIB: u64 = 1 << 30;
        assert_eq!(takeable_bytes(128 * GIB, 100 * GIB), 96 * GIB);
        assert_eq!(takeable_bytes(8 * GIB, 100 * GIB), 8 * GIB - (GIB >> 1));
        assert_eq!(takeable_bytes(8 * GIB, 100), 0);
    }
}
