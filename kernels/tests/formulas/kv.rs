use precast_kernels::abi::{IDLE_SLOT, kv_store_params};

use super::launch::Launch;

/// keys[slot, head, position] and values[slot, head, position] are the row's.
pub fn store(launch: &mut Launch) {
    let (d, kv_store_params { rows, seq_len, heads, kv_heads, .. }) = (launch.size("d"), launch.params());
    let [rows, seq_len, heads, kv_heads] = [rows, seq_len, heads, kv_heads].map(|size| size as usize);
    let (qkv, slots, positions) = (launch.before("qkv"), launch.before("slot"), launch.before("position"));
    for (part, name) in ["keys", "values"].into_iter().enumerate() {
        let mut pool = launch.before(name);
        for row in 0..rows {
            if launch.goes("idle", slots[row] == f64::from(IDLE_SLOT)) {
                continue;
            }
            for head in 0..kv_heads {
                let from = (row * (heads + 2 * kv_heads) + heads + part * kv_heads + head) * d;
                let to =
                    slots[row] as usize * kv_heads * seq_len * d + head * seq_len * d + positions[row] as usize * d;
                pool[to..][..d].copy_from_slice(&qkv[from..][..d]);
            }
        }
        launch.is(name, &pool);
    }
}
