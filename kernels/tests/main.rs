//! Tests every kernel, its host reference and the sources of this package.

mod blocks;
mod formulas;
mod head;
mod int8;
mod kernels;
mod product;
mod qk_norm;
mod sources;
