//! A mixture of experts: each token's row goes through those that it chooses.

use precast_kernels::abi::{
    GemmFwdArgs, GemmSwigluArgs, MoeCombineArgs, MoePermuteArgs, MoeRouteArgs, MoeSortArgs, ROUTE_GROUP,
};
use precast_kernels::gemm::{GemmFwd, GemmSwiglu, experts_of};
use precast_kernels::moe::{MoeCombine, MoePermute, MoeRoute, MoeSort, list_entries, most_tiles};
use precast_kernels::{Dtype, Flag, Gate};

use super::Ops;
use super::rows::ActivationRows;
use crate::category;
use crate::config::ExpertsConfig;
use crate::weights::{ExpertWeights, Int8Rows, Layer, Linear, Matrix};
use precast_core::plan::{Builder, Tensor};

/// Buffers of a model's routes, which its layers take in turn. They are not transient: benchmarks launch the kernels
/// that find rows by them again, when other launches have written to transient memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routes {
    /// `[tokens, choices]`: experts.
    choices: Tensor,
    /// `[tokens, choices]`: earlier choices of the same expert in the group.
    ranks: Tensor,
    /// `[groups, matrices]`: choices of each expert in each group of tokens.
    counts: Tensor,
    /// `[tokens, choices]`, f32: factor of what each choice computes.
    weights: Tensor,
    /// `[tokens, choices]`: row of each choice, where rows lie by expert.
    places: Tensor,
    /// `[lists, list_entries, 4]`: the tiles of each group's rows.
    tiles: Tensor,
    config: ExpertsConfig,
    /// Experts of a group; the last one may have fewer.
    group: u32,
}

impl Routes {
    /// Declares them for at most so many tokens.
    pub(crate) fn declare(b: &mut Builder, name: &str, experts: &ExpertWeights, tokens: u32) -> Self {
        let ExpertWeights { config, group, .. } = *experts;
        let [rows, counts, tiles] = Self::elems((config, group), tokens);
        let mut words =
            |part: &str, dtype, elems| b.persistent(format!("{name}.routes.{part}"), category::INPUTS, dtype, elems);
        Self {
            choices: words("choices", Dtype::U32, rows),
            ranks: words("ranks", Dtype::U32, rows),
            counts: words("counts", Dtype::U32, counts),
            weights: words("weights", Dtype::F32, rows),
            places: words("places", Dtype::U32, rows),
            tiles: words("tiles", Dtype::U32, tiles),
            config,
            group,
        }
    }

    /// Returns the rows of a layer's experts: tokens times choices.
    pub fn rows(&self) -> u64 {
        self.places.elems
    }

    /// Returns the most tiles of a layer's lists together, each of at most
    /// [`EXPERT_TILE`](precast_kernels::moe::EXPERT_TILE) rows.
    pub fn most_tiles(&self) -> u64 {
        most_tiles(self.rows() as u32, self.config.matrices()).into()
    }

    /// Returns the rows that experts of the layer before read, of so many tokens: of each group of tokens, then of each
    /// expert.
    pub fn counts(&self, tokens: u32) -> Tensor {
        let [_, counts, _] = Self::elems((self.config, self.group), tokens);
        self.counts.slice(0, counts)
    }

    /// Adds up those of each expert.
    pub fn rows_of_experts(&self, counts: &[u32]) -> Vec<u64> {
        let mut rows = vec![0; self.config.matrices() as usize];
        for of_group in counts.chunks_exact(rows.len()) {
            rows.iter_mut().zip(of_group).for_each(|(rows, count)| *rows += u64::from(*count));
        }
        rows
    }

    /// Returns the experts whose matrices one GEMM reads, if not all.
    pub fn at_a_time(&self) -> Option<u32> {
        (self.group < self.config.matrices()).then_some(self.group)
    }

    /// Returns the elements of rows, counts and tiles of so many tokens.
    fn elems((config, group): (ExpertsConfig, u32), tokens: u32) -> [u64; 3] {
        let (rows, all) = (tokens * config.choices(), config.matrices());
        let counts = u64::from(tokens.div_ceil(ROUTE_GROUP)) * u64::from(all);
        [rows.into(), counts, 4 * u64::from(all.div_ceil(group) * list_entries(rows, group))]
    }

    /// Returns those of so many tokens.
    fn first(self, tokens: u32) -> Self {
        let Self { config, group, .. } = self;
        let [rows, counts, tiles] = Self::elems((config, group), tokens);
        let [choices, ranks, weights, places] =
            [self.choices, self.ranks, self.weights, self.places].map(|of| of.slice(0, rows));
        let (counts, tiles) = (self.counts.slice(0, counts), self.tiles.slice(0, tiles));
        Self { choices, ranks, counts, weights, places, tiles, config, group }
    }
}

/// A group of neighboring experts, whose rows one GEMM computes.
struct Group {
    /// Its place among the groups.
    index: u32,
    /// First of them.
    first: u32,
    /// Number of them.
    experts: u32,
    /// `[list_entries, 4]`: tiles of their rows.
    tiles: Tensor,
}

impl Routes {
    /// Returns the groups of a layer's experts.
    fn groups(&self) -> impl Iterator<Item = Group> {
        let Self { tiles, config, group, .. } = *self;
        let (rows, all) = (self.rows() as u32, config.matrices());
        let list = 4 * u64::from(list_entries(rows, group));
        (0..all.div_ceil(group)).map(move |index| {
            let first = index * group;
            let experts = group.min(all - first);
            let entries = 4 * u64::from(list_entries(rows, experts));
            Group { index, first, experts, tiles: tiles.slice(u64::from(index) * list, entries) }
        })
    }

    /// Returns the name of a group's launch: numbered if there are several.
    fn name_of(&self, name: &str, group: &Group) -> String {
        match self.at_a_time() {
            Some(_) => format!("{name}.{}", group.index),
            None => name.to_owned(),
        }
    }
}

/// Arguments of a group's GEMM, as its kernels have them.
struct GroupArgs {
    experts_of: u32,
    tiles: Option<Tensor>,
}

/// Rows in the format of the GEMM that reads them.
#[derive(Clone, Copy)]
struct Rows {
    values: Tensor,
    /// Scale of each, if in int8.
    scales: Option<Tensor>,
}

impl From<Int8Rows> for Rows {
    fn from(Int8Rows { values, scales }: Int8Rows) -> Self {
        Self { values, scales: Some(scales) }
    }
}

impl Ops<'_> {
    /// Lowers the experts of a layer, added to the residual stream; the sum is written to `y`, if that is given.
    pub fn experts(
        &mut self,
        (gate, layer, experts): (Gate, &Layer, &ExpertWeights),
        routes: Routes,
        x: ActivationRows,
        (residual, y): (Tensor, Option<Tensor>),
    ) -> Tensor {
        let (tokens, config, hidden) = (self.tokens, experts.config, layer.gate_up.k);
        let logits = self.linear("router", x.dense(), &experts.router).y;
        let routes = routes.first(tokens);
        self.route(logits, &routes);
        let rows = self.expert_rows("gate_up", x, &layer.gate_up);
        let rows = self.permute(rows, &routes, (config.choices(), hidden));
        // From here on there is a row for each choice.
        self.tokens = tokens * config.choices();
        let gated = self.gate_up(gate, rows, &routes, &layer.gate_up);
        let rows = self.expert_rows("down", gated.into(), &layer.down);
        let computed = self.down(rows, &routes, &layer.down);
        self.tokens = tokens;
        let out = y.unwrap_or_else(|| self.rows("combine", hidden));
        let Routes { weights, places, .. } = routes;
        let args = MoeCombineArgs { y: computed, places, weights, residual, out, tokens, h: hidden };
        self.launch("combine", MoeCombine { choices: config.choices(), x: self.x }, args);
        out
    }

    /// Lowers the choices of tokens, given logits, and sorts them by expert.
    fn route(&mut self, logits: Tensor, routes: &Routes) {
        let ExpertsConfig { count: experts, chosen, normalizes: normalize, has_shared: shared } = routes.config;
        let (tokens, each) = (self.tokens, routes.group);
        let Routes { choices, ranks, counts, weights, places, tiles, .. } = *routes;
        let args = MoeRouteArgs { logits, choices, weights, ranks, counts, tokens, columns: routes.config.columns() };
        self.launch("route", MoeRoute { chosen, experts, normalize, shared, x: self.x }, args);
        let list = list_entries(routes.rows() as u32, each);
        let args = MoeSortArgs { choices, ranks, counts, places, tiles, tokens, list, each };
        self.launch("sort", MoeSort { chosen, experts, shared }, args);
    }

    /// Returns rows in the format that experts' GEMMs read.
    fn expert_rows(&mut self, name: &str, x: ActivationRows, linear: &Linear) -> Rows {
        match linear.weight {
            Matrix::Int8(_) => self.in_int8(name, x, linear.k).into(),
            Matrix::Dense(_) | Matrix::Blocks(_) => Rows { values: x.dense(), scales: None },
        }
    }

    /// Lowers the copies of rows of width h to where their choices lie.
    fn permute(&mut self, x: Rows, routes: &Routes, (choices, h): (u32, u32)) -> Rows {
        let tokens = self.tokens;
        self.tokens = tokens * choices;
        let y = match x.scales {
            Some(_) => self.int8_rows("permute", h).into(),
            None => Rows { values: self.rows("permute", h), scales: None },
        };
        self.tokens = tokens;
        let args = MoePermuteArgs {
            x: x.values,
            x_scale: x.scales,
            places: routes.places,
            y: y.values,
            y_scale: y.scales,
            tokens,
            choices,
            h,
        };
        self.launch("permute", MoePermute { x: x.values.format }, args);
        y
    }

    /// Returns the matrices of a group of experts, and the scales of their rows, if in int8.
    fn expert_matrices(&mut self, name: &str, linear: &Linear, (group, all): (&Group, u32)) -> Rows {
        let rows = linear.n / all;
        match linear.weight {
            Matrix::Int8(int8) => int8.rows.into(),
            Matrix::Dense(_) | Matrix::Blocks(_) => {
                let of_group = group.first * rows..(group.first + group.experts) * rows;
                Rows { values: self.dense_rows(name, linear, (of_group, group.index as usize % 2)), scales: None }
            }
        }
    }

    /// Lowers a GEMM of each group of experts, which all write to the result, `[rows, n]`: `lower` launches one, by its
    /// name, with the group's matrices.
    fn by_group(
        &mut self,
        (name, n): (&str, u32),
        routes: &Routes,
        linear: &Linear,
        mut lower: impl FnMut(&mut Self, &str, (Rows, Tensor), GroupArgs),
    ) -> Tensor {
        let (y, all) = (self.rows(name, n), routes.config.matrices());
        for group in routes.groups() {
            let name = routes.name_of(name, &group);
            let w = self.expert_matrices(&name, linear, (&group, all));
            let of_group = GroupArgs { experts_of: experts_of(group.experts, all), tiles: Some(group.tiles) };
            lower(self, &name, (w, y), of_group);
        }
        y
    }

    /// Lowers the gate and up projections of experts, gated.
    fn gate_up(&mut self, gate: Gate, x: Rows, routes: &Routes, linear: &Linear) -> Tensor {
        let (m, n, k) = (self.tokens, linear.n / routes.config.matrices() / 2, linear.k);
        self.by_group(("gate_up", n), routes, linear, |ops, name, (w, y), GroupArgs { experts_of, tiles }| {
            let (x_scale, w_scale) = (x.scales, w.scales);
            let (x, w, bias) = (x.values, w.values, None);
            let key = GemmSwiglu { bias: false, experts: Flag(true), gate, w: w.format, x: x.format };
            ops.launch(name, key, GemmSwigluArgs { x, w, bias, y, m, n, k, experts_of, tiles, x_scale, w_scale });
        })
    }

    /// Lowers the down projections of experts.
    fn down(&mut self, x: Rows, routes: &Routes, linear: &Linear) -> Tensor {
        let (m, n, k) = (self.tokens, linear.n / routes.config.matrices(), linear.k);
        self.by_group(("down", n), routes, linear, |ops, name, (w, y), GroupArgs { experts_of, tiles }| {
            let (x_scale, w_scale) = (x.scales, w.scales);
            let (x, w, bias, residual) = (x.values, w.values, None, None);
            let key = GemmFwd { bias: false, experts: Flag(true), residual: false, w: w.format, x: x.format };
            ops.launch(
                name,
                key,
                GemmFwdArgs { x, w, bias, residual, y, m, n, k, experts_of, tiles, x_scale, w_scale },
            );
        })
    }
}
