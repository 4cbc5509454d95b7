//! The simulated GPU.

use std::time::Instant;

use precast_core::chips::Clocks;
use precast_core::{Addend, Arch, Key};
use precast_fatbins::Module;

use super::memory::Memory;
use crate::communicator::Communicator;
use crate::driver::{
    self, Arrived, Bound, BoundExchange, BoundGemm, BoundLaunch, BoundWork, Device, Driver, DriverError, GraphId,
    KernelId, Launcher, Rows, Ticket,
};
use crate::host::{self, HostBytes};
use crate::permit::Permit;

/// Injectable faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// GB10's behavior: a module load after the first launch fails with 300 and poisons the context; every later call
    /// fails with 700.
    pub poison_on_late_load: bool,
    /// Allocations fail once they would exceed this many bytes.
    pub memory_bytes: Option<u64>,
    /// The launch with this number, counted from 0, fails with 719.
    pub fail_launch: Option<u64>,
}

/// The simulated GPU: host references under the checks of a real one.
pub struct Sim {
    device: Device,
    faults: Faults,
    memory: Memory,
    kernels: Vec<(Key, u32)>,
    graphs: Vec<Vec<Bound>>,
    reads: Vec<Option<Arrived>>,
    /// Content of pinned host memory.
    pinned: Vec<u8>,
    launches: u64,
    poisoned: bool,
    /// This rank and the connections to the others; none without ranks.
    ranks: Option<(u32, Box<dyn Communicator>)>,
}

impl Sim {
    /// Creates a simulated GPU with the host's free memory.
    pub fn new(faults: Faults) -> Self {
        let host = host::memory().unwrap_or(HostBytes { total: 8 << 30, available: 8 << 30 });
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let device = Device {
            name: "simulated GPU".to_owned(),
            ordinal: "sim".to_owned(),
            compute_capability: None,
            driver_version: None,
            total_bytes: faults.memory_bytes.unwrap_or(host.total),
            free_bytes: faults.memory_bytes.unwrap_or(host.available),
            integrated: true,
            clocks: Clocks { multiprocessors: threads as u32, ..Clocks::default() },
            rows: Some(Rows { launches: Arch::Sim, code: Arch::Sim }),
        };
        Self {
            device,
            faults,
            memory: Memory::default(),
            kernels: Vec::new(),
            graphs: Vec::new(),
            reads: Vec::new(),
            pinned: Vec::new(),
            launches: 0,
            poisoned: false,
            ranks: None,
        }
    }

    /// Connects it as one of several ranks.
    #[must_use]
    pub fn connected(self, rank: u32, communicator: Box<dyn Communicator>) -> Self {
        Self { ranks: Some((rank, communicator)), ..self }
    }

    fn check(&self, call: &'static str) -> Result<(), DriverError> {
        if self.poisoned { Err(error(call, 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "")) } else { Ok(()) }
    }

    fn node(&mut self, bound: &Bound) -> Result<(), DriverError> {
        let number = self.launches;
        self.launches += 1;
        if self.faults.fail_launch == Some(number) {
            self.poisoned = true;
            return Err(error("cuGraphLaunch", 719, "CUDA_ERROR_LAUNCH_FAILED", &bound.label));
        }
        let label = || bound.label.clone();
        match &bound.work {
            BoundWork::Launch(launch) => {
                self.launch(launch).map_err(|reason| DriverError::Launch { label: label(), reason })
            }
            BoundWork::Gemm(gemm) => self.gemm(gemm).map_err(|reason| DriverError::Launch { label: label(), reason }),
            BoundWork::Exchange(exchange) => {
                self.exchange(exchange).map_err(|reason| DriverError::Exchange { label: label(), reason })
            }
        }
    }

    /// Sends copies, so that receives may lie anywhere; a rank's sends to itself stay in memory.
    fn exchange(&mut self, exchange: &BoundExchange) -> Result<(), String> {
        let memory = &mut self.memory;
        let mut range = |address, bytes| match memory.slice_mut(address, bytes) {
            Some(slice) => Ok(slice.to_vec()),
            None => Err(format!("{bytes} bytes at {address:#x} are not inside an allocation")),
        };
        let sends = exchange.sends.iter().map(|(rank, address, bytes)| Ok((*rank, range(*address, *bytes)?)));
        let sends = sends.collect::<Result<Vec<(u32, Vec<u8>)>, String>>()?;
        let (own, communicator) = match &mut self.ranks {
            Some((rank, communicator)) => (*rank, communicator),
            None => return Err("there are no other ranks".to_owned()),
        };
        let mut received: Vec<(u32, Vec<u8>)> =
            exchange.receives.iter().map(|(rank, _, bytes)| (*rank, vec![0; *bytes as usize])).collect();
        let to_itself = sends.iter().filter(|(rank, _)| *rank == own);
        for ((_, sent), (_, taken)) in to_itself.zip(received.iter_mut().filter(|(rank, _)| *rank == own)) {
            taken.copy_from_slice(sent);
        }
        let others = |rank: &u32| *rank != own;
        let outgoing: Vec<(u32, &[u8])> =
            sends.iter().filter(|(rank, _)| others(rank)).map(|(rank, bytes)| (*rank, &bytes[..])).collect();
        let mut incoming: Vec<(u32, &mut [u8])> =
            received.iter_mut().filter(|(rank, _)| others(rank)).map(|(rank, bytes)| (*rank, &mut bytes[..])).collect();
        communicator.exchange(&outgoing, &mut incoming)?;
        for ((_, address, bytes), (_, taken)) in exchange.receives.iter().zip(&received) {
            let place = self.memory.slice_mut(*address, *bytes);
            place.ok_or("a received range is not inside an allocation")?.copy_from_slice(taken);
        }
        Ok(())
    }

    fn launch(&mut self, launch: &BoundLaunch) -> Result<(), String> {
        let (key, params_bytes) = &self.kernels[launch.kernel.0];
        if *key != launch.key {
            return Err(format!("kernel {key} launched as {}", launch.key));
        }
        if *params_bytes as usize != launch.params.len() {
            return Err(format!("parameter block of {} bytes, the module takes {params_bytes}", launch.params.len()));
        }
        let geometry = launch.geometry;
        let threads: u32 = geometry.block.iter().product();
        if geometry.grid.contains(&0)
            || geometry.grid[1].max(geometry.grid[2]) > 0xFFFF
            || !(1..=1024).contains(&threads)
        {
            return Err(format!("grid {:?} x block {:?} cannot be launched", geometry.grid, geometry.block));
        }
        if geometry.shared_bytes > Arch::Sim.shared_bytes_per_block() {
            return Err(format!("{} bytes of shared memory", geometry.shared_bytes));
        }
        self.execute(&launch.key, &launch.params)
    }

    /// Computes a GEMM by its reference, in place of a library.
    fn gemm(&mut self, gemm: &BoundGemm) -> Result<(), String> {
        let BoundGemm { key, params, factors, .. } = gemm;
        let addend = key.kernel().blas_gemm(params).map(|gemm| gemm.addend);
        if let (Some(Addend::Accumulated(flag)), Some(factors)) = (addend, *factors) {
            let mut read = |address, bytes| Some(self.memory.slice_mut(address, bytes)?.to_vec());
            let (flag, factors) =
                read(flag, 4).zip(read(factors, 8)).ok_or("the factors are not inside an allocation")?;
            let accumulates = flag != [0; 4];
            let (factors, right) =
                (bytemuck::pod_read_unaligned::<[f32; 2]>(&factors), [1.0, f32::from(u8::from(accumulates))]);
            if factors != right {
                return Err(format!(
                    "the factors of GEMM and addend are {factors:?}, and {right:?} in this micro-batch"
                ));
            }
        }
        self.execute(key, params)
    }

    /// Executes a key's host reference.
    fn execute(&mut self, key: &Key, params: &[u8]) -> Result<(), String> {
        let kernel = key.kernel();
        let operands = kernel.operands(params);
        kernel.host(params, &mut self.memory.views(&operands, params)?);
        Ok(())
    }
}

fn error(call: &'static str, code: u32, name: &str, on: &str) -> DriverError {
    let context = if on.is_empty() { String::new() } else { format!(" in {on}") };
    DriverError::Call { call, code, name: name.to_owned(), context }
}

impl driver::Memory for Sim {
    fn allocate(&mut self, bytes: u64) -> Result<u64, DriverError> {
        self.check("cuMemAlloc")?;
        let free = self.free_bytes()?;
        if bytes > free {
            return Err(DriverError::OutOfMemory { asked: bytes, free });
        }
        self.memory.allocate(bytes).map_err(|_| DriverError::OutOfMemory { asked: bytes, free })
    }

    fn free_bytes(&self) -> Result<u64, DriverError> {
        Ok(self.device.free_bytes.saturating_sub(self.memory.bytes()))
    }

    fn stage(&mut self, _bytes: u64) -> Result<(), DriverError> {
        self.check("cuMemHostAlloc")
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DriverError> {
        self.check("cuMemcpyHtoDAsync")?;
        match self.memory.slice_mut(address, bytes.len() as u64) {
            Some(target) => {
                target.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(error("cuMemcpyHtoDAsync", 1, "CUDA_ERROR_INVALID_VALUE", "")),
        }
    }

    fn read(&mut self, address: u64, bytes: u64) -> Result<Ticket, DriverError> {
        self.check("cuMemcpyDtoHAsync")?;
        let Some(source) = self.memory.slice_mut(address, bytes) else {
            return Err(error("cuMemcpyDtoHAsync", 1, "CUDA_ERROR_INVALID_VALUE", ""));
        };
        let arrived = Arrived { bytes: source.to_vec(), at: Instant::now() };
        let slot = self.reads.iter().position(Option::is_none).unwrap_or_else(|| {
            self.reads.push(None);
            self.reads.len() - 1
        });
        self.reads[slot] = Some(arrived);
        Ok(Ticket(slot))
    }

    fn wait(&mut self, ticket: Ticket) -> Result<Arrived, DriverError> {
        self.check("cuEventSynchronize")?;
        Ok(self.reads[ticket.0].take().expect("a ticket is waited for once"))
    }

    fn pin(&mut self, bytes: u64) -> Result<(), DriverError> {
        self.check("cuMemHostAlloc")?;
        self.pinned = vec![0; bytes as usize];
        Ok(())
    }

    fn spill(&mut self, address: u64, bytes: u64, start: u64) -> Result<(), DriverError> {
        self.check("cuMemcpyDtoHAsync")?;
        let invalid = || error("cuMemcpyDtoHAsync", 1, "CUDA_ERROR_INVALID_VALUE", "");
        let source = self.memory.slice_mut(address, bytes).ok_or_else(invalid)?;
        self.pinned[start as usize..][..bytes as usize].copy_from_slice(source);
        Ok(())
    }

    fn fetch(&mut self, address: u64, bytes: u64, start: u64) -> Result<(), DriverError> {
        self.check("cuMemcpyHtoDAsync")?;
        let invalid = || error("cuMemcpyHtoDAsync", 1, "CUDA_ERROR_INVALID_VALUE", "");
        let target = self.memory.slice_mut(address, bytes).ok_or_else(invalid)?;
        target.copy_from_slice(&self.pinned[start as usize..][..bytes as usize]);
        Ok(())
    }
}

impl Launcher for Sim {
    fn load(&mut self, module: &Module<'_>, _permit: &Permit) -> Result<KernelId, DriverError> {
        self.check("cuLibraryLoadData")?;
        if self.faults.poison_on_late_load && self.launches > 0 {
            self.poisoned = true;
            return Err(error("cuLibraryLoadData", 300, "CUDA_ERROR_INVALID_SOURCE", &module.pair.to_string()));
        }
        self.kernels.push((module.pair.key.clone(), module.entry.params_bytes));
        Ok(KernelId(self.kernels.len() - 1))
    }

    fn loads(&self) -> u64 {
        self.kernels.len() as u64
    }

    fn prepare(&mut self, nodes: &[Bound]) -> Result<GraphId, DriverError> {
        self.check("cuGraphInstantiate")?;
        self.graphs.push(nodes.to_vec());
        Ok(GraphId(self.graphs.len() - 1))
    }

    fn run(&mut self, graph: GraphId) -> Result<(), DriverError> {
        self.check("cuGraphLaunch")?;
        let nodes = std::mem::take(&mut self.graphs[graph.0]);
        let result = nodes.iter().try_for_each(|bound| self.node(bound));
        self.graphs[graph.0] = nodes;
        result
    }
}

impl Driver for Sim {
    fn device(&self) -> &Device {
        &self.device
    }

    fn ranks(&self) -> Option<String> {
        self.ranks.as_ref().map(|(_, communicator)| format!("{}, over TCP", communicator.ranks()))
    }
}
