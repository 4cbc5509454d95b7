//! Launches that check the kernels: parts of one column and of several tiles, gaps between them, and ranks of every
//! kind.

use crate::Batch;
use crate::abi::{
    LORA_PARTS, lora_dgrad_a_params, lora_dgrad_b_params, lora_fwd_a_params, lora_fwd_b_params, lora_part,
};

/// A stack and its adapters.
#[derive(Clone, Copy)]
pub(super) struct Sample {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub rank: u32,
    /// First column and number of columns of each part.
    parts: &'static [(u32, u32)],
}

/// For CUDA cores, then for whole vectors. The last are deep in k, in the width of a part, and in m.
pub(super) const SAMPLES: [Sample; 8] = [
    Sample { m: 1, n: 1, k: 1, rank: 1, parts: &[(0, 1)] },
    Sample { m: 33, n: 65, k: 17, rank: 3, parts: &[(0, 20), (31, 34)] },
    Sample { m: 130, n: 170, k: 140, rank: 5, parts: &[(3, 10), (20, 107), (140, 19), (160, 10)] },
    Sample { m: 1, n: 8, k: 8, rank: 8, parts: &[(0, 8)] },
    Sample { m: 33, n: 72, k: 24, rank: 8, parts: &[(0, 24), (40, 32)] },
    Sample { m: 70, n: 600, k: 520, rank: 16, parts: &[(40, 520)] },
    Sample { m: 130, n: 264, k: 264, rank: 24, parts: &[(0, 136), (136, 64), (200, 32), (232, 32)] },
    Sample { m: 520, n: 168, k: 136, rank: 72, parts: &[(8, 96), (104, 56)] },
];

impl Sample {
    /// Returns q, k and v of a large model.
    pub fn typical(batch: Batch) -> Self {
        const W: u32 = Batch::WIDTH;
        let parts = &[(0, W), (W, W / 4), (W + W / 4, W / 4)];
        Self { m: batch.tokens(), n: W + W / 2, k: W, rank: 16, parts }
    }

    pub fn parts(&self) -> u32 {
        self.parts.len() as u32
    }

    pub fn part(&self) -> [lora_part; LORA_PARTS as usize] {
        let mut row = 0;
        let mut all = [lora_part::default(); LORA_PARTS as usize];
        for ((part, (start, width)), scale) in all.iter_mut().zip(self.parts).zip([0.5, 2.0, 1.25, 0.75]) {
            *part = lora_part { scale, start: *start, width: *width, row };
            row += width;
        }
        all
    }
}

/// Builds the launch of a kernel for a sample; these are its fields besides the parts.
macro_rules! launch_of_parts {
    ($params:ident, $($field:ident),+) => {
        impl From<Sample> for $params {
            fn from(s: Sample) -> Self {
                Self { $($field: s.$field,)+ parts: s.parts(), part: s.part(), ..Default::default() }
            }
        }
    };
}

launch_of_parts!(lora_fwd_a_params, m, k, rank);
launch_of_parts!(lora_fwd_b_params, m, n, rank);
launch_of_parts!(lora_dgrad_b_params, m, n, rank);

impl From<Sample> for lora_dgrad_a_params {
    fn from(s: Sample) -> Self {
        Self { m: s.m, k: s.k, rank: s.parts() * s.rank, ..Default::default() }
    }
}
