//! Families beyond the first golden case's, Qwen3 and Llama 3's rotary embedding: first steps against PyTorch, and one model
//! in two spellings. The trajectories are in `golden`.

use precast::inputs::checkpoint::Checkpoint;
use precast_plan::{Precision, Recompute};
use safetensors::SafeTensors;

use crate::golden::{batch, compare_gradients, settings};
use crate::support::prelude::*;

fn cases() -> [PathBuf; 2] {
    ["qwen3-tied", "llama3-rope"].map(|name| fixture("golden").join(name))
}

/// The first sequence of a case.
fn first_sequence(case: &Path) -> Vec<u32> {
    batch(case, 0).ids[..settings(case).S as usize].to_vec()
}

/// Compares every gradient of the first step with PyTorch's, and those of every choice of what is recomputed, bit by bit.
fn check_gradients(case: &Path, precision: Precision, gate: f64) {
    let batch = batch(case, 0);
    let mut first: Option<Vec<Vec<u8>>> = None;
    for recompute in Recompute::ALL {
        let settings = settings(case);
        let config = config(&case.join("teacher"), &case.join("student"), |options| {
            options.arithmetic.precision = precision;
            options.arithmetic.recompute = recompute;
            options.shape.batch_size = settings.B;
            options.shape.seq_len = settings.S;
            let teaching = &mut options.teaching;
            (teaching.alpha, teaching.temperature) = (settings.alpha.unwrap(), settings.T.unwrap());
        });
        let mut session = session(&config);
        session.micro(&batch, 1.0 / batch.counted as f32, 0).unwrap();
        compare_gradients(&mut session, case, gate);
        let parameters = session.plan.student.weights.parameters.list.clone();
        let gradients: Vec<Vec<u8>> =
            parameters.iter().map(|one| session.read(session.trained_of(one).grad).unwrap()).collect();
        let same = *first.get_or_insert_with(|| gradients.clone()) == gradients;
        assert!(same, "{}, {precision}, {recompute}", case.display());
    }
}

#[test]
fn every_gradient_in_fp32_whatever_is_recomputed() {
    cases().iter().for_each(|case| check_gradients(case, Precision::Fp32, 2e-5));
}

#[test]
fn every_gradient_in_bf16_whatever_is_recomputed() {
    cases().iter().for_each(|case| check_gradients(case, Precision::Bf16, 6e-2));
}

#[test]
fn logits_of_both_models_in_fp32() {
    for case in cases() {
        let bytes = fs::read(case.join("step0.safetensors")).unwrap();
        let expected = SafeTensors::deserialize(&bytes).unwrap();
        let ids = first_sequence(&case);
        for role in ["student", "teacher"] {
            let wanted = floats(expected.tensor(&format!("{role}_logits")).unwrap().data());
            let (found, columns) = (logits(&case.join(role), &ids), wanted.len() / ids.len());
            // The reference holds the student's columns of a wider teacher.
            let width = found.len() / ids.len();
            let found: Vec<f32> = found.chunks(width).flat_map(|row| &row[..columns]).copied().collect();
            let distance = distance(&found, &wanted);
            assert!(distance <= 2e-5, "{}, {role}: {distance:e}", case.display());
        }
    }
}

/// A copy of a model with its config.json changed.
fn respelled(model: &Path, dir: &Path, change: impl FnOnce(&mut Value)) -> PathBuf {
    let copy = dir.join("respelled");
    fs::create_dir(&copy).unwrap();
    fs::copy(model.join("model.safetensors"), copy.join("model.safetensors")).unwrap();
    let mut config: Value = serde_json::from_slice(&fs::read(model.join("config.json")).unwrap()).unwrap();
    change(&mut config);
    fs::write(copy.join("config.json"), config.to_string()).unwrap();
    copy
}

/// Newer files have `rope_parameters`, older ones `rope_theta` and `rope_scaling`.
#[test]
fn both_spellings_of_scaled_rotary_give_the_same_bits() {
    let [_, case] = cases();
    let (ids, dir) = (first_sequence(&case), tempfile::tempdir().unwrap());
    let newer = case.join("student");
    let older = respelled(&newer, dir.path(), |config| {
        let mut scaling = config["rope_parameters"].take();
        config.as_object_mut().unwrap().remove("rope_parameters");
        config["rope_theta"] = scaling["rope_theta"].take();
        config["rope_scaling"] = scaling;
    });
    let expected = logits(&newer, &ids);
    assert_eq!(logits(&older, &ids), expected);
    // Without its scaling it is another model.
    let other = tempfile::tempdir().unwrap();
    let unscaled = respelled(&older, other.path(), |config| config["rope_scaling"] = Value::Null);
    assert!(distance(&logits(&unscaled, &ids), &expected) > 1e-3);
}

/// Llama 3's instruct models end their turns in one of several tokens.
#[test]
fn a_list_of_end_tokens_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let model = respelled(&cases()[1].join("student"), dir.path(), |config| {
        config["eos_token_id"] = json!([7, 8, 9]);
    });
    assert_eq!(Checkpoint::open(&model).unwrap().eos_token(), Some(7));
}
