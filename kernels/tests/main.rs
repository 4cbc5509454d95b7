//! Tests every kernel, its host reference and the sources of this package.

mod blas;
mod blocks;
mod draws;
mod formulas;
mod int8;
mod kernels;
mod sources;
