//! A cubin under another symbol: a forger can make one, an honest compiler cannot.

use precast_fatbins::CubinFacts;

/// Returns the cubin with another entry symbol of the same length.
pub fn renamed(cubin: &[u8], symbol: &str) -> Vec<u8> {
    let old = CubinFacts::read(cubin).expect("a cubin").entry;
    assert_eq!(old.len(), symbol.len());
    let mut renamed = cubin.to_vec();
    for at in 0..=renamed.len() - old.len() {
        if renamed[at..].starts_with(old.as_bytes()) {
            renamed[at..at + old.len()].copy_from_slice(symbol.as_bytes());
        }
    }
    renamed
}
