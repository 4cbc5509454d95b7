//! Real models: their likelihoods are those of an exact forward pass.

use std::path::PathBuf;

use precast::evaluate::{Evaluation, evaluate};

use crate::support::{bundle, device, fixture};

/// Mean negative log likelihood of the story under a model whose path an environment variable holds.
/// `cargo xtask test` fetches SmolLM2 and `cargo xtask truth` the larger one too.
fn story_nll(variable: &str) -> Option<f64> {
    let Some(model) = std::env::var_os(variable).map(PathBuf::from) else {
        eprintln!("skipped: {variable} names no model; cargo xtask test does");
        return None;
    };
    let request = Evaluation {
        device: device().parse().unwrap(),
        kernels: precast::bundle::Kernels { bundle: bundle(), ..Default::default() },
        ..Evaluation::new(&model, &[fixture("tinystory.txt")])
    };
    Some(evaluate(&request, |_, _| {}).unwrap().nll)
}

#[test]
fn smollm2_135m() {
    if let Some(nll) = story_nll("PRECAST_TEST_SMOLLM2") {
        assert!((nll - 1.6962).abs() <= 0.01, "{nll}");
    }
}

#[test]
fn qwen2_5_coder_1_5b() {
    if let Some(nll) = story_nll("PRECAST_TEST_QWEN_CODER") {
        assert!((nll - 1.2790).abs() <= 0.01, "{nll}");
    }
}
