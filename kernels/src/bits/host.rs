use bytemuck::Pod;

use crate::abi::{IDLE_SLOT, bits_compare_params};
use crate::host::Views;

/// Counts in elements of the type that has an element's bits.
pub(super) fn count<Bits: Pod + PartialEq>(p: &bits_compare_params, views: &mut Views<'_>) {
    let [found, expected] = ["found", "expected"].map(|name| views.read::<Bits>(name));
    let [slots, positions] = ["slot", "position"].map(|name| views.read::<u32>(name));
    let [compared, differing] = ["compared", "differing"].map(|name| views.write::<u32>(name));
    let vocab = p.vocab as usize;
    for (row, (slot, position)) in found.chunks(vocab).zip(slots.iter().zip(positions)) {
        if *slot != IDLE_SLOT {
            let place = *slot as usize * p.seq_len as usize + *position as usize;
            let pairs = || row.iter().zip(&expected[place * vocab..][..vocab]);
            compared[place] = pairs().count() as u32;
            differing[place] = pairs().filter(|(found, expected)| found != expected).count() as u32;
        }
    }
}
