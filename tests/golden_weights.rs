//! Makes the weights of golden cases that no file holds, bit for bit as `golden/weights.py` does, and compares tensors
//! by their sums.

use precast_fatbins::Digest;
use precast_kernels::Gamma;
use precast_plan::{ModelConfig, Parameter, Parameters};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use crate::golden::cases;
use crate::support::prelude::*;

/// A scratch directory whose `golden` has the files of a case, and the weights of its models and adapter: its own, or
/// those that are made if it has none.
pub fn placed(golden: &Path) -> Case {
    let mut case = Case::empty();
    fs::create_dir(case.path("golden")).expect("a scratch directory is writable");
    for name in names_in(golden) {
        let (from, to) = (golden.join(&name), case.path("golden").join(&name));
        let file = if name == "adapter" { "adapter_model.safetensors" } else { "model.safetensors" };
        if !["teacher", "student", "adapter"].contains(&&*name) || from.join(file).exists() {
            std::os::unix::fs::symlink(from, to).expect("a link");
            continue;
        }
        copy(&from, &to);
        let tensors = tensors(golden, &name);
        let views = tensors.iter().map(|Made { name, shape, bytes }| {
            (name, TensorView::new(Dtype::F32, shape.clone(), bytes).expect("as many bytes as its shape has"))
        });
        let bytes = safetensors::serialize(views, None).expect("tensors of different names");
        fs::write(to.join(file), bytes).expect("a scratch directory is writable");
    }
    let rows = if case.has("golden/rows.jsonl") { "golden/rows.jsonl" } else { "golden/tokens.bin" };
    let data = if case.has("golden/prompts.jsonl") { "golden/prompts.jsonl" } else { rows };
    (case.teacher, case.student, case.data) =
        (case.path("golden/teacher"), case.path("golden/student"), case.path(data));
    case
}

struct Made {
    name: String,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

fn read(path: &Path) -> (String, Value) {
    let text = fs::read_to_string(path).expect("a file of the case");
    let json = serde_json::from_str(&text).expect("it is JSON");
    (text, json)
}

/// The tensors of a model or an adapter, by their names.
fn tensors(case: &Path, role: &str) -> Vec<Made> {
    let settings = read(&case.join("case.json")).1;
    let seed = settings["seed"].as_u64().expect("a seed");
    let model = if role == "adapter" { "student" } else { role };
    let (text, json) = read(&case.join(model).join("config.json"));
    let scale = json["initializer_range"].as_f64().expect("initializer_range") as f32;
    let config = ModelConfig::from_json(&text).expect("a shape");
    let gamma = if config.family.gamma == Gamma::OnePlus { 0.0 } else { 1.0 };
    let parameters = Parameters::new(&config).list.into_iter();
    let mut shapes: Vec<(String, Vec<u64>)> = match role {
        "adapter" => parameters.flat_map(|parameter| factors(&parameter, &settings["lora"])).collect(),
        _ => parameters.map(|parameter| (parameter.name, parameter.shape)).collect(),
    };
    shapes.sort();
    let tensor = |(name, shape): (String, Vec<u64>)| {
        let base = match name.ends_with("norm.weight") {
            // The gated norm multiplies by its weight in any family.
            true if name.ends_with("linear_attn.norm.weight") => 1.0,
            true => gamma,
            false => 0.0,
        };
        let stream = seed ^ name_hash(&format!("{role}.{name}"));
        let value = |index| base + scale * (word(stream, index) as f32 / 8_388_608.0 - 1.0);
        let bytes = (1..=shape.iter().product()).map(value).flat_map(f32::to_le_bytes).collect();
        Made { name, shape: shape.iter().map(|dim| *dim as usize).collect(), bytes }
    };
    shapes.into_iter().map(tensor).collect()
}

/// Names and shapes of the factors of a parameter, if an adapter has any.
fn factors(parameter: &Parameter, lora: &Value) -> Vec<(String, Vec<u64>)> {
    let targets = lora["target_modules"].as_array().expect("modules");
    let module = parameter.name.strip_suffix(".weight").unwrap_or_default();
    let is_adapted = targets.iter().any(|target| module.ends_with(target.as_str().expect("a module")));
    let (rank, &[out, of]) = (lora["r"].as_u64().expect("a rank"), &parameter.shape[..]) else { return Vec::new() };
    let all = [("A", vec![rank, of]), ("B", vec![out, rank])];
    let named = |(factor, shape)| (format!("base_model.model.{module}.lora_{factor}.weight"), shape);
    all.into_iter().filter(|_| is_adapted).map(named).collect()
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

/// The distance of a tensor from another, of which `golden/weights.py` has kept sums, relative to that one's norm.
pub fn distance(name: &str, tensor: &[f32], kept: &[f64]) -> f64 {
    let (norm, kept) = kept.split_last().expect("a norm behind the sums");
    let squares = sums(name, tensor).into_iter().zip(kept).map(|(sum, kept)| (sum - kept).powi(2));
    (squares.sum::<f64>() / kept.len() as f64).sqrt() / norm
}

fn sums(name: &str, tensor: &[f32]) -> [f64; 24] {
    let stream = name_hash(&format!("signs.{name}"));
    let mut sums = [0.0; 24];
    for (index, value) in (1..).zip(tensor) {
        let (word, value) = (word(stream, index), f64::from(*value));
        sums.iter_mut().enumerate().for_each(|(bit, sum)| *sum += if word >> bit & 1 == 1 { value } else { -value });
    }
    sums
}

#[test]
fn kept_sums_tell_how_far_apart_tensors_are() {
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
        let (found, whole) = (self::distance("any", &changed, &kept), crate::support::distance(&changed, &gradient));
        assert!((found / whole - 1.0).abs() < 0.5, "{found:e} {whole:e}");
    }
}

#[test]
fn weights_that_are_made_are_those_of_python() {
    let mut made = 0;
    for golden in cases() {
        let Value::Object(digests) = golden.case.json("golden/case.json")["weights"].take() else { continue };
        for (role, digest) in digests {
            let tensors = tensors(&golden.case.path("golden"), &role);
            let bytes: Vec<u8> = tensors.into_iter().flat_map(|tensor| tensor.bytes).collect();
            assert_eq!(Digest::of(&bytes).to_string(), digest, "{role} of {}", golden.name);
            made += 1;
        }
    }
    assert_eq!(made, 48);
}
