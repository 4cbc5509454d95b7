//! Pinned host memory in slots: the host never overwrites a slot that a copy still reads.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::time::Instant;

use cudarc::driver::sys;
use rayon::prelude::*;

use super::call::check;
use super::exchange::Event;
use crate::driver::{Arrived, DriverError};
use crate::host;

/// Slots for copies to the device, used in rotation.
const WRITE_SLOTS: usize = 4;
/// Bytes that one thread copies into a slot; larger copies use several threads, which fault in a mapped file's pages in
/// parallel.
const COPY_BYTES: usize = 1 << 20;
/// Slots for copies from the device, each held until its wait.
const READ_SLOTS: usize = 4;

/// Slots of pinned memory, for writes and for reads.
pub const SLOTS: usize = WRITE_SLOTS + READ_SLOTS;

struct Slot {
    memory: NonNull<c_void>,
    /// Passes when the slot's last copy has finished.
    event: Event,
    /// Bytes of an unfinished read.
    pending: Option<usize>,
}

pub(super) struct Stage {
    slots: Vec<Slot>,
    slot_bytes: usize,
    next_write: usize,
}

impl Stage {
    pub fn new(slot_bytes: usize) -> Result<Self, DriverError> {
        let mut stage = Self { slots: Vec::new(), slot_bytes, next_write: 0 };
        for _ in 0..SLOTS {
            let (mut memory, event) = (null_mut(), Event::new()?);
            // SAFETY: writes one address.
            let allocated = unsafe { sys::cuMemHostAlloc(&mut memory, slot_bytes, 0) };
            if allocated == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
                return Err(DriverError::OutOfHostMemory {
                    asked: slot_bytes as u64,
                    taken: (stage.slots.len() * slot_bytes) as u64,
                    available: host::memory().map(|host| host.available),
                });
            }
            check("cuMemHostAlloc", allocated)?;
            let memory = NonNull::new(memory).expect("a successful allocation is not null");
            stage.slots.push(Slot { memory, event, pending: None });
        }
        Ok(stage)
    }

    pub fn write(&mut self, stream: sys::CUstream, address: u64, bytes: &[u8]) -> Result<(), DriverError> {
        assert!(
            bytes.len() <= self.slot_bytes,
            "a copy of {} bytes through a slot of {}",
            bytes.len(),
            self.slot_bytes
        );
        let slot = &self.slots[self.next_write];
        self.next_write = (self.next_write + 1) % WRITE_SLOTS;
        slot.event.synchronize()?;
        // SAFETY: the event has passed, so nothing reads the slot; it holds at least bytes.len() bytes; the
        // copy from it is ordered in the stream and marked by the event again.
        unsafe {
            copy(bytes, std::slice::from_raw_parts_mut(slot.memory.as_ptr().cast::<u8>(), bytes.len()));
            let copied = sys::cuMemcpyHtoDAsync_v2(address, slot.memory.as_ptr(), bytes.len(), stream);
            check("cuMemcpyHtoDAsync", copied)?;
        }
        slot.event.record(stream)
    }

    pub fn read(&mut self, stream: sys::CUstream, address: u64, bytes: usize) -> Result<usize, DriverError> {
        assert!(bytes <= self.slot_bytes, "a copy of {bytes} bytes through a slot of {}", self.slot_bytes);
        let free = (WRITE_SLOTS..self.slots.len()).find(|index| self.slots[*index].pending.is_none());
        let index = free.expect("at most four reads are under way");
        let slot = &mut self.slots[index];
        // SAFETY: no copy uses this slot, for none waits for it; it holds at least `bytes` bytes.
        unsafe {
            let copied = sys::cuMemcpyDtoHAsync_v2(slot.memory.as_ptr(), address, bytes, stream);
            check("cuMemcpyDtoHAsync", copied)?;
        }
        slot.event.record(stream)?;
        slot.pending = Some(bytes);
        Ok(index)
    }

    pub fn wait(&mut self, index: usize) -> Result<Arrived, DriverError> {
        let slot = &mut self.slots[index];
        let bytes = slot.pending.take().expect("a ticket is waited for once");
        slot.event.synchronize()?;
        // SAFETY: the event has passed, so the copy is complete, and it wrote `bytes` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(slot.memory.as_ptr().cast::<u8>(), bytes) }.to_vec();
        Ok(Arrived { bytes, at: Instant::now() })
    }
}

/// Copies, with a thread per [`COPY_BYTES`].
fn copy(from: &[u8], to: &mut [u8]) {
    if from.len() <= COPY_BYTES {
        return to.copy_from_slice(from);
    }
    let parts = to.par_chunks_mut(COPY_BYTES).zip(from.par_chunks(COPY_BYTES));
    parts.for_each(|(to, from)| to.copy_from_slice(from));
}

impl Drop for Stage {
    fn drop(&mut self) {
        for slot in self.slots.drain(..) {
            // SAFETY: the memory was taken by this value; the stream that used it is idle.
            let _ = unsafe { sys::cuMemFreeHost(slot.memory.as_ptr()) };
        }
    }
}
