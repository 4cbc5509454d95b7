//! `precast plan`: what a run takes, of its device or of an architecture, without loading anything.

mod answer;
mod built_in;
mod changes;
mod cuda_cores;
mod data;
mod experts;
mod forms;
mod generation;
mod kernels;
mod limit;
mod report;
mod rollouts;
mod target;
mod teachers;
#[cfg(test)]
mod tests;
mod text;

pub use built_in::BuiltIn;
pub use generation::GenerationReport;
pub use limit::Limit;
pub use report::Report;
pub use target::Target;
pub use text::Detail;
