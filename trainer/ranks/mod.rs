//! The ranks of a run: who they are, how they find each other, collectives on the host, and how all of them end when
//! one does.
//!
//! Rank 0 listens, all others connect to it and stay connected: over these connections go heartbeats, reports of
//! failures, and the few bytes of collectives on the host. What a step moves goes other ways: a mesh of TCP connections
//! between simulated GPUs, copy engines or NCCL between real ones.

mod alike;
mod connection;
mod control;
mod error;
pub mod frame;
mod launch;
mod launcher;
mod rendezvous;
#[cfg(test)]
pub(crate) mod tests;
mod token;

pub use connection::Ranks;
pub use error::{RankError, RankFailure};
pub use launch::{Gpus, check_alone, is_printed_by_another, place, start};
pub use launcher::{Launcher, MOST_RANKS, Place};
