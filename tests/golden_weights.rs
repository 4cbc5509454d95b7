//! What files of golden cases do not hold, weights and whole gradients: made as `golden/weights.py` says, with the same bits.

use std::fs;
use std::path::{Path, PathBuf};

use precast_fatbins::Digest;
use precast_plan::{ModelConfig, Parameters};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::Value;

use crate::golden_rollouts::CASES;
use crate::support::{self, copy, fixture};

/// The models of a case, each in a directory with its weights.
pub struct Models {
    pub teacher: PathBuf,
    pub student: PathBuf,
    /// Where they are, if they were made.
    _made: Option<tempfile::TempDir>,
}

impl Models {
    /// Those of a case's directory, made if it holds none of their weights.
    pub fn of(case: &Path) -> Self {
        let [teacher, student] = ["teacher", "student"].map(|role| case.join(role));
        if student.join("model.safetensors").exists() {
            return Self { teacher, student, _made: None };
        }
        let made = tempfile::tempdir().expect("a scratch directory");
        for role in ["teacher", "student"] {
            let model = made.path().join(role);
            copy(&case.join(role), &model);
            let tensors = tensors(case, role);
            let views = tensors.iter().map(|(name, shape, bytes)| {
                (name, TensorView::new(Dtype::F32, shape.clone(), bytes).expect("as many bytes as its shape has"))
            });
            let bytes = safetensors::serialize(views, None).expect("tensors of different names");
            fs::write(model.join("model.safetensors"), bytes).expect("a scratch directory is writable");
        }
        let [teacher, student] = ["teacher", "student"].map(|role| made.path().join(role));
        Self { teacher, student, _made: Some(made) }
    }
}

fn read(path: &Path) -> (String, Value) {
    let text = fs::read_to_string(path).expect("a file of the case");
    let json = serde_json::from_str(&text).expect("it is JSON");
    (text, json)
}

/// Names, shapes and bytes of a model's tensors, by names.
fn tensors(case: &Path, role: &str) -> Vec<(String, Vec<usize>, Vec<u8>)> {
    let seed = read(&case.join("case.json")).1["seed"].as_u64().expect("a seed");
    let (text, json) = read(&case.join(role).join("config.json"));
    let scale = json["initializer_range"].as_f64().expect("initializer_range") as f32;
    let mut parameters = Parameters::new(&ModelConfig::from_json(&text).expect("a shape")).list;
    parameters.sort_by(|a, b| a.name.cmp(&b.name));
    let tensor = |parameter: precast_plan::Parameter| {
        let base = if parameter.name.ends_with("norm.weight") { 1.0 } else { 0.0 };
        let stream = seed ^ name_hash(&format!("{role}.{}", parameter.name));
        let values =
            (1..=parameter.elems()).map(|index| base + scale * (word(stream, index) as f32 / 8_388_608.0 - 1.0));
        let bytes = values.flat_map(f32::to_le_bytes).collect();
        (parameter.name, parameter.shape.iter().map(|dim| *dim as usize).collect(), bytes)
    };
    parameters.into_iter().map(tensor).collect()
}

/// FNV-1a.
fn name_hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The upper 24 bits of an output of splitmix64, by its number from 1.
fn word(stream: u64, index: u64) -> u64 {
    let mut hash = stream.wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    for (shift, factor) in [(30, 0xBF58_476D_1CE4_E5B9), (27, 0x94D0_49BB_1331_11EB)] {
        hash = (hash ^ hash >> shift).wrapping_mul(factor);
    }
    (hash ^ hash >> 31) >> 40
}

/// The distance of a gradient from another, of which `golden/weights.py` has kept sums, relative to that one's norm.
pub fn distance(name: &str, gradient: &[f32], kept: &[f64]) -> f64 {
    let (norm, kept) = kept.split_last().expect("a norm behind the sums");
    let squares = sums(name, gradient).into_iter().zip(kept).map(|(sum, kept)| (sum - kept).powi(2));
    (squares.sum::<f64>() / kept.len() as f64).sqrt() / norm
}

fn sums(name: &str, gradient: &[f32]) -> [f64; 24] {
    let stream = name_hash(&format!("signs.{name}"));
    let mut sums = [0.0; 24];
    for (index, value) in (1..).zip(gradient) {
        let (word, value) = (word(stream, index), f64::from(*value));
        sums.iter_mut().enumerate().for_each(|(bit, sum)| *sum += if word >> bit & 1 == 1 { value } else { -value });
    }
    sums
}

#[test]
fn kept_sums_tell_how_far_apart_gradients_are() {
    let gradient: Vec<f32> = (0..5000).map(|index| word(1, index) as f32 / 8_388_608.0 - 1.0).collect();
    let norm = gradient.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    let kept = [&sums("any", &gradient)[..], &[norm]].concat();
    assert_eq!(distance("any", &gradient, &kept), 0.0);
    let mut exchanged = gradient.clone();
    exchanged.swap(17, 18);
    let changes: [Vec<f32>; 3] = [
        exchanged,
        gradient.iter().map(|value| value * 1.001).collect(),
        gradient.iter().map(|value| -value).collect(),
    ];
    for changed in changes {
        let (found, whole) = (distance("any", &changed, &kept), support::distance(&changed, &gradient));
        assert!((found / whole - 1.0).abs() < 0.5, "{found:e} {whole:e}");
    }
}

#[test]
fn weights_that_are_made_are_those_of_python() {
    let mut made = 0;
    for case in CASES.map(|name| fixture("golden").join(name)) {
        let Value::Object(digests) = read(&case.join("case.json")).1["weights"].take() else { continue };
        for (role, digest) in digests {
            let bytes: Vec<u8> = tensors(&case, &role).into_iter().flat_map(|(.., bytes)| bytes).collect();
            assert_eq!(Digest::of(&bytes).to_string(), digest, "{role} of {}", case.display());
            made += 1;
        }
    }
    assert_eq!(made, 6);
}
