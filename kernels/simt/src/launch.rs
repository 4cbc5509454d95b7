//! Passes launches from Rust to the machine: the twins of `machine/launch.h`, and the one call across.

use std::ffi::c_void;

use precast_core::Geometry;

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
#[derive(Clone, Copy)]
pub(crate) struct Region {
    pub base: u64,
    pub bytes: u64,
    pub writable: u32,
    pub written: u32,
}

#[repr(C)]
pub(crate) struct Launch {
    pub entry: *const c_void,
    pub params: *const c_void,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub dynamic_shared_bytes: u64,
    pub seed: u64,
    pub constants: Region,
    pub operands: *const Region,
    pub operand_count: u64,
    pub shared: *const Region,
    pub shared_count: u64,
    pub cluster: u32,
    pub resident_blocks: u32,
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

/// `simt_launch`.
pub(crate) type Run = unsafe extern "C" fn(*const Launch, *mut RawReport);

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

/// `simt_launch_counted`.
pub(crate) type RunCounted = unsafe extern "C" fn(
    *const Launch,
    *mut RawReport,
    unsafe extern "C" fn(*mut Vec<RawCount>, *const RawCount),
    *mut Vec<RawCount>,
);

unsafe extern "C" fn receive(counts: *mut Vec<RawCount>, count: *const RawCount) {
    // SAFETY: the machine hands on the vector it was given by `run`, and a count of its own.
    unsafe { (*counts).push(*count) };
}

/// Addresses of a program's parts in memory.
#[derive(Clone)]
pub(crate) struct Image {
    pub run: Run,
    pub run_counted: RunCounted,
    pub entry: u64,
    pub constants: Region,
    pub shared: Vec<Region>,
    /// CTAs of a cluster.
    pub cluster: u32,
    /// CTAs that a multiprocessor must be able to hold.
    pub resident_blocks: u32,
    /// True if it has Hopper's instructions.
    pub by_clocks: bool,
}

/// Runs a launch whose parameter block holds the operands' addresses; says what it moves if `counts` are asked for.
pub(crate) fn run(
    image: &Image,
    geometry: &Geometry,
    params: &[u8],
    operands: &mut [Operand<'_>],
    seed: u64,
    counts: Option<&mut Vec<RawCount>>,
) -> RawReport {
    // Parameter blocks are aligned to 64 bytes, as CUDA passes them.
    let mut block = precast_core::host::Buffer::filled(params.len(), 0);
    block.copy_from_slice(params);
    let region = |operand: &mut Operand<'_>| Region {
        base: operand.bytes.as_mut_ptr() as u64,
        bytes: operand.bytes.len() as u64,
        writable: operand.writable.into(),
        written: operand.written.into(),
    };
    let regions: Vec<Region> = operands.iter_mut().map(region).collect();
    let launch = Launch {
        entry: image.entry as *const c_void,
        params: block.as_ptr().cast(),
        grid: geometry.grid,
        block: geometry.block,
        dynamic_shared_bytes: geometry.shared_bytes.into(),
        seed,
        constants: image.constants,
        operands: regions.as_ptr(),
        operand_count: regions.len() as u64,
        shared: image.shared.as_ptr(),
        shared_count: image.shared.len() as u64,
        cluster: image.cluster,
        resident_blocks: image.resident_blocks,
        by_clocks: image.by_clocks.into(),
        reserved: 0,
    };
    let mut report = RawReport::default();
    // SAFETY: `launch` has the machine's layout and what it points at outlives the call; the machine lets the kernel
    // touch the operands, which are borrowed exclusively, and its own memory alone.
    unsafe {
        match counts {
            None => (image.run)(&raw const launch, &raw mut report),
            Some(counts) => (image.run_counted)(&raw const launch, &raw mut report, receive, counts),
        }
    }
    report
}
