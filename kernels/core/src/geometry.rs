//! Geometry of a launch.

/// Grid, block and dynamic shared memory of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// CTAs along x, y and z.
    pub grid: [u32; 3],
    /// Threads per CTA along x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory, bytes.
    pub shared_bytes: u32,
}

impl Geometry {
    /// Returns a one-dimensional launch without dynamic shared memory.
    pub fn linear(blocks: u32, threads: u32) -> Self {
        Self { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 0 }
    }

    /// Returns CTAs that stride over n elements: two vectors of four per thread, so that any launch loops more than
    /// once, and at most 4096 CTAs, which fill any GPU several times over.
    pub fn strided(n: u64, threads: u32) -> Self {
        let blocks = n.div_ceil(8 * u64::from(threads)).clamp(1, 4096);
        Self::linear(blocks as u32, threads)
    }
}
