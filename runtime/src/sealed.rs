//! After the seal: nothing is loaded and nothing is allocated.

use precast_plan::Tensor;

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
    /// A phase runs beside what is asked for.
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

    pub fn device(&self) -> &Device {
        self.driver.device()
    }

    /// Modules loaded: all of them before the seal.
    pub fn loads(&self) -> u64 {
        self.loads
    }

    /// The same, in the order in which they were loaded.
    pub fn loaded(&self) -> &[Load] {
        &self.loaded
    }

    /// Modules loaded since the seal, as the driver counts them: none, or the next launch panics.
    pub fn loads_after_seal(&self) -> u64 {
        self.driver.loads() - self.loads
    }

    /// What cuBLASLt is on the device, where it computes the products.
    pub fn cublas(&self) -> Option<CublasUse> {
        self.driver.cublas()
    }

    /// How many ranks there are and by what they exchange; none where there is one.
    pub fn ranks(&self) -> Option<String> {
        self.driver.ranks()
    }

    /// How long launches have waited for exchanges, by the device's clock, seconds: of waits that have ended. None where nothing
    /// runs beside exchanges.
    ///
    /// # Errors
    /// [`DriverError`] of earlier work.
    pub fn waited_s(&mut self) -> Result<Option<f64>, DriverError> {
        self.driver.waited_s()
    }

    /// What the device is doing, for a thread that watches it.
    pub fn activity(&self) -> Activity {
        self.activity.clone()
    }

    /// Device memory free now, bytes.
    ///
    /// # Errors
    /// [`DriverError`] of the driver.
    pub fn free_bytes(&self) -> Result<u64, DriverError> {
        self.driver.free_bytes()
    }

    fn address(&self, tensor: Tensor) -> u64 {
        self.addresses[tensor.buffer.0 as usize] + tensor.offset
    }

    /// Runs a phase. Does not wait for it.
    ///
    /// # Errors
    /// [`DriverError`] of this or earlier work.
    ///
    /// # Panics
    /// If the plan has no such phase, or a module has been loaded since the seal: both are bugs of this
    /// project, and the second is the one it exists to rule out.
    pub fn run(&mut self, phase: &str) -> Result<(), DriverError> {
        let (graphs, _call) = (self.graphs(phase), self.activity.call());
        let number = self.activity.launch(phase);
        for (index, graph) in graphs.into_iter().enumerate() {
            // What is before the first cut needs nothing of what runs beside it.
            if index > 0 || !self.is_divided(phase) {
                self.join()?;
            }
            self.driver.run(graph)?;
        }
        self.driver.mark(number)
    }

    /// Runs a phase beside what is asked for next: writes, and the beginning of a phase that is divided. All else waits for it.
    ///
    /// # Errors
    /// As [`Self::run`].
    ///
    /// # Panics
    /// As [`Self::run`].
    pub fn run_beside(&mut self, phase: &str) -> Result<(), DriverError> {
        let _call = self.activity.call();
        self.join()?;
        self.beside = true;
        // The next phase that needs it says that it is done.
        self.activity.launch_unmarked(phase);
        self.graphs(phase).into_iter().try_for_each(|graph| self.driver.run_beside(graph))
    }

    fn join(&mut self) -> Result<(), DriverError> {
        if std::mem::take(&mut self.beside) { self.driver.join() } else { Ok(()) }
    }

    /// Seconds that each of `repeats` runs of a phase takes, one after the other, warm. Waits for them.
    ///
    /// # Errors
    /// [`DriverError`] of this or earlier work.
    ///
    /// # Panics
    /// As [`Self::run`].
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

    /// Copies to a tensor, in order with the phases run before and after.
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

    /// Copies to a part of a tensor, `start` bytes from its first, in order with the phases run before and after; beside what
    /// [`Self::run_beside`] has begun, which does not touch the tensor.
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

    /// Copies from a tensor, after everything asked for before.
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

    /// Copies from a tensor in parts of whole elements, each given to `take` while the next is under way: the host
    /// holds two parts, however large the tensor is.
    ///
    /// # Errors
    /// [`DriverError`] of this or earlier work, or what `take` fails with.
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
                // A copy that is never waited for would keep its slot.
                under_way.map(|ticket| self.wait(ticket)).transpose()?;
                return Err(failure);
            }
        }
    }

    /// Starts a copy from a small tensor; [`Self::wait`] gives its bytes, later.
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
