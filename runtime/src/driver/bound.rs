//! Work with real addresses.

use precast_core::{Geometry, Key, TensorMap};

/// A loaded kernel of one driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelId(pub(crate) usize);

/// A node of a plan with real addresses.
#[derive(Clone, Debug)]
pub struct Bound {
    /// Name in messages.
    pub label: String,
    /// Work to do.
    pub work: BoundWork,
    /// Earlier nodes of the sequence that must have finished.
    pub dependencies: Vec<u32>,
}

/// Work of a node.
#[derive(Clone, Debug)]
pub enum BoundWork {
    /// A kernel of the bundle is launched.
    Launch(BoundLaunch),
    /// cuBLASLt computes a GEMM.
    Gemm(BoundGemm),
    /// Bytes go from rank to rank.
    Exchange(BoundExchange),
}

/// A GEMM of cuBLASLt.
#[derive(Clone, Debug)]
pub struct BoundGemm {
    /// Key of the kernel.
    pub key: Key,
    /// The parameter block, with real addresses.
    pub params: Vec<u8>,
    /// Workspace: address and bytes.
    pub workspace: (u64, u64),
    /// Address of alpha and beta; none if they are constants.
    pub factors: Option<u64>,
}

impl BoundWork {
    /// Returns the kernel key; none for an exchange.
    pub fn key(&self) -> Option<&Key> {
        match self {
            BoundWork::Launch(launch) => Some(&launch.key),
            BoundWork::Gemm(gemm) => Some(&gemm.key),
            BoundWork::Exchange(_) => None,
        }
    }
}

/// A launch of a loaded kernel.
#[derive(Clone, Debug)]
pub struct BoundLaunch {
    /// Kernel, as [`Launcher::load`](super::Launcher::load) returned it.
    pub kernel: KernelId,
    /// Key of the kernel.
    pub key: Key,
    /// Grid, block and dynamic shared memory.
    pub geometry: Geometry,
    /// The parameter block, with real addresses.
    pub params: Vec<u8>,
    /// Tensor maps of the parameter block, not yet encoded.
    pub tensor_maps: Vec<TensorMap>,
}

/// Ranges of device memory to and from other ranks.
#[derive(Clone, Debug)]
pub struct BoundExchange {
    /// Receiving rank, address and bytes.
    pub sends: Vec<(u32, u64, u64)>,
    /// Sending rank, address and bytes.
    pub receives: Vec<(u32, u64, u64)>,
}
