//! Real models: their likelihoods are those of an exact forward pass. `cargo xtask truth` asks the same of larger ones.

use precast::device::frozen::Forward;
use precast::options::{ChatOptions, DeviceOptions, Kernels, TextOptions, WeightFormat};
use precast::programs::evaluate::{Evaluation, evaluate};
use precast_plan::Gemm;

use crate::support::prelude::*;
use crate::support::smollm2;

#[test]
fn smollm2_135m_scores_a_story_as_an_exact_forward_pass() {
    let Some(model) = smollm2() else { return };
    let nll = [WeightFormat::Bf16, WeightFormat::Stored].map(|format| {
        let kernels = Kernels { bundle: bundle(), ..Kernels::default() };
        let forward = Forward {
            model: model.clone(),
            adapter: None,
            format,
            precision: None,
            gemm: Gemm::Bundle,
            target: DeviceOptions { device: device().parse().unwrap(), kernels },
            teacher: None,
            heading: false,
        };
        let text = TextOptions { data_field: None, chat: ChatOptions::default() };
        let data = vec![fixture("tinystory.txt")];
        let request = Evaluation { forward, data, text, batch_size: 8, seq_len: Some(1024) };
        evaluate(&request, |_, _| {}).unwrap().nll
    });
    assert_eq!(nll[0].to_bits(), nll[1].to_bits());
    assert!((nll[0] - 1.6962).abs() <= 0.01, "{nll:?}");
}
