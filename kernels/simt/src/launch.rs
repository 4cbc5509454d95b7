//! Twins of `machine/launch.h`, which pass between Rust and the machine, and the one call across.

/// Memory an operand of a launch lives in.
#[derive(Debug)]
pub struct Operand<'a> {
    /// Its name in reports.
    pub name: &'a str,
    /// Its content, before and after the launch.
    pub bytes: &'a mut [u8],
    /// True if the launch may write it.
    pub writable: bool,
    /// True if it holds values before the launch.
    pub written: bool,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Region {
    pub base: u64,
    pub bytes: u64,
    pub writable: u32,
    pub written: u32,
}

/// `Launch` of the machine, with addresses for its pointers.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Launch {
    pub entry: u64,
    pub params: u64,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub dynamic_shared_bytes: u64,
    pub seed: u64,
    pub constants: Region,
    pub operands: u64,
    pub operand_count: u64,
    pub shared: u64,
    pub shared_count: u64,
    /// CTAs of a cluster.
    pub cluster: u32,
    /// CTAs that a multiprocessor must be able to hold.
    pub resident_blocks: u32,
    /// Not 0 if it has Hopper's instructions.
    pub by_clocks: u32,
    pub reserved: u32,
}

/// `Access` of the machine.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawAccess {
    pub pc: u64,
    pub action: u32,
    pub block: u32,
    pub thread: u32,
    pub reserved: u32,
}

/// `Report` of the machine.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawReport {
    pub kind: u32,
    pub space: u32,
    pub index: u64,
    pub offset: i64,
    pub bytes: u64,
    pub owner: u64,
    pub now: RawAccess,
    pub before: RawAccess,
}

/// `Count` of the machine.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawCount {
    pub pc: u64,
    pub traffic: u32,
    pub reserved: u32,
    pub requests: u64,
    pub moved: u64,
    pub needed: u64,
}

/// `simt_launch`, which counts if there is a vector to receive the counts.
pub(crate) type Run = unsafe extern "C" fn(
    *const Launch,
    *mut RawReport,
    unsafe extern "C" fn(*mut Vec<RawCount>, *const RawCount),
    *mut Vec<RawCount>,
);

pub(crate) unsafe extern "C" fn receive(counts: *mut Vec<RawCount>, count: *const RawCount) {
    // SAFETY: the machine hands on the vector that it was given, and a count of its own.
    unsafe { (*counts).push(*count) };
}
