//! Real models: their likelihoods are those of an exact forward pass. `cargo xtask truth` asks the same of larger ones.

use precast::options::WeightFormat;
use precast::programs::evaluate::{Evaluation, evaluate};

use crate::support::{bundle, device, fixture, smollm2};

#[test]
fn smollm2_135m_scores_a_story_as_an_exact_forward_pass_does_in_both_forms() {
    let Some(model) = smollm2() else { return };
    let nll = [WeightFormat::Bf16, WeightFormat::Stored].map(|format| {
        let mut request = Evaluation::new(&model, &[fixture("tinystory.txt")]);
        request.forward.format = format;
        request.forward.target.device = device().parse().unwrap();
        request.forward.target.kernels.bundle = bundle();
        evaluate(&request, |_, _| {}).unwrap().nll
    });
    assert_eq!(nll[0].to_bits(), nll[1].to_bits());
    assert!((nll[0] - 1.6962).abs() <= 0.01, "{nll:?}");
}
