//! Choice of who computes the GEMMs of linear layers: kernels of the bundle, or NVIDIA's cuBLASLt.

use crate::category;
use std::cell::Cell;
use std::fmt;
use std::str::FromStr;

use precast_kernels::Dtype;
use serde::Serialize;

use precast_core::plan::{Builder, Tensor};

/// Executor of the GEMMs of linear layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Gemm {
    #[default]
    Bundle,
    /// cuBLASLt: rounds differently than the bundle, so other bits.
    Cublas,
}

impl Gemm {
    pub const ALL: [Gemm; 2] = [Gemm::Bundle, Gemm::Cublas];
}

impl fmt::Display for Gemm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for Gemm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|choice| choice.to_string() == text);
        found.ok_or_else(|| format!("unknown gemm `{text}`: bundle or cublas"))
    }
}

/// Workspace limit of a cuBLASLt GEMM: NVIDIA's advice for Hopper, and more than other GPUs use.
const WORKSPACE_BYTES: u64 = 32 << 20;

/// Workspaces that consecutive GEMMs use in rotation, so that two may run concurrently.
const WORKSPACES: usize = 2;

/// Workspaces of cuBLASLt.
pub(crate) struct Workspaces {
    slots: [Tensor; WORKSPACES],
    taken: Cell<usize>,
}

impl Workspaces {
    pub fn new(b: &mut Builder) -> Self {
        let elems = WORKSPACE_BYTES / Dtype::F32.bytes();
        let all = b.persistent("cublas.workspaces", category::CUBLAS_WORKSPACES, Dtype::F32, WORKSPACES as u64 * elems);
        Self { slots: std::array::from_fn(|slot| all.slice(slot as u64 * elems, elems)), taken: Cell::new(0) }
    }

    /// Returns the next workspace in rotation.
    pub fn take(&self) -> Tensor {
        let taken = self.taken.get();
        self.taken.set(taken + 1);
        self.slots[taken % WORKSPACES]
    }
}
