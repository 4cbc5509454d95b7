//! A mixture of experts, forward: each token's row goes through the experts that it chooses, and a shared one if there
//! is one.
//!
//! - `moe.route`: chooses the `chosen` largest of a token's logits, of equals the lower expert. Weights are the softmax
//!   over all experts, or over those chosen (`normalize`); the shared expert's is the sigmoid of its own logit.
//! - `moe.sort`: gives each choice a row, where rows lie by expert, then by token, and lists tiles of experts' rows, in
//!   one list or one for each of several neighboring experts, whose matrices are not in memory at the same time.
//! - `moe.permute`: copies rows there, once for each choice; [`gemm`](crate::gemm) with `experts` multiplies them.
//! - `moe.combine`: `out[t] = sum over choices of weight y[place] + residual[t]`.
//!
//! Nothing is dropped and nothing padded: tokens times choices are rows, whatever is chosen, and only how they divide
//! among experts is known on the device. Sums of a token are in the order of its choices, so its result depends on its
//! own row alone. Sources: Shazeer et al., "Outrageously Large Neural Networks", 2017; Gale et al., "MegaBlocks", 2023
//! (sorted rows).

mod host;

pub use crate::abi::{
    EXPERT_TILE, MoeCombine, MoePermute, MoeRoute, MoeSort, ROUTE_GROUP, moe_combine_params, moe_permute_params,
    moe_route_params, moe_sort_params,
};
use crate::host::Views;
use crate::{Batch, Build, Dtype, Geometry, Operand, Reference, Source, Threads, Tolerance, one_variant, source};

/// Most experts of a layer, and most that a token chooses: lanes of a warp, with a shared one.
pub const MOST: (u32, u32) = (1024, 31);

/// Returns the most tiles of so many rows of experts.
pub fn most_tiles(rows: u32, experts: u32) -> u32 {
    rows.div_ceil(EXPERT_TILE) + experts - 1
}

/// Returns the entries of a list of those tiles: their number, and them.
pub fn list_entries(rows: u32, experts: u32) -> u32 {
    1 + most_tiles(rows, experts)
}

impl MoeRoute {
    pub(crate) fn choices(&self, _p: &moe_route_params) -> u64 {
        u64::from(self.chosen + u32::from(self.shared))
    }

    pub(crate) fn matrices(&self, _p: &moe_route_params) -> u64 {
        u64::from(self.experts + u32::from(self.shared))
    }

    pub(crate) fn groups(&self, p: &moe_route_params) -> u64 {
        p.tokens.div_ceil(ROUTE_GROUP).into()
    }
}

impl MoeSort {
    pub(crate) fn choices(&self, _p: &moe_sort_params) -> u64 {
        u64::from(self.chosen + u32::from(self.shared))
    }

    pub(crate) fn matrices(&self, _p: &moe_sort_params) -> u64 {
        self.experts_and_shared().into()
    }

    fn experts_and_shared(&self) -> u32 {
        self.experts + u32::from(self.shared)
    }

    pub(crate) fn lists(&self, p: &moe_sort_params) -> u64 {
        self.experts_and_shared().div_ceil(p.each).into()
    }

    pub(crate) fn groups(&self, p: &moe_sort_params) -> u64 {
        p.tokens.div_ceil(ROUTE_GROUP).into()
    }
}

/// Tokens of samples: one, a part of a group, several groups.
const TOKENS: [u32; 3] = [1, 37, 200];

impl Build for MoeRoute {
    one_variant!(Threads { threads: 256 });

    fn source(&self, _variant: Threads) -> Source {
        source!("moe", "route.cu")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        Geometry::linear(p.tokens.div_ceil(ROUTE_GROUP), variant.threads)
    }
}

impl Reference for MoeRoute {
    fn examples() -> Vec<Self> {
        let keys = [(4, 16, true, false), (3, 33, false, true), (8, 128, true, true), (1, 5, false, false)];
        let dtypes = [Dtype::F32, Dtype::Bf16].into_iter().cycle();
        let key = |((chosen, experts, normalize, shared), x)| Self { chosen, experts, normalize, shared, x };
        keys.into_iter().zip(dtypes).map(key).collect()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::route(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        let columns = self.experts + 3;
        TOKENS.map(|tokens| Self::Params { tokens, columns, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: batch.tokens(), columns: self.experts + 8, ..Default::default() }
    }
}

impl Build for MoeSort {
    one_variant!(Threads { threads: 256 });

    fn source(&self, _variant: Threads) -> Source {
        source!("moe", "sort.cu")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        Geometry::linear(p.tokens.div_ceil(ROUTE_GROUP), variant.threads)
    }
}

impl Reference for MoeSort {
    fn examples() -> Vec<Self> {
        let keys = [(4, 16, false), (3, 33, true), (8, 256, true)];
        keys.map(|(chosen, experts, shared)| Self { chosen, experts, shared }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::sort(*self, p, views);
    }

    /// Counts are random, so there may be as many tiles as if each group had that many of each expert.
    fn samples(&self) -> Vec<Self::Params> {
        let all = self.experts_and_shared();
        let list = |tokens: u32| 1 + all * (tokens.div_ceil(ROUTE_GROUP) + 1);
        let samples = TOKENS.into_iter().zip([all, all.div_ceil(3), 1]);
        samples.map(|(tokens, each)| Self::Params { tokens, list: list(tokens), each, ..Default::default() }).collect()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        let tokens = batch.tokens();
        let (rows, all) = (tokens * (self.chosen + u32::from(self.shared)), self.experts_and_shared());
        Self::Params { tokens, list: list_entries(rows, all), each: all, ..Default::default() }
    }

    fn tolerance(&self, _operand: &Operand) -> Tolerance {
        Tolerance::EXACT
    }
}

impl Build for MoePermute {
    one_variant!(Threads { threads: 256 });

    fn source(&self, _variant: Threads) -> Source {
        source!("moe", "permute.cu")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        Geometry::linear(p.tokens.div_ceil(variant.threads / 32), variant.threads)
    }
}

impl Reference for MoePermute {
    fn examples() -> Vec<Self> {
        [Dtype::Bf16, Dtype::F32, Dtype::I8].map(|x| Self { x: x.into() }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::permute(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        // Rows of 8-bit values are whole vectors.
        let odd = if self.x == Dtype::I8 { 32 } else { 33 };
        let shapes = [(1, 1, 16), (37, 4, 48), (70, 9, odd), (5, 3, 1040)];
        let sample = |(tokens, choices, h)| Self::Params { tokens, choices, h, ..Default::default() };
        shapes.map(sample).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: batch.tokens(), choices: 8, h: 2048, ..Default::default() }
    }

    fn tolerance(&self, _operand: &Operand) -> Tolerance {
        Tolerance::EXACT
    }
}

impl Build for MoeCombine {
    one_variant!(Threads { threads: 256 });

    fn source(&self, _variant: Threads) -> Source {
        source!("moe", "combine.cu")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        Geometry::linear(p.tokens.div_ceil(variant.threads / 32), variant.threads)
    }
}

impl Reference for MoeCombine {
    fn examples() -> Vec<Self> {
        [(1, Dtype::F32), (4, Dtype::Bf16), (9, Dtype::Bf16), (8, Dtype::F32)]
            .map(|(choices, x)| Self { choices, x })
            .into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::combine(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 16), (37, 33), (70, 1040)].map(|(tokens, h)| Self::Params { tokens, h, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: batch.tokens(), h: 2048, ..Default::default() }
    }
}
