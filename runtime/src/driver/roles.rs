//! Roles of a GPU, real or simulated.

use std::time::Instant;

use precast_fatbins::Module;

use super::bound::{Bound, KernelId};
use super::device::Device;
use super::error::DriverError;
use crate::activity::Activity;
use crate::cublas::{Cublas, Version};
use crate::gauge::Gauge;
use crate::permit::Permit;

/// A prepared sequence of one driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphId(pub(crate) usize);

/// A read in progress.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket(pub(crate) usize);

/// Bytes that were read from the device.
#[derive(Clone, Debug)]
pub struct Arrived {
    /// The bytes, as many as were asked for.
    pub bytes: Vec<u8>,
    /// Time of completion as far as the host knows: an asynchronous device is known to be finished when it is waited
    /// for, a synchronous one at the end of the call.
    pub at: Instant,
}

/// cuBLASLt on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CublasUse {
    /// Version of the library.
    pub version: Version,
    /// Device memory allocated at its setup and at each GEMM's first run, bytes.
    pub taken_bytes: u64,
}

/// Memory of a device, and pinned memory of the host for copies.
pub trait Memory {
    /// Allocates device memory, aligned to 256 bytes. Dropping the driver frees it.
    ///
    /// # Errors
    /// [`DriverError::OutOfMemory`] if it does not fit.
    fn allocate(&mut self, bytes: u64) -> Result<u64, DriverError>;

    /// Describes the kind of memory that the environment requests, for people; none without a request.
    fn memory_note(&self) -> Option<String> {
        None
    }

    /// Returns free device memory, bytes, counted like [`Device::free_bytes`].
    ///
    /// # Errors
    /// [`DriverError`] of the driver.
    fn free_bytes(&self) -> Result<u64, DriverError>;

    /// Allocates the pinned host memory of [`Memory::write`] and [`Memory::read`]; each moves at most `bytes` at once.
    ///
    /// # Errors
    /// [`DriverError::OutOfHostMemory`] if it cannot be pinned.
    fn stage(&mut self, bytes: u64) -> Result<(), DriverError>;

    /// Copies to device memory. `bytes` may be reused at once; nothing waits.
    ///
    /// # Errors
    /// [`DriverError`] of the driver, of this or earlier work.
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DriverError>;

    /// Starts a copy from device memory.
    ///
    /// # Errors
    /// [`DriverError`] of the driver, of this or earlier work.
    fn read(&mut self, address: u64, bytes: u64) -> Result<Ticket, DriverError>;

    /// Waits for a copy from device memory.
    ///
    /// # Errors
    /// [`DriverError`] of the driver, of this or earlier work.
    fn wait(&mut self, ticket: Ticket) -> Result<Arrived, DriverError>;

    /// Allocates pinned host memory for [`Memory::spill`] and [`Memory::fetch`].
    ///
    /// # Errors
    /// [`DriverError::OutOfHostMemory`] if it cannot be pinned.
    fn pin(&mut self, bytes: u64) -> Result<(), DriverError>;

    /// Copies from device memory to pinned memory, `start` bytes from its beginning. Does not wait.
    ///
    /// # Errors
    /// [`DriverError`] of the driver, of this or earlier work.
    ///
    /// # Panics
    /// If so much is not pinned.
    fn spill(&mut self, address: u64, bytes: u64, start: u64) -> Result<(), DriverError>;

    /// Copies back to device memory what [`Memory::spill`] has copied from it. Does not wait.
    ///
    /// # Errors
    /// Those of [`Memory::spill`].
    ///
    /// # Panics
    /// As [`Memory::spill`].
    fn fetch(&mut self, address: u64, bytes: u64, start: u64) -> Result<(), DriverError>;
}

/// Kernels of a device, and sequences of their launches.
pub trait Launcher {
    /// Loads a module and makes its kernel resident. Only this crate can call it: it makes the [`Permit`].
    ///
    /// # Errors
    /// [`DriverError`] of the driver.
    fn load(&mut self, module: &Module<'_>, permit: &Permit) -> Result<KernelId, DriverError>;

    /// Returns the number of modules loaded, counted where the driver is called.
    fn loads(&self) -> u64;

    /// Computes [`BoundWork::Gemm`](super::BoundWork::Gemm) by cuBLASLt from now on.
    ///
    /// # Errors
    /// [`DriverError`] of the library, or if the device cannot use it.
    fn set_cublas(&mut self, _cublas: Cublas) -> Result<(), DriverError> {
        Err(DriverError::NoCublas)
    }

    /// Returns the version that computes GEMMs and its device memory; none without cuBLASLt.
    fn cublas(&self) -> Option<CublasUse> {
        None
    }

    /// Prepares a sequence of nodes for repeated runs.
    ///
    /// # Errors
    /// [`DriverError`] of the driver.
    fn prepare(&mut self, nodes: &[Bound]) -> Result<GraphId, DriverError>;

    /// Runs a prepared sequence without waiting for it.
    ///
    /// # Errors
    /// [`DriverError`] of the driver, of this or earlier work.
    fn run(&mut self, graph: GraphId) -> Result<(), DriverError>;

    /// Runs a prepared sequence after all work so far, and beside later work until [`Self::join`].
    ///
    /// # Errors
    /// Those of [`Self::run`].
    fn run_beside(&mut self, graph: GraphId) -> Result<(), DriverError> {
        self.run(graph)
    }

    /// Makes the stream of [`Self::run_beside`], where there is none yet.
    ///
    /// # Errors
    /// [`DriverError`] of the driver.
    fn side_stream(&mut self) -> Result<(), DriverError> {
        Ok(())
    }

    /// Orders later work after the side sequence.
    ///
    /// # Errors
    /// Those of [`Self::run`].
    fn join(&mut self) -> Result<(), DriverError> {
        Ok(())
    }

    /// Runs a prepared sequence once to warm up and then `repeats` times, and waits. Returns the seconds per timed run,
    /// by the device's own clock; by the host's for a driver whose [`Self::run`] waits.
    ///
    /// # Errors
    /// [`DriverError`] of the driver, of this or earlier work.
    fn time(&mut self, graph: GraphId, repeats: u32) -> Result<f64, DriverError> {
        self.run(graph)?;
        let start = Instant::now();
        (0..repeats).try_for_each(|_| self.run(graph))?;
        Ok(start.elapsed().as_secs_f64() / f64::from(repeats))
    }
}

/// A GPU. All work after [`Launcher::prepare`] is ordered: writes, launches and reads take effect in call order.
pub trait Driver: Memory + Launcher {
    /// Returns the properties of the device.
    fn device(&self) -> &Device;

    /// Connects this device with those of the other ranks, which do the same, after all allocations and before the
    /// first launch.
    ///
    /// # Errors
    /// [`DriverError::Exchange`] if a rank cannot be reached.
    fn connect_ranks(&mut self) -> Result<(), DriverError> {
        Ok(())
    }

    /// Describes the number of ranks and their backend, for people; none for one rank.
    fn ranks(&self) -> Option<String> {
        None
    }

    /// Returns the time that launches waited for exchanges, and so for slower ranks, by the device's clock, seconds.
    /// None if nothing runs beside exchanges.
    ///
    /// # Errors
    /// [`DriverError`] of earlier work.
    fn waited_s(&mut self) -> Result<Option<f64>, DriverError> {
        Ok(None)
    }

    /// Starts reading the GPU's state by its management library, beside all other work; none for a device without one.
    fn gauge(&self) -> Option<Gauge> {
        None
    }

    /// Returns the device's activity, for a watching thread.
    fn activity(&self) -> Activity {
        Activity::default()
    }

    /// Makes the device write this number to [`Self::activity`] once it has finished all work so far. Does not wait.
    ///
    /// # Errors
    /// [`DriverError`] of earlier work.
    fn mark(&mut self, _number: u32) -> Result<(), DriverError> {
        Ok(())
    }
}
