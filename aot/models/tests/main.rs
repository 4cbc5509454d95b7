//! Tests the compiler on real models and hostile layouts: bundles, budgets, publishing.

mod support {
    pub mod louder;
    pub mod program;
    #[path = "../../../../fatbins/tests/support/renamed.rs"]
    pub mod renamed;
    pub mod tiny;
}

mod budget;
mod build;
mod diff;
mod environment;
mod hostile_layouts;
mod kernels;
mod locks;
mod other_models;
mod other_sources;
mod publish;
