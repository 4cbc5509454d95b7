//! Tests every kernel, its host reference and the sources of this package.

mod blas;
mod blocks;
mod draws;
mod formulas;
mod head;
mod int8;
mod kernels;
mod qk_norm;
mod sources;
