//! Both libraries as they were before their kernels were compiled ahead of time: for a comparison of lines and of
//! seconds.

pub mod blur;
pub mod histogram;
