//! A driver that somebody listens to, or that does some of its work in another way.

use precast_fatbins::Module;
use precast_runtime::{
    Arrived, Bound, Device, Driver, DriverError, GraphId, KernelId, Launcher, Memory, Permit, Ticket,
};

/// What is done in place of a driver's loads and launches; else they are its own.
pub trait Tap {
    fn load(&mut self, on: &mut dyn Driver, module: &Module<'_>, permit: &Permit) -> Result<KernelId, DriverError> {
        on.load(module, permit)
    }
    fn prepare(&mut self, on: &mut dyn Driver, nodes: &[Bound]) -> Result<GraphId, DriverError> {
        on.prepare(nodes)
    }
    fn run(&mut self, on: &mut dyn Driver, graph: GraphId) -> Result<(), DriverError> {
        on.run(graph)
    }
}

/// A driver with a tap.
pub struct Tapped<T>(pub Box<dyn Driver>, pub T);

impl<T> Memory for Tapped<T> {
    fn allocate(&mut self, bytes: u64) -> Result<u64, DriverError> {
        self.0.allocate(bytes)
    }
    fn free_bytes(&self) -> Result<u64, DriverError> {
        self.0.free_bytes()
    }
    fn stage(&mut self, bytes: u64) -> Result<(), DriverError> {
        self.0.stage(bytes)
    }
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DriverError> {
        self.0.write(address, bytes)
    }
    fn read(&mut self, address: u64, bytes: u64) -> Result<Ticket, DriverError> {
        self.0.read(address, bytes)
    }
    fn wait(&mut self, ticket: Ticket) -> Result<Arrived, DriverError> {
        self.0.wait(ticket)
    }
    fn pin(&mut self, bytes: u64) -> Result<(), DriverError> {
        self.0.pin(bytes)
    }
    fn spill(&mut self, address: u64, bytes: u64, start: u64) -> Result<(), DriverError> {
        self.0.spill(address, bytes, start)
    }
    fn fetch(&mut self, address: u64, bytes: u64, start: u64) -> Result<(), DriverError> {
        self.0.fetch(address, bytes, start)
    }
}

impl<T: Tap> Launcher for Tapped<T> {
    fn load(&mut self, module: &Module<'_>, permit: &Permit) -> Result<KernelId, DriverError> {
        self.1.load(&mut *self.0, module, permit)
    }
    fn loads(&self) -> u64 {
        self.0.loads()
    }
    fn prepare(&mut self, nodes: &[Bound]) -> Result<GraphId, DriverError> {
        self.1.prepare(&mut *self.0, nodes)
    }
    fn run(&mut self, graph: GraphId) -> Result<(), DriverError> {
        self.1.run(&mut *self.0, graph)
    }
}

impl<T: Tap> Driver for Tapped<T> {
    fn device(&self) -> &Device {
        self.0.device()
    }
}
