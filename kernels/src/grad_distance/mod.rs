//! Distance of two gradients: partial sums for their cosine and the ratio of their norms.
//!
//! `partial[0] = sum of a b`, `partial[1] = sum of a^2`, `partial[2] = sum of b^2` of each group of elements; the host
//! adds groups in f64: `cosine = ab / sqrt(aa bb)`, `norm ratio = sqrt(aa / bb)`.

mod host;

pub use crate::abi::GradDistancePartial;
pub use crate::grad_norm::GROUP;
use crate::grad_norm::partial_of;
use crate::host::Views;
use crate::{Arch, Batch, Build, Geometry, Reference, Source, Threads, source};

partial_of!(GradDistancePartial, "grad_distance");
