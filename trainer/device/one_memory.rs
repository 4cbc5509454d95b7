//! Runs on machines where host and device have one memory: what either takes is missing for the other.

use precast_plan::{MemoryTable, Plan};
use precast_runtime::{Device, host};

use crate::device::DeviceError;
use crate::device::host_memory::HostMemory;
use crate::device::weight_format::KERNELS_BYTES;
use crate::inputs::checkpoint::Access;

/// Chooses how weights are read for a device: past the page cache, and never from a mapped file, where that takes the
/// device's memory.
pub fn access(device: &Device) -> Access {
    if device.integrated { Access::Direct } else { Access::Map }
}

/// Returns the bytes of a device's memory that a run takes besides its plan and its kernels: all that the host takes,
/// where they share one.
pub fn host_bytes(device: &Device, host: impl FnOnce() -> HostMemory) -> u64 {
    if device.has_one_memory() { host().total_bytes } else { 0 }
}

/// Refuses a plan that does not fit beside what the host takes for it, in bytes; on devices with a memory of their own it is
/// nobody's business.
///
/// # Errors
/// [`DeviceError::OneMemory`].
pub fn check(device: &Device, plan: &Plan, host: &HostMemory) -> Result<(), DeviceError> {
    if !device.has_one_memory() {
        return Ok(());
    }
    let needed = plan.device_bytes().saturating_add(host.total_bytes).saturating_add(KERNELS_BYTES);
    if needed <= device.free_bytes {
        return Ok(());
    }
    let reason = format!(
        "this run needs {needed} bytes of the memory that {} shares with the host, and {} can be taken: what the page cache holds \
         counts as free, and {} bytes stay with the system.\n\
         on the device:\n{}\nkernels, at most {KERNELS_BYTES} bytes; on the host:\n{host}",
        device.name,
        device.free_bytes,
        host::reserve_bytes(device.total_bytes),
        MemoryTable::of(plan)
    );
    Err(DeviceError::OneMemory { reason, first: "" })
}
