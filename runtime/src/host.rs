//! Reads the host's memory from /proc.

use std::path::PathBuf;

use precast_system::input;

/// Directory in place of /proc, with which tests describe other machines.
const PROC: &str = "PRECAST_PROC";

fn read(name: &str) -> Option<String> {
    let proc = std::env::var_os(PROC).map_or_else(|| PathBuf::from("/proc"), PathBuf::from);
    input::read_text(&proc.join(name), input::SETTINGS_BYTES).ok()
}

/// Memory of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostBytes {
    /// All of it, bytes.
    pub total: u64,
    /// Available without swapping: reclaimable page cache counts as available.
    pub available: u64,
}

/// Returns the host's total and available memory, bytes; none if the system does not tell.
pub fn memory() -> Option<HostBytes> {
    let text = read("meminfo")?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
        kib.checked_mul(1024)
    };
    Some(HostBytes { total: field("MemTotal")?, available: field("MemAvailable")? })
}

/// Returns the bytes reserved for the system where host and device share memory: without any the machine stalls, and no
/// process is killed.
pub fn reserve_bytes(total: u64) -> u64 {
    (total / 32).max(512 << 20)
}

/// Returns the bytes that a run can take of one memory of host and device, with `available` of `total` bytes.
pub fn takeable_bytes(total: u64, available: u64) -> u64 {
    available.min(total).saturating_sub(reserve_bytes(total))
}

/// Returns the share of free pages in runs of at least 2^9 pages, the size of the driver's own pages; none if the
/// system does not tell. The page cache is not free.
pub fn unfragmented_share() -> Option<f64> {
    share(&read("buddyinfo")?)
}

fn share(buddyinfo: &str) -> Option<f64> {
    let (mut all, mut long) = (0u64, 0u64);
    for line in buddyinfo.lines() {
        // `Node 0, zone   Normal   1046    527 ...`: number of runs of 1 page, of 2, of 4 and so on.
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
        let text = "Node 0, zone      DMA      0      0      0      0      0      0      0      0      0      0      \
            1\n\
                    Node 0, zone   Normal   1024      0      0      0      0      0      0      0      0      2      \
                    2\n";
        // 1024 single pages, two runs of 512 and three of 1024.
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
