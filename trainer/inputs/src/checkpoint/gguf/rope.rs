//! Scaling of the rotary embedding: llama.cpp's files have no key for Llama 3's, but what each frequency is divided by.

use precast_plan::family::{LINEAR, LLAMA3};
use precast_plan::rope::{Llama3, Scaling, frequencies};
use precast_plan::{Family, ModelConfig};
use serde_json::{Value, json};

use super::Gguf;
use super::container::Named;
use super::keys::{SCALING_KEYS, key_of};
use crate::checkpoint::fault::Fault;
use crate::checkpoint::file::{Access, Raw};

/// The tensor that says what frequencies are divided by.
pub(super) const FACTORS: &str = "rope_freqs.weight";

/// What every Llama since 3.1 has.
const LOW_FREQ_FACTOR: f64 = 1.0;
const HIGH_FREQ_FACTOR: f64 = 4.0;
const ORIGINAL_POSITIONS: u32 = 8192;

/// How far a factor may be from what the scaling gives: what rounding to f32 explains, many times over.
const TOLERANCE: f32 = 1e-4;

/// What each frequency of a model is divided by, [head_dim / 2], if its rotary embedding is scaled. As llama.cpp's
/// converter computes it, each operation rounded to f32: PyTorch divides a number by a tensor as a multiplication by
/// the reciprocal.
pub(super) fn factors(config: &ModelConfig) -> Option<Vec<f32>> {
    let Some(Scaling::Llama3(llama3)) = config.ropes[0].scaling else { return None };
    let Llama3 { factor, low_freq_factor: low, high_freq_factor: high, original_max_position_embeddings } = llama3;
    let (original, factor) = (f64::from(original_max_position_embeddings), factor as f32);
    let divisor = |frequency: f32| {
        let wavelength = (1.0 / frequency) * std::f32::consts::TAU;
        if wavelength < (original / high) as f32 {
            1.0
        } else if wavelength > (original / low) as f32 {
            factor
        } else {
            let smooth = ((1.0 / wavelength) * original as f32 - low as f32) / (high - low) as f32;
            1.0 / ((1.0 - smooth) / factor + smooth)
        }
    };
    Some(frequencies(config.ropes[0].theta, None, config.head_dim).into_iter().map(divisor).collect())
}

/// Whether a tensor of a family is that.
pub(super) fn is_factors(family: &Family, name: &str) -> bool {
    name == FACTORS && family.rope.contains(&LLAMA3)
}

/// The `rope_scaling` of keys that divide all frequencies, in families that may; llama.cpp does where no kind is said.
fn linear(gguf: &Gguf) -> Result<Option<Value>, Fault> {
    let [kind_key, factor_key] = SCALING_KEYS.map(|rest| key_of(gguf.family, rest));
    match gguf.metadata.string(&kind_key)?.as_deref() {
        None | Some(LINEAR) => {
            let factor = gguf.metadata.decimal(&factor_key)?;
            Ok(factor.map(|factor| json!({"rope_type": LINEAR, "factor": factor})))
        }
        Some("none") => Ok(None),
        Some(other) => Err(gguf.metadata.refuse(&kind_key, other, "supported are none and linear")),
    }
}

/// The `rope_scaling` that gives the file's factors; none where it has none, or where they divide by 1.
pub(super) fn scaling(gguf: &Gguf, head_dim: u64, config: &Value) -> Result<Option<Value>, Fault> {
    if gguf.family.rope.contains(&LINEAR) {
        return linear(gguf);
    }
    let Some(Named { name, offset, tensor }) = &gguf.rope_factors else { return Ok(None) };
    let shape = &tensor.shape;
    let refuse = |reason: String| {
        Fault::Wrong(format!("tensor {name} at byte {offset} has shape {shape:?} (columns first): {reason}"))
    };
    if head_dim == 0 || head_dim > 1 << 16 || *shape != [head_dim / 2] {
        return Err(refuse(format!("a head of {head_dim} elements has {} frequencies", head_dim / 2)));
    }
    let kind = *tensor.kind.as_ref().map_err(|reason| Fault::Wrong(reason.clone()))?;
    let mut factors = vec![0.0; tensor.elements() as usize];
    let (mut raw, (_, file)) = (Raw::new(Access::Read), &gguf.tensors.files[0]);
    kind.dequantize(1.0, file.part(kind.range(tensor.start, &(0..tensor.elements())), &mut raw)?, &mut factors);
    if factors.iter().all(|factor| *factor == 1.0) {
        return Ok(None);
    }
    let theta = config["rope_theta"].as_f64().unwrap_or_default() as f32;
    let key = key_of(gguf.family, "rope.scaling.original_context_length");
    let original = match gguf.metadata.integer(&key)? {
        Some(positions) => u32::try_from(positions).ok(),
        None => original_positions(theta, head_dim as u32, &factors).or(Some(ORIGINAL_POSITIONS)),
    };
    let found = original.and_then(|original| of_type_llama3(theta, head_dim as u32, &factors, original));
    let reason = "its factors are not those of rope type llama3, the only scaling that is supported";
    let Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings } =
        found.ok_or_else(|| refuse(reason.to_owned()))?;
    Ok(Some(json!({
        "rope_type": LLAMA3,
        "factor": factor,
        "low_freq_factor": low_freq_factor,
        "high_freq_factor": high_freq_factor,
        "original_max_position_embeddings": original_max_position_embeddings,
    })))
}

/// The original length at which some frequency, neither high nor low, is divided by its factor.
fn original_positions(theta: f32, head_dim: u32, factors: &[f32]) -> Option<u32> {
    let last = f64::from(*factors.last()?);
    let blended = factors.iter().position(|factor| *factor > 1.0 && f64::from(*factor) < last)?;
    let smooth = (1.0 / f64::from(factors[blended]) - 1.0 / last) / (1.0 - 1.0 / last);
    let turns = LOW_FREQ_FACTOR + smooth * (HIGH_FREQ_FACTOR - LOW_FREQ_FACTOR);
    let frequency = f64::from(frequencies(theta, None, head_dim)[blended]);
    let positions = (turns * std::f64::consts::TAU / frequency).round();
    (positions >= 1.0 && positions <= f64::from(u32::MAX)).then_some(positions as u32)
}

/// The scaling of this original length that gives these factors, if there is one. The lowest frequency is divided by
/// the whole factor.
fn of_type_llama3(theta: f32, head_dim: u32, factors: &[f32], original: u32) -> Option<Llama3> {
    let scaling = Llama3 {
        factor: f64::from(*factors.last()?),
        low_freq_factor: LOW_FREQ_FACTOR,
        high_freq_factor: HIGH_FREQ_FACTOR,
        original_max_position_embeddings: original,
    };
    let [plain, scaled] = [None, Some(Scaling::Llama3(scaling))].map(|scaling| frequencies(theta, scaling, head_dim));
    let near = |((plain, scaled), factor): ((&f32, &f32), &f32)| (factor * scaled / plain - 1.0).abs() <= TOLERANCE;
    (original > 0 && scaling.factor >= 1.0 && plain.iter().zip(&scaled).zip(factors).all(near)).then_some(scaling)
}
