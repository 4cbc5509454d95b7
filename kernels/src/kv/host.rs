use super::pool::Pool;
use crate::abi::{IDLE_SLOT, kv_store_params};
use crate::host::Views;

pub(super) fn store(d: u32, p: &kv_store_params, views: &mut Views<'_>) {
    let (pool, d) = (Pool { kv_heads: p.kv_heads, seq_len: p.seq_len, d }, d as usize);
    let (heads, kv_heads) = (p.heads as usize, p.kv_heads as usize);
    let (slots, positions) = (views.read::<u32>("slot"), views.read::<u32>("position"));
    let qkv = views.load("qkv");
    let mut pools = [views.store("keys"), views.store("values")];
    let rows = qkv.chunks((heads + 2 * kv_heads) * d).zip(slots.iter().zip(positions));
    for (row, (slot, position)) in rows.filter(|(_, (slot, _))| **slot != IDLE_SLOT) {
        let (keys, values) = row[heads * d..].split_at(kv_heads * d);
        for (of_row, to) in [keys, values].into_iter().zip(&mut pools) {
            for (kv_head, head) in (0..).zip(of_row.chunks(d)) {
                to[pool.at(*slot, kv_head, *position)..][..d].copy_from_slice(head);
            }
        }
    }
}
