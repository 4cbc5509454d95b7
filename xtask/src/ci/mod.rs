//! `cargo xtask ci`: every test, the whole matrix of kernels on the host, the page's example, then proofs of the
//! artifact: locked, reproducible, published, built offline, built from packages alone, and of a fresh clone; and a
//! release is made twice.

mod checkout;
pub mod fresh;
mod install;
mod offline;
pub mod packages;
pub mod page;
mod prove;
mod published;
pub mod released;
pub mod reproducible;
mod rows;
pub mod semver;

pub use checkout::copy_checkout;
pub use prove::{ci, prove};
pub use published::locked;
pub use reproducible::{same, toolchain};
