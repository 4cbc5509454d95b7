//! Figures of a GPU that launches are selected by.

use crate::Arch;

/// Figures of a GPU that launches are selected by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    /// Multiprocessors of the card.
    pub multiprocessors: u32,
    /// bf16 with fp32 sums by tensor cores: FLOP a clock and multiprocessor.
    pub flops_per_clock: u32,
}

/// Returns the rate of tensor cores with fp32 sums, FLOP a clock and multiprocessor (NVIDIA's architecture papers);
/// none where it is not published. `name` is the driver's: a GeForce sums at half of the rate of its architecture.
pub fn flops_per_clock(name: &str, capability: (u32, u32)) -> Option<u32> {
    let full = match capability {
        (8, 0) => 2048,
        (9, 0) => 4096,
        (8, 6 | 9) | (12, _) => 1024,
        _ => return None,
    };
    Some(if name.contains("GeForce") { full / 2 } else { full })
}

impl Arch {
    /// Returns the figures of the GPU that launches are sized for, where its tiles' rates are not measured.
    pub fn card(self) -> Option<Card> {
        let measured = matches!(self, Arch::Sm90a | Arch::Sm90Portable);
        let rate = flops_per_clock(self.chip()?, self.compute_capability()?).filter(|_| !measured);
        rate.map(|flops_per_clock| Card { multiprocessors: self.multiprocessors(), flops_per_clock })
    }
}
