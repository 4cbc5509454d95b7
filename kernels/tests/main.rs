//! Tests every kernel, its host reference and the sources of this package.

mod blas;
mod blocks;
mod check;
mod delta_rule;
mod delta_rule_bwd;
mod draws;
mod formulas;
mod headers;
mod int8;
mod kernels;
mod quantize;
mod sources;
mod tuned;
