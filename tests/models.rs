//! Real models: their likelihoods are those of an exact forward pass. `cargo xtask truth` asks the same of larger ones.

use precast::evaluate::{Evaluation, evaluate};

use crate::support::{bundle, device, fixture, smollm2};

#[test]
fn smollm2_135m_scores_a_story_as_an_exact_forward_pass_does() {
    let Some(model) = smollm2() else { return };
    let request = Evaluation {
        device: device().parse().unwrap(),
        kernels: precast::bundle::Kernels { bundle: bundle(), ..Default::default() },
        ..Evaluation::new(&model, &[fixture("tinystory.txt")])
    };
    let nll = evaluate(&request, |_, _| {}).unwrap().nll;
    assert!((nll - 1.6962).abs() <= 0.01, "{nll}");
}
