//! Kernels that begin before the launch that they depend on has ended, and wait for its end themselves
//! (CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization").

use cudarc::driver::sys;
use precast_core::Arch;
use precast_fatbins::Module;

/// Instruction of `early.cuh`, for sm_90a alone: a kernel with it has waited for all that it depends on before it lets
/// the next begin.
const INSTRUCTION: &str = "griddepcontrol.launch_dependents";

/// A dependency on another kernel's launch that the later kernel waits for.
pub(super) const EDGE: sys::CUgraphEdgeData = sys::CUgraphEdgeData_st {
    from_port: 1, // CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
    to_port: 0,
    type_: sys::CUgraphDependencyType_enum::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u8,
    reserved: [0; 5],
};

/// A loaded kernel.
#[derive(Clone, Copy)]
pub(super) struct LoadedKernel {
    pub function: sys::CUfunction,
    /// True if its machine code waits for the launches before it, and then lets the next begin.
    pub is_early: bool,
}

/// True if a module's kernel begins early. A kernel that is taken as it is knows nothing of the convention.
pub(super) fn is_early(module: &Module<'_>) -> bool {
    let is_plain = module.pair.key.plain().is_some();
    module.arch == Arch::Sm90a && !is_plain && module.pair.source().mentions(INSTRUCTION)
}
