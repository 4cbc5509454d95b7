//! Builds a CUDA graph: the nodes of a phase with the plan's own edges.

use std::ptr::null_mut;

use cudarc::driver::sys;

use super::call::{check, check_on};
use super::early::{self, LoadedKernel};
use super::library;
use super::memory::check_memory;
use crate::driver::{Bound, BoundLaunch, DriverError, MoreMemory};

/// A graph and its nodes in order of addition.
pub(super) struct Graph {
    graph: sys::CUgraph,
    nodes: Vec<Node>,
}

/// A node of a graph.
#[derive(Clone, Copy)]
struct Node {
    node: sys::CUgraphNode,
    /// True if it launches a kernel that lets the next begin.
    is_early: bool,
}

impl Graph {
    pub fn new() -> Result<Self, DriverError> {
        let mut graph = null_mut();
        // SAFETY: writes one handle.
        check("cuGraphCreate", unsafe { sys::cuGraphCreate(&mut graph, 0) })?;
        Ok(Self { graph, nodes: Vec::new() })
    }

    /// Returns the nodes with these numbers.
    fn dependencies(&self, earlier: &[u32]) -> Vec<sys::CUgraphNode> {
        earlier.iter().map(|earlier| self.nodes[*earlier as usize].node).collect()
    }

    /// Returns the launch that a kernel waits for itself: the only node that it depends on, if that lets it begin.
    fn awaited(&self, kernel: LoadedKernel, earlier: &[u32]) -> Option<sys::CUgraphNode> {
        let [only] = earlier else { return None };
        let Node { node, is_early } = self.nodes[*only as usize];
        (kernel.is_early && is_early).then_some(node)
    }

    /// Adds the launch of a loaded kernel.
    pub fn launch(
        &mut self,
        Bound { label, dependencies, .. }: &Bound,
        kernel: LoadedKernel,
        launch: &BoundLaunch,
    ) -> Result<(), DriverError> {
        // The driver copies the block when the node is added, in the size that the kernel declares; the bundle's
        // verification has compared that size with this block's.
        let mut bytes = library::ready(kernel.function, &launch.geometry, &launch.params, &launch.tensor_maps, label)?;
        let mut arguments = library::arguments(&launch.key, &mut bytes);
        let [grid, block] = [launch.geometry.grid, launch.geometry.block];
        let params = sys::CUDA_KERNEL_NODE_PARAMS {
            func: kernel.function,
            gridDimX: grid[0],
            gridDimY: grid[1],
            gridDimZ: grid[2],
            blockDimX: block[0],
            blockDimY: block[1],
            blockDimZ: block[2],
            sharedMemBytes: launch.geometry.shared_bytes,
            kernelParams: arguments.as_mut_ptr(),
            extra: null_mut(),
            kern: null_mut(),
            ctx: null_mut(),
        };
        let awaited = self.awaited(kernel, dependencies);
        let (dependencies, mut node) =
            (awaited.map_or_else(|| self.dependencies(dependencies), |_| Vec::new()), null_mut());
        // SAFETY: all pointers outlive the calls; dependencies are nodes of this graph.
        unsafe {
            let (count, first) = (dependencies.len(), dependencies.as_ptr());
            let added = sys::cuGraphAddKernelNode_v2(&mut node, self.graph, first, count, &params);
            check_on("cuGraphAddKernelNode", added, label)?;
            if let Some(awaited) = awaited {
                let added = sys::cuGraphAddDependencies_v2(self.graph, &awaited, &node, &early::EDGE, 1);
                check_on("cuGraphAddDependencies", added, label)?;
            }
        }
        self.nodes.push(Node { node, is_early: kernel.is_early });
        Ok(())
    }

    /// Captures a library's own launches as one node: those that `enqueue` makes on the stream. Nothing runs now, and a
    /// call that would load or allocate fails.
    pub fn capture(
        &mut self,
        Bound { label, dependencies, .. }: &Bound,
        stream: sys::CUstream,
        enqueue: impl FnOnce() -> Result<(), DriverError>,
    ) -> Result<(), DriverError> {
        let (dependencies, mut captured, mut node) = (self.dependencies(dependencies), null_mut(), null_mut());
        // SAFETY: the stream is live and nothing else captures it; whatever `enqueue` did the capture ends, which
        // writes one handle; the child is copied when it is added.
        unsafe {
            let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            check_on("cuStreamBeginCapture", sys::cuStreamBeginCapture_v2(stream, mode), label)?;
            let enqueued = enqueue();
            let ended = sys::cuStreamEndCapture(stream, &mut captured);
            let captured = Self { graph: captured, nodes: Vec::new() };
            enqueued?;
            check_on("cuStreamEndCapture", ended, label)?;
            let (count, first) = (dependencies.len(), dependencies.as_ptr());
            let added = sys::cuGraphAddChildGraphNode(&mut node, self.graph, first, count, captured.graph);
            check_on("cuGraphAddChildGraphNode", added, label)?;
        }
        self.nodes.push(Node { node, is_early: false });
        Ok(())
    }

    /// Instantiates the graph for a stream.
    ///
    /// # Errors
    /// [`DriverError::OutOfDriverMemory`] if the driver has no memory for it.
    pub fn instantiate(self, stream: sys::CUstream) -> Result<Executable, DriverError> {
        let mut executable = Executable(null_mut());
        let what = format!("keep a graph of {} launches", self.nodes.len());
        // SAFETY: the graph is complete; the executable keeps what it needs of it.
        unsafe {
            let instantiated = sys::cuGraphInstantiateWithFlags(&mut executable.0, self.graph, 0);
            check_memory("cuGraphInstantiate", instantiated, &what, MoreMemory::SmallerBuffers)?;
            let uploaded = sys::cuGraphUpload(executable.0, stream);
            check_memory("cuGraphUpload", uploaded, &what, MoreMemory::SmallerBuffers)?;
            check("cuStreamSynchronize", sys::cuStreamSynchronize(stream))?;
        }
        Ok(executable)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // A capture that failed has none.
        if !self.graph.is_null() {
            // SAFETY: the handle was made by this value; executables do not need it.
            let _ = unsafe { sys::cuGraphDestroy(self.graph) };
        }
    }
}

/// A graph that a stream can launch.
pub(super) struct Executable(sys::CUgraphExec);

impl Executable {
    /// Queues the graph on a stream.
    ///
    /// # Errors
    /// [`DriverError`] of the driver.
    pub fn launch(&self, stream: sys::CUstream) -> Result<(), DriverError> {
        // SAFETY: the handle is live, and so is the memory that its nodes use.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.0, stream) })
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the handle was made by this value, and no stream is at work on it.
            let _ = unsafe { sys::cuGraphExecDestroy(self.0) };
        }
    }
}
