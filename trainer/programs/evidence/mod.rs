//! `precast evidence`: what this chip computes, written down for others to compare with theirs.

mod gather;
mod golden;

pub use gather::gather;
