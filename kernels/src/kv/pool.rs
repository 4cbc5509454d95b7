//! Layout of the pool.

/// Layout of keys, or of values: `[slots, kv_heads, seq_len, d]`, as `pool.cuh` has it.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    pub kv_heads: u32,
    pub seq_len: u32,
    pub d: u32,
}

impl Pool {
    /// Returns the index of the first element of a head at a position.
    pub fn at(self, slot: u32, kv_head: u32, position: u32) -> usize {
        let [slot, kv_head, position] = [slot, kv_head, position].map(|index| index as usize);
        ((slot * self.kv_heads as usize + kv_head) * self.seq_len as usize + position) * self.d as usize
    }
}
