//! The trajectories that a float64 model gives, rounded where the kernels of `--precision int8` round: `golden/rounded.py`. On the way
//! a few roundings fall otherwise, for which a step has the gates of bf16, or three standard deviations of what that does to it in the
//! model. Where they fall so early that little follows, in the first gradients, they tell int8 from anything else.

use precast_plan::Precision;
use safetensors::SafeTensors;

use crate::golden::{batch, distance_to, run_case, settings, trajectory_of, within_bf16};
use crate::golden_weights::Models;
use crate::support::{self, fixture, floats};

const CASES: [&str; 7] = ["qwen2-tied", "sft-mask", "kl-reverse", "jsd-half", "qwen3-tied", "llama3-rope", "lora-qv"];

#[test]
fn every_step_of_every_case_in_int8() {
    for name in CASES {
        let case = fixture("golden").join(name);
        within_bf16(name, &run_case(&case, "int8"), &trajectory_of(&case.join("int8")));
    }
}

/// Distances of the lowest layer's first gradients from the model's.
fn of_first_gradients(name: &str, precision: Precision) -> Vec<f64> {
    let case = fixture("golden").join(name);
    let (settings, models) = (settings(&case), Models::of(&case));
    let config = support::config(&models.teacher().unwrap(), &models.student(), |options| {
        options.arithmetic.precision = precision;
        options.shape.batch_size = settings.B;
        options.shape.seq_len = settings.S;
        (options.teaching.alpha, options.teaching.temperature) = (settings.alpha.unwrap(), settings.T.unwrap());
    });
    let mut session = support::session(&config);
    let batch = batch(&case, 0);
    session.micro(&batch, 1.0 / batch.counted as f32, 0).unwrap();
    let expected = std::fs::read(case.join("int8/step0.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&expected).unwrap();
    let parameters = session.plan.student.weights.parameters.list.clone();
    expected
        .iter()
        .map(|(name, view)| {
            let parameter = parameters.iter().find(|one| name.strip_prefix("grad.") == Some(&one.name)).unwrap();
            let found = floats(&session.read(session.trained_of(parameter).grad).unwrap());
            distance_to(name, &found, &view)
        })
        .collect()
}

/// The model's own are 2e-3 to 5e-3 apart where weights move by rounding errors of f32; without dgrad in int8 they would be
/// 1.1e-2 and more, with a wrong scale 2e-2, unrotated 3e-2.
#[test]
fn first_gradients_are_those_of_int8_and_not_of_bf16() {
    for case in ["llama3-rope", "made-llama3"] {
        let [int8, bf16] = [Precision::Int8, Precision::Bf16].map(|precision| of_first_gradients(case, precision));
        assert_eq!(int8.len(), 3);
        assert!(int8.iter().all(|distance| *distance < 7e-3), "{case}: {int8:?}");
        assert!(bf16.iter().all(|distance| *distance > 1.5e-2), "{case}: {bf16:?}");
    }
}
