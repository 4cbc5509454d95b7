//! Builds a plan: declares buffers, adds launches, finishes.

use crate::plan::arena::{self, Stage, Touched};
use crate::plan::buffer::{Buffer, BufferId, Category, Lifetime, Tensor};
use crate::plan::dependencies::dependencies;
use crate::plan::node::{Build, Cublas, Exchange, Executor, Launch, Node, Work};
use crate::plan::{Phase, Plan};
use crate::{Arch, Dtype, Format, Key, Registered, Registry};

/// A plan under construction.
pub struct Builder {
    arch: Arch,
    kernels: &'static Registry,
    buffers: Vec<Buffer>,
    phases: Vec<Phase>,
    /// By phase.
    stages: Vec<Stage>,
    /// The stage that phases are added to, if they are not stages of their own.
    current: Option<Stage>,
}

impl Builder {
    /// Starts an empty plan of these kernels for an architecture.
    pub fn new(kernels: &'static Registry, arch: Arch) -> Self {
        Self { arch, kernels, buffers: Vec::new(), phases: Vec::new(), stages: Vec::new(), current: None }
    }

    /// Returns the architecture that variants are selected for.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    fn declare(&mut self, name: String, category: Category, format: Format, elems: u64, lifetime: Lifetime) -> Tensor {
        assert!(elems > 0, "{name} is empty");
        let buffer = BufferId(self.buffers.len() as u32);
        self.buffers.push(Buffer { name, category, format, elems, lifetime, host: false, offset: 0 });
        let declared = &self.buffers[buffer.0 as usize];
        assert!(declared.bytes() < Buffer::MOST_BYTES, "{} is larger than 1 TiB", declared.name);
        Tensor { buffer, offset: 0, format, elems }
    }

    /// Declares a buffer that keeps its content.
    pub fn persistent(
        &mut self,
        name: impl Into<String>,
        category: Category,
        format: impl Into<Format>,
        elems: u64,
    ) -> Tensor {
        self.declare(name.into(), category, format.into(), elems, Lifetime::Persistent)
    }

    /// Declares a buffer that host and nodes may write and read in several phases.
    pub fn lasting(
        &mut self,
        name: impl Into<String>,
        category: Category,
        format: impl Into<Format>,
        elems: u64,
        lifetime: Lifetime,
    ) -> Tensor {
        self.declare(name.into(), category, format.into(), elems, lifetime)
    }

    /// Declares a buffer that lives from its first node to its last, in one phase.
    pub fn transient(&mut self, name: impl Into<String>, format: impl Into<Format>, elems: u64) -> Tensor {
        self.declare(name.into(), Category::ACTIVATIONS, format.into(), elems, Lifetime::Transient)
    }

    /// Declares a buffer that the host writes before the phase that reads it.
    pub fn sent(&mut self, name: impl Into<String>, format: impl Into<Format>, elems: u64) -> Tensor {
        let tensor = self.transient(name, format, elems);
        self.read_back(tensor);
        tensor
    }

    /// Lets the host read a transient buffer after its phase, before another runs.
    pub fn read_back(&mut self, tensor: Tensor) {
        self.buffers[tensor.buffer.0 as usize].host = true;
    }

    /// Starts a phase; later nodes go to it.
    pub fn phase(&mut self, name: &str) {
        self.phases.push(Phase { name: name.to_owned(), nodes: Vec::new(), cuts: Vec::new(), beside: false });
        self.stages.push(self.current.unwrap_or(Stage::Phase));
    }

    /// Starts a stage: phases up to its end share the buffers that live as long as it does.
    pub fn start_stage(&mut self) {
        let stages =
            self.stages.iter().filter_map(|stage| if let Stage::Shared(stage) = stage { Some(stage) } else { None });
        self.current = Some(Stage::Shared(stages.max().map_or(0, |last| last + 1)));
    }

    /// Ends the stage: each later phase is a stage of its own.
    pub fn end_stage(&mut self) {
        self.current = None;
    }

    /// Starts a phase that runs once, in the order of the plan, before persistent buffers declared after the first such
    /// phase have content. Transient buffers may live from one such phase to another.
    pub fn startup_phase(&mut self, name: &str) {
        self.phase(name);
        let declared = self.stages.iter().find_map(|stage| stage.startup()).unwrap_or(self.buffers.len());
        *self.stages.last_mut().expect("it has been started") = Stage::Startup { declared };
    }

    /// Makes the current phase one that runs on the side stream, beside later copies to the device.
    pub fn beside(&mut self) {
        self.phases.last_mut().expect("a phase has been started").beside = true;
    }

    /// Divides the current phase before the next node.
    pub fn cut(&mut self) {
        let phase = self.phases.last_mut().expect("a phase has been started");
        phase.cuts.push(phase.nodes.len() as u32);
    }

    /// Adds a launch of a kernel of the bundle.
    ///
    /// # Panics
    /// If an operand has no buffer, another format than its buffer, or reaches past it, or no variant admits the
    /// launch: the lowering is wrong.
    pub fn launch<K: Registered>(&mut self, label: impl Into<String>, kernel: K, params: impl Into<K::Params>) {
        let (label, params) = (label.into(), crate::bytes(&kernel, &params.into()));
        let key = Key::new(kernel);
        let is_admitted = key.kernel().variants(self.arch).into_iter().any(|row| key.kernel().admits(row, &params));
        assert!(is_admitted, "{label}: no variant of {key} for {} admits its parameters", self.arch);
        let variant = self.kernels.select(&key, &params, self.arch);
        let geometry = key.kernel().geometry(variant, &params);
        self.add(label, Launch { key, params, by: Executor::Kernel(Build { variant, geometry }) });
    }

    /// Adds a GEMM that cuBLASLt computes.
    ///
    /// # Panics
    /// Those of [`Self::launch`].
    pub fn multiply<K: Registered>(&mut self, label: impl Into<String>, kernel: K, params: &K::Params, by: Cublas) {
        let params = crate::bytes(&kernel, params);
        let key = Key::new(kernel);
        self.add(label.into(), Launch { key, params, by: Executor::Cublas(by) });
    }

    fn add(&mut self, label: String, launch: Launch) {
        for (operand, buffer, offset) in launch.operands() {
            let (name, buffer) = (operand.name, &self.buffers[buffer.0 as usize]);
            let fits = offset + operand.bytes() <= buffer.bytes();
            assert!(fits, "{label}: operand `{name}` reaches past buffer {}", buffer.name);
            let words = buffer.format == Dtype::U32 || operand.format == buffer.format;
            assert!(words, "{label}: operand `{name}` is {}, {} is {}", operand.format, buffer.name, buffer.format);
            assert!(offset.is_multiple_of(16), "{label}: operand `{name}` is not aligned to 16 bytes");
        }
        let phase = self.phases.last_mut().expect("a phase has been started");
        phase.nodes.push(Node { label, work: Work::Launch(launch), dependencies: Vec::new() });
    }

    /// Adds an exchange.
    ///
    /// # Panics
    /// If a tensor reaches past its buffer.
    pub fn exchange(&mut self, label: impl Into<String>, exchange: Exchange) {
        let label = label.into();
        for (_, tensor) in exchange.sends.iter().chain(&exchange.receives) {
            let buffer = &self.buffers[tensor.buffer.0 as usize];
            assert!(tensor.offset + tensor.bytes() <= buffer.bytes(), "{label}: reaches past buffer {}", buffer.name);
        }
        let phase = self.phases.last_mut().expect("a phase has been started");
        phase.nodes.push(Node { label, work: Work::Exchange(exchange), dependencies: Vec::new() });
    }

    /// Takes the nodes of the current phase, to insert others between them.
    pub fn take(&mut self) -> Vec<Node> {
        std::mem::take(&mut self.phases.last_mut().expect("a phase has been started").nodes)
    }

    /// Appends a node again. Existing cuts stay before the nodes with their numbers.
    pub fn put(&mut self, node: Node) {
        self.phases.last_mut().expect("a phase has been started").nodes.push(node);
    }

    /// Places the buffers in the arena and finds the dependencies.
    ///
    /// # Panics
    /// If a transient buffer is read before it is written, or used in two phases that are not both start-up phases; if
    /// a buffer of a stage is used in another.
    pub fn finish(self) -> Plan {
        let Self { arch, mut buffers, mut phases, stages, .. } = self;
        let touched =
            |(phase, stage): (&Phase, Stage)| Touched { stage, nodes: phase.nodes.iter().map(Node::touches).collect() };
        let touched: Vec<Touched> = phases.iter().zip(stages).map(touched).collect();
        let arena_bytes = arena::place(&mut buffers, &touched);
        for (phase, touched) in phases.iter_mut().zip(&touched) {
            for (node, dependencies) in phase.nodes.iter_mut().zip(dependencies(&touched.nodes, &buffers)) {
                node.dependencies = dependencies;
            }
        }
        Plan { arch, buffers, phases, arena_bytes }
    }
}
