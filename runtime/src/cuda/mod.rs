//! The NVIDIA driver.
//!
//! All calls to `libcuda` go through cudarc's generated bindings. Graphs are made of explicit nodes and the plan's own
//! edges; copies go through pinned slots that are reused once their event has passed.

pub(crate) mod call;
mod context;
mod devices;
mod early;
mod environment;
mod exchange;
mod gemms;
mod graph;
pub(crate) mod library;
mod mark;
mod memory;
mod nvml;
mod opened;
mod pinned;
pub(crate) mod sole;
mod stage;
mod tensor_map;
mod timer;

pub use devices::{Link, count, is_present, links, nvlinks};
pub(crate) use devices::{describe, find, start};
pub use exchange::{Abort, AllGather, nccl};
pub use opened::Cuda;
pub use stage::SLOTS as STAGE_SLOTS;
