use precast_kernels::abi::{IDLE_SLOT, bits_compare_params};

use super::launch::Launch;

/// compared[slot, position] is the length of the row, and differing[slot, position] how many bits are not those
/// expected there: NaN is equal to itself, and zeros of two signs are not.
pub fn compare(launch: &mut Launch) {
    let bits_compare_params { seq_len, vocab, .. } = launch.params();
    let (seq_len, vocab) = (seq_len as usize, vocab as usize);
    let [found, expected] = ["found", "expected"].map(|name| launch.before(name));
    let [slots, positions] = ["slot", "position"].map(|name| launch.before(name));
    let [mut compared, mut differing] = ["compared", "differing"].map(|name| launch.before(name));
    for (row, (slot, position)) in slots.iter().zip(&positions).enumerate() {
        if launch.goes("idle", *slot == f64::from(IDLE_SLOT)) {
            continue;
        }
        let place = *slot as usize * seq_len + *position as usize;
        let bits = |id: usize| [found[row * vocab + id].to_bits(), expected[place * vocab + id].to_bits()];
        let is_other = |id: &usize| launch.goes("differs", bits(*id)[0] != bits(*id)[1]);
        let others = (0..vocab).filter(is_other).count();
        (compared[place], differing[place]) = (vocab as f64, others as f64);
    }
    assert_eq!(launch.after("compared"), compared);
    assert_eq!(launch.after("differing"), differing);
}
