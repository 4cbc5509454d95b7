//! One device, opened.

use cudarc::driver::sys;
use precast_core::{Arch, Kernels};
use precast_fatbins::Module;

use super::call::check;
use super::context::Context;
use super::devices::{describe, find};
use super::early::{self, LoadedKernel};
use super::exchange::{self, Abort, AllGather, Beside, Event, Prepared, Ranks, Waits};
use super::gemms::CublasGemms;
use super::graph::{Executable, Graph};
use super::library::Libraries;
use super::mark::Mark;
use super::memory;
use super::nvml::{BusId, Nvml};
use super::pinned::Pinned;
use super::sole::Sole;
use super::stage::Stage;
use super::timer::Timer;
use crate::activity::Activity;
use crate::cublas::Cublas;
use crate::driver::{
    Arrived, Bound, BoundWork, CublasUse, Device, Driver, DriverError, GraphId, KernelId, Launcher, Launches, Memory,
    Ticket,
};
use crate::gauge::Gauge;
use crate::permit::Permit;

/// One device, its context, and everything loaded and allocated on it.
pub struct Cuda {
    device: Device,
    /// Side stream, with several ranks.
    beside: Option<Beside>,
    kernels: Vec<LoadedKernel>,
    libraries: Libraries,
    /// Allocations: addresses and bytes.
    memory: Vec<(sys::CUdeviceptr, u64)>,
    graphs: Vec<Vec<PreparedPart>>,
    gemms: Option<CublasGemms>,
    /// Connections to other ranks' devices.
    ranks: Option<Ranks>,
    /// Waits for exchanges beside graphs.
    waits: Waits,
    stage: Option<Stage>,
    /// Host memory that device memory is spilled to.
    pinned: Option<Pinned>,
    activity: Activity,
    mark: Option<Mark>,
    /// Kind of memory that the environment requests.
    kind: Option<memory::Kind>,
    loads: u64,
    context: Context,
    /// Dropped last, when nothing else of this value is left.
    _sole: Sole,
}

impl Cuda {
    /// Opens a device to run kernels of a program, of the rows that there is code for (`held`).
    ///
    /// # Errors
    /// [`DriverError::InUse`], [`DriverError::Environment`], [`DriverError::NoDriver`], [`DriverError::OldDriver`],
    /// [`DriverError::NoGpu`], [`DriverError::NoDevice`], [`DriverError::Lazy`], or a failed call.
    pub fn open(ordinal: u32, launches: Launches, held: &[Arch], kernels: &Kernels) -> Result<Self, DriverError> {
        let sole = Sole::take()?;
        let kind = memory::Kind::asked(|name| std::env::var_os(name))?;
        let context = Context::new(find(ordinal)?)?;
        let device = describe(ordinal, context.device)?;
        Ok(Self {
            device: Device { rows: launches.rows(&device, held, kernels.tuned()), ..device },
            beside: None,
            kernels: Vec::new(),
            libraries: Libraries::default(),
            memory: Vec::new(),
            graphs: Vec::new(),
            gemms: None,
            ranks: None,
            waits: Waits::default(),
            stage: None,
            pinned: None,
            activity: Activity::default(),
            mark: None,
            kind,
            loads: 0,
            context,
            _sole: sole,
        })
    }

    /// Makes this device one of several ranks, which agree through `all_gather`.
    ///
    /// # Errors
    /// [`DriverError`] of the driver, or of the environment.
    pub fn connect(&mut self, rank: u32, ranks: u32, all_gather: AllGather) -> Result<Abort, DriverError> {
        self.beside = Some(Beside::new()?);
        let ranks = Ranks::new(rank, ranks, all_gather)?;
        let abort = ranks.abort();
        self.ranks = Some(ranks);
        Ok(abort)
    }

    /// Runs a prepared sequence: its graphs on the stream and exchanges beside them, as far as dependencies allow.
    fn run_parts(&mut self, graph: GraphId) -> Result<(), DriverError> {
        let (stream, waits) = (self.context.stream, &mut self.waits);
        let mut asked: Vec<&Event> = Vec::new();
        let mut waited = 0;
        let mut wait_for = |asked: &[&Event], exchanges: usize| {
            if exchanges <= waited {
                return Ok(());
            }
            waited = exchanges;
            waits.wait(stream, asked[exchanges - 1])
        };
        for part in &self.graphs[graph.0] {
            match part {
                PreparedPart::Graph { graph, exchanges } => {
                    wait_for(&asked, *exchanges)?;
                    graph.launch(stream)?;
                }
                PreparedPart::Exchange { label, exchange, done } => {
                    let (ranks, beside) = among(&self.ranks, &self.beside);
                    beside.follow(stream)?;
                    ranks.exchange(label, exchange, beside.stream)?;
                    done.record(beside.stream)?;
                    asked.push(done);
                }
            }
        }
        wait_for(&asked, asked.len())
    }

    fn stage(&mut self) -> &mut Stage {
        self.stage.as_mut().expect("Memory::stage comes before copies")
    }

    fn pinned(&self) -> &Pinned {
        self.pinned.as_ref().expect("Memory::pin comes before copies")
    }
}

/// A part of a prepared sequence, like [`exchange::SequencePart`].
enum PreparedPart {
    Graph {
        graph: Executable,
        exchanges: usize,
    },
    Exchange {
        label: String,
        exchange: Prepared,
        /// Recorded at its end.
        done: Event,
    },
}

/// Returns the connections to other ranks, and their stream.
fn among<'a>(ranks: &'a Option<Ranks>, beside: &'a Option<Beside>) -> (&'a Ranks, &'a Beside) {
    ranks.as_ref().zip(beside.as_ref()).expect("Launcher::prepare refuses exchanges where there are no ranks")
}

impl Memory for Cuda {
    fn allocate(&mut self, bytes: u64) -> Result<u64, DriverError> {
        let (result, address) = self.kind.unwrap_or(memory::Kind::Device).allocate(bytes);
        if result == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return Err(DriverError::OutOfMemory { asked: bytes, free: self.free_bytes()? });
        }
        check("cuMemAlloc", result)?;
        self.memory.push((address, bytes));
        Ok(address)
    }

    fn memory_note(&self) -> Option<String> {
        self.kind.map(memory::Kind::note)
    }

    fn free_bytes(&self) -> Result<u64, DriverError> {
        Ok(memory::free_and_total(self.device.integrated)?.0)
    }

    fn stage(&mut self, bytes: u64) -> Result<(), DriverError> {
        self.stage = Some(Stage::new(bytes as usize)?);
        self.mark = Mark::new(self.context.stream)?;
        // SAFETY: the word lives until this value is dropped, which takes it back first.
        unsafe { self.activity.set_word(self.mark.as_ref().map(|mark| mark.word)) };
        Ok(())
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DriverError> {
        let stream = self.context.stream;
        self.stage().write(stream, address, bytes)
    }

    fn read(&mut self, address: u64, bytes: u64) -> Result<Ticket, DriverError> {
        let stream = self.context.stream;
        self.stage().read(stream, address, bytes as usize).map(Ticket)
    }

    fn wait(&mut self, ticket: Ticket) -> Result<Arrived, DriverError> {
        let arrived = self.stage().wait(ticket.0)?;
        // Results of an aborted exchange are invalid.
        self.ranks.as_ref().map_or(Ok(()), |ranks| ranks.abort().check("ranks"))?;
        Ok(arrived)
    }

    fn pin(&mut self, bytes: u64) -> Result<(), DriverError> {
        self.pinned = Some(Pinned::new(bytes as usize)?);
        Ok(())
    }

    fn spill(&mut self, address: u64, bytes: u64, start: u64) -> Result<(), DriverError> {
        self.pinned().spill(self.context.stream, address, (start, bytes))
    }

    fn fetch(&mut self, address: u64, bytes: u64, start: u64) -> Result<(), DriverError> {
        self.pinned().fetch(self.context.stream, address, (start, bytes))
    }
}

impl Launcher for Cuda {
    fn load(&mut self, module: &Module<'_>, permit: &Permit) -> Result<KernelId, DriverError> {
        self.loads += 1;
        let function = self.libraries.load(module, permit)?;
        self.kernels.push(LoadedKernel { function, is_early: early::is_early(module) });
        Ok(KernelId(self.kernels.len() - 1))
    }

    fn loads(&self) -> u64 {
        self.loads
    }

    fn set_cublas(&mut self, cublas: Cublas) -> Result<(), DriverError> {
        self.gemms = Some(CublasGemms::new(&cublas, &self.device)?);
        Ok(())
    }

    fn cublas(&self) -> Option<CublasUse> {
        self.gemms.as_ref().map(|gemms| CublasUse { version: gemms.version, taken_bytes: gemms.taken_bytes })
    }

    fn prepare(&mut self, nodes: &[Bound]) -> Result<GraphId, DriverError> {
        let mut prepared = Vec::new();
        for part in exchange::divide(nodes) {
            prepared.push(match part {
                exchange::SequencePart::Exchange(node) => {
                    let Bound { label, work: BoundWork::Exchange(exchange), .. } = &nodes[node] else {
                        unreachable!("it is an exchange");
                    };
                    let none =
                        || DriverError::Exchange { label: label.clone(), reason: "there are no other ranks".into() };
                    let exchange = self.ranks.as_mut().ok_or_else(none)?.prepare(label, exchange)?;
                    // Runs once before the seal: NCCL connects at the first use. Nothing has been uploaded yet.
                    let (ranks, beside) = among(&self.ranks, &self.beside);
                    ranks.exchange(label, &exchange, beside.stream)?;
                    // SAFETY: waits for the stream.
                    check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(beside.stream) })?;
                    ranks.abort().check(label)?;
                    PreparedPart::Exchange { label: label.clone(), exchange, done: Event::new()? }
                }
                exchange::SequencePart::Graph { nodes: range, exchanges } => {
                    let (first, mut graph) = (range.start as u32, Graph::new()?);
                    for bound in &nodes[range] {
                        // Dependencies in earlier parts are met before this part begins.
                        let own = bound.dependencies.iter().filter(|earlier| **earlier >= first);
                        let node =
                            &Bound { dependencies: own.map(|earlier| earlier - first).collect(), ..bound.clone() };
                        match &node.work {
                            BoundWork::Launch(launch) => graph.launch(node, self.kernels[launch.kernel.0], launch)?,
                            BoundWork::Gemm(gemm) => {
                                let gemms = self.gemms.as_mut().expect("Launcher::set_cublas comes before GEMMs");
                                gemms.prepare(&mut graph, self.context.stream, node, gemm)?;
                            }
                            BoundWork::Exchange(_) => unreachable!("a graph has none"),
                        }
                    }
                    PreparedPart::Graph { graph: graph.instantiate(self.context.stream)?, exchanges }
                }
            });
        }
        self.graphs.push(prepared);
        Ok(GraphId(self.graphs.len() - 1))
    }

    fn run(&mut self, graph: GraphId) -> Result<(), DriverError> {
        self.run_parts(graph)
    }

    fn run_beside(&mut self, graph: GraphId) -> Result<(), DriverError> {
        let Some(beside) = &self.beside else { return self.run(graph) };
        beside.follow(self.context.stream)?;
        for part in &self.graphs[graph.0] {
            match part {
                PreparedPart::Graph { graph, .. } => graph.launch(beside.stream)?,
                PreparedPart::Exchange { label, exchange, .. } => {
                    among(&self.ranks, &self.beside).0.exchange(label, exchange, beside.stream)?;
                }
            }
        }
        beside.done.record(beside.stream)
    }

    fn side_stream(&mut self) -> Result<(), DriverError> {
        if self.beside.is_none() {
            self.beside = Some(Beside::new()?);
        }
        Ok(())
    }

    fn join(&mut self) -> Result<(), DriverError> {
        let Some(beside) = &self.beside else { return Ok(()) };
        self.waits.wait(self.context.stream, &beside.done)
    }

    fn time(&mut self, graph: GraphId, repeats: u32) -> Result<f64, DriverError> {
        let timer = Timer::new()?;
        // The device runs the first while the host enqueues the others, so none waits for the host.
        self.run(graph)?;
        timer.start(self.context.stream)?;
        (0..repeats).try_for_each(|_| self.run(graph))?;
        Ok(timer.stop(self.context.stream)? / f64::from(repeats))
    }
}

impl Driver for Cuda {
    fn device(&self) -> &Device {
        &self.device
    }

    fn connect_ranks(&mut self) -> Result<(), DriverError> {
        let Some(ranks) = &mut self.ranks else { return Ok(()) };
        ranks.connect(&self.memory, memory::free_and_total(self.device.integrated)?.0)
    }

    fn ranks(&self) -> Option<String> {
        self.ranks.as_ref().map(Ranks::about)
    }

    fn waited_s(&mut self) -> Result<Option<f64>, DriverError> {
        self.ranks.as_ref().map(|_| self.waits.seconds()).transpose()
    }

    fn gauge(&self) -> Option<Gauge> {
        let bus = BusId::of(self.context.device);
        Some(Gauge::start(move || {
            let nvml = Nvml::open(&bus?)?;
            Ok(move || nvml.reading())
        }))
    }

    fn activity(&self) -> Activity {
        self.activity.clone()
    }

    fn mark(&mut self, number: u32) -> Result<(), DriverError> {
        self.mark.as_ref().map_or(Ok(()), |mark| mark.write(self.context.stream, number))
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // A hung device would hang here too.
        let _call = self.activity.call();
        // Errors are of no use here: a context that failed is torn down with the process.
        // SAFETY: every handle was made by this value and is not used again; the stream is idle first.
        unsafe {
            let _ = sys::cuStreamSynchronize(self.context.stream);
            self.activity.set_word(None);
            self.mark = None;
            self.beside = None;
            self.graphs.clear();
            self.gemms = None;
            let is_shared = self.ranks.as_ref().is_some_and(Ranks::shares_memory);
            self.ranks = None;
            self.waits = Waits::default();
            self.stage = None;
            self.pinned = None;
            // Other ranks may still have this memory open: it is left to the end of the process, and the context with
            // it. CUDA leaves freeing it before they close it undefined.
            for (address, _) in self.memory.drain(..).filter(|_| !is_shared) {
                let _ = sys::cuMemFree_v2(address);
            }
            self.libraries = Libraries::default();
            if is_shared {
                self.context.keep();
            }
            self.context.release();
        }
    }
}
