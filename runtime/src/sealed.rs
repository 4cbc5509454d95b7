//! The phase after the seal: nothing is loaded or allocated.

use precast_core::plan::Tensor;

use crate::activity::Activity;
use crate::driver::{Arrived, CublasUse, Device, Driver, DriverError, GraphId, Ticket};
use crate::loads::Load;

/// A bound plan that launches and cannot load.
pub struct Sealed {
    driver: Box<dyn Driver>,
    addresses: Vec<u64>,
    graphs: Vec<(String, Vec<GraphId>)>,
    stage_bytes: u64,
    loads: u64,
    loaded: Vec<Load>,
    /// True while a phase runs on the side stream.
    beside: bool,
    activity: Activity,
}

impl Sealed {
    pub(crate) fn new(
        driver: Box<dyn Driver>,
        loaded: Vec<Load>,
        addresses: Vec<u64>,
        graphs: Vec<(String, Vec<GraphId>)>,
        stage_bytes: u64,
    ) -> Self {
        let (loads, activity) = (driver.loads(), driver.activity());
        Self { driver, addresses, graphs, stage_bytes, loads, loaded, beside: false, activity }
    }

    /// Returns the properties of the device.
    pub fn device(&self) -> &Device {
        self.driver.device()
    }

    /// Returns the number of loaded modules, all loaded before the seal.
    pub fn loads(&self) -> u64 {
        self.loads
    }

    /// Returns the loaded modules, in order.
    pub fn loaded(&self) -> &[Load] {
        &self.loaded
    }

    /// Returns the number of modules loaded since the seal, as the driver counts them: if not 0, the next launch
    /// panics.
    pub fn loads_after_seal(&self) -> u64 {
        self.driver.loads() - self.loads
    }

    /// Returns the device's cuBLASLt, if it computes the GEMMs.
    pub fn cublas(&self) -> Option<CublasUse> {
        self.driver.cublas()
    }

    /// Describes the number of ranks and their backend; none for one rank.
    pub fn ranks(&self) -> Option<String> {
        self.driver.ranks()
    }

    /// Returns the time of finished waits of launches for exchanges, by the device's clock, seconds. None if nothing
    /// runs beside exchanges.
    ///
    /// # Errors
    /// [`DriverError`] of earlier work.
    pub fn waited_s(&mut self) -> Result<Option<f64>, DriverError> {
        self.driver.waited_s()
    }

    /// Returns the device's activity, for a watching thread.
    pub fn activity(&self) -> Activity {
        self.activity.clone()
    }

    /// Returns free device memory, bytes.
    ///
    /// # Errors
    /// [`DriverError`] of the driver.
    pub fn free_bytes(&self) -> Result<u64, DriverError> {
        self.driver.free_bytes()
    }

    fn address(&self, tensor: Tensor) -> u64 {
        self.addresses[tensor.buffer.0 as usize] + tensor.offset
    }

    /// Runs a phase without waiting for it.
    ///
    /// # Errors
    /// [`DriverError`] of this or earlier work.
    ///
    /// # Panics
    /// If the plan has no such phase, or a module has been loaded since the seal: both are bugs of this project, the
    /// second the one that it exists to rule out.
    pub fn run(&mut self, phase: &str) -> Result<(), DriverError> {
        let (graphs, _call) = (self.graphs(phase), self.activity.call());
        let number = self.activity.launch(phase);
        for (index, graph) in graphs.into_iter().enumerate() {
            // Work before the first cut does not depend on the side stream.
            if index > 0 || !self.is_divided(phase) {
                self.join()?;
            }
            self.driver.run(graph)?;
        }
        self.driver.mark(number)
    }

    /// Runs a phase on the side stream, beside later writes and the beginning of a divided phase. All else waits for
    /// it.
    ///
    /// # Errors
    /// Those of [`Self::run`].
    ///
    /// # Panics
    /// Those of [`Self::run`].
    pub fn run_beside(&mut self, phase: &str) -> Result<(), DriverError> {
        let _call = self.activity.call();
        self.join()?;
        self.beside = true;
        // The next phase that needs it marks its end.
        self.activity.launch_unmarked(phase);
        self.graphs(phase).into_iter().try_for_each(|graph| self.driver.run_beside(graph))
    }

    fn join(&mut self) -> Result<(), DriverError> {
        if std::mem::take(&mut self.beside) { self.driver.join() } else { Ok(()) }
    }

    /// Returns the mean seconds of `repeats` consecutive warm runs of a phase. Waits for them.
    ///
    /// # Errors
    /// [`DriverError`] of this or earlier work.
    ///
    /// # Panics
    /// Those of [`Self::run`].
    pub fn time(&mut self, phase: &str, repeats: u32) -> Result<f64, DriverError> {
        let _call = self.activity.call();
        self.join()?;
        let number = self.activity.launch(phase);
        let each = self.graphs(phase).into_iter().map(|graph| self.driver.time(graph, repeats));
        let seconds = each.sum::<Result<f64, DriverError>>()?;
        self.driver.mark(number)?;
        Ok(seconds)
    }

    fn is_divided(&self, phase: &str) -> bool {
        self.graphs.iter().any(|(name, graphs)| name == phase && graphs.len() > 1)
    }

    fn graphs(&self, phase: &str) -> Vec<GraphId> {
        assert_eq!(self.driver.loads(), self.loads, "a module was loaded after the seal");
        match self.graphs.iter().find(|(name, _)| name == phase) {
            Some((_, graphs)) => graphs.clone(),
            None => panic!("the plan has no phase `{phase}`"),
        }
    }

    /// Copies to a tensor, in order with earlier and later phases.
    ///
    /// # Errors
    /// [`DriverError`] of this or earlier work.
    ///
    /// # Panics
    /// If the sizes differ.
    pub fn write(&mut self, tensor: Tensor, bytes: &[u8]) -> Result<(), DriverError> {
        assert_eq!(bytes.len() as u64, tensor.bytes(), "size of a write");
        self.write_part(tensor, 0, bytes)
    }

    /// Copies to a part of a tensor, `start` bytes from its beginning, in order with earlier and later phases; beside
    /// the work of [`Self::run_beside`], which does not touch the tensor.
    ///
    /// # Errors
    /// [`DriverError`] of this or earlier work.
    ///
    /// # Panics
    /// If the part ends beyond the tensor.
    pub fn write_part(&mut self, tensor: Tensor, start: u64, bytes: &[u8]) -> Result<(), DriverError> {
        assert!(start + bytes.len() as u64 <= tensor.bytes(), "a write beyond the tensor");
        let mut address = self.address(tensor) + start;
        for part in bytes.chunks(self.stage_bytes as usize) {
            let _call = self.activity.call();
            self.driver.write(address, part)?;
            address += part.len() as u64;
        }
        Ok(())
    }

    /// Copies a tensor to pinned host memory, `start` bytes from its beginning, in order with writes, earlier phases
    /// and those before the last of [`Self::run_beside`]: beside that one, which does not touch the tensor.
    ///
    /// # Errors
    /// [`DriverError`] of this or earlier work.
    ///
    /// # Panics
    /// If so much is not pinned.
    pub fn spill(&mut self, tensor: Tensor, start: u64) -> Result<(), DriverError> {
        let (address, _call) = (self.address(tensor), self.activity.call());
        self.driver.spill(address, tensor.bytes(), start)
    }

    /// Copies back to a tensor what [`Self::spill`] has copied to pinned memory, in the same order.
    ///
    /// # Errors
    /// Those of [`Self::spill`].
    ///
    /// # Panics
    /// As [`Self::spill`].
    pub fn fetch(&mut self, tensor: Tensor, start: u64) -> Result<(), DriverError> {
        let (address, _call) = (self.address(tensor), self.activity.call());
        self.driver.fetch(address, tensor.bytes(), start)
    }

    /// Makes later work wait for the last phase of [`Self::run_beside`].
    ///
    /// # Errors
    /// [`DriverError`] of this or earlier work.
    pub fn wait_beside(&mut self) -> Result<(), DriverError> {
        self.join()
    }

    /// Copies from a tensor after all earlier work, and waits.
    ///
    /// # Errors
    /// [`DriverError`] of this or earlier work.
    pub fn read(&mut self, tensor: Tensor) -> Result<Vec<u8>, DriverError> {
        let mut all = Vec::with_capacity(tensor.bytes() as usize);
        self.read_parts(tensor, |part| {
            all.extend_from_slice(part);
            Ok::<_, DriverError>(())
        })?;
        Ok(all)
    }

    /// Copies from a tensor in parts of whole elements, each given to `take` during the next copy: the host holds two
    /// parts, however large the tensor.
    ///
    /// # Errors
    /// [`DriverError`] of this or earlier work, or the error of `take`.
    pub fn read_parts<E: From<DriverError>>(
        &mut self,
        tensor: Tensor,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.join()?;
        let (mut at, end) = (self.address(tensor), self.address(tensor) + tensor.bytes());
        let mut under_way = None;
        loop {
            let next = match (end - at).min(self.stage_bytes) {
                0 => None,
                bytes => Some((self.driver.read(at, bytes)?, bytes)),
            };
            at += next.as_ref().map_or(0, |(_, bytes)| *bytes);
            let arrived = match under_way.take() {
                Some(ticket) => Some(self.wait(ticket)?),
                None if next.is_none() => return Ok(()),
                None => None,
            };
            under_way = next.map(|(ticket, _)| ticket);
            if let Some(failure) = arrived.and_then(|arrived| take(&arrived.bytes).err()) {
                // A copy without a wait would keep its slot.
                under_way.map(|ticket| self.wait(ticket)).transpose()?;
                return Err(failure);
            }
        }
    }

    /// Starts a copy from a small tensor; [`Self::wait`] returns its bytes.
    ///
    /// # Errors
    /// [`DriverError`] of this or earlier work.
    pub fn read_later(&mut self, tensor: Tensor) -> Result<Ticket, DriverError> {
        self.join()?;
        let address = self.address(tensor);
        self.driver.read(address, tensor.bytes())
    }

    /// Waits for a copy that [`Self::read_later`] started.
    ///
    /// # Errors
    /// [`DriverError`] of this or earlier work.
    pub fn wait(&mut self, ticket: Ticket) -> Result<Arrived, DriverError> {
        let _call = self.activity.call();
        self.driver.wait(ticket)
    }
}
