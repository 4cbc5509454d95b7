//! Parsers of options' values, for clap.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::builder::{PathBufValueParser, RangedU64ValueParser, TypedValueParser};
use precast_plan::Precision;

use crate::inputs::hub;
use crate::options::{TeacherSource, WeightFormat};

/// Bias corrections raise to the power of the step, which has 31 bits there.
pub(crate) const MOST_STEPS: u64 = i32::MAX as u64;
/// Micro-batches of a step: far more than a step of a week has.
pub(crate) const MOST_MICRO_BATCHES: u64 = 1 << 20;
/// Chunks of a window of the shuffle.
pub(crate) const MOST_WINDOW: u64 = 1 << 24;

pub(crate) fn count(most: u64) -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(1..=most)
}

/// A model's path, or its name at Hugging Face.
pub(crate) fn model() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(hub::model)
}

/// A teacher's path, or its name at Hugging Face, with a name of its own in the run.
pub(crate) fn teacher() -> impl TypedValueParser<Value = TeacherSource> {
    PathBufValueParser::new().try_map(TeacherSource::model)
}

/// The directory of a teacher's cache, with a name of its own in the run.
pub(crate) fn teacher_cache() -> impl TypedValueParser<Value = TeacherSource> {
    PathBufValueParser::new().map(TeacherSource::of)
}

pub(crate) fn number<T: std::str::FromStr<Err: ToString>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// NaN is in no range.
pub(crate) fn within(
    range: RangeInclusive<f32>,
) -> impl Fn(&str) -> Result<f32, String> + Clone + Send + Sync + 'static {
    move |text| {
        let value = number(text)?;
        let outside = || format!("{value} is not between {} and {}", range.start(), range.end());
        range.contains(&value).then_some(value).ok_or_else(outside)
    }
}

pub(crate) fn not_negative(text: &str) -> Result<f32, String> {
    let value: f32 = number(text)?;
    let good = value.is_finite() && value >= 0.0;
    good.then_some(value).ok_or_else(|| "must be a number that is not negative".to_owned())
}

/// The device computes in f32: what is none of its numbers above 0 is no learning rate, and scales no adapter.
pub(crate) fn above_zero(text: &str) -> Result<f64, String> {
    let value: f64 = number(text)?;
    let good = (value as f32).is_finite() && value as f32 > 0.0;
    good.then_some(value).ok_or_else(|| "must be a number above 0, in the range of f32".to_owned())
}

/// Parses the precision of a command that does not train: fp32 or bf16.
pub(crate) fn exact_precision(text: &str) -> Result<Precision, String> {
    let precision: Precision = number(text)?;
    let trains = precision == Precision::Int8;
    if trains { Err("expected fp32 or bf16: int8 is how distill and train compute".to_owned()) } else { Ok(precision) }
}

pub(crate) fn frozen_format(text: &str) -> Result<WeightFormat, String> {
    let format: WeightFormat = number(text)?;
    let stays = [WeightFormat::Bf16, WeightFormat::Stored].contains(&format);
    if stays { Ok(format) } else { Err("expected bf16 or stored".to_owned()) }
}

/// Parses a form of weights that gives the bits of the file.
pub(crate) fn exact_format(text: &str) -> Result<WeightFormat, String> {
    let format: WeightFormat = number(text)?;
    if format.is_exact() { Ok(format) } else { Err("expected auto, bf16 or stored: int8 gives other bits".to_owned()) }
}

/// Parses a temperature of draws; 0 takes the likeliest token.
pub(crate) fn temperature(text: &str) -> Result<f32, String> {
    let value: f32 = number(text)?;
    let is_good = value == 0.0 || value.is_normal() && value > 0.0;
    is_good.then_some(value).ok_or_else(|| "must be a number that is not negative".to_owned())
}

/// Parses a share of a whole, which has some of it.
pub(crate) fn share(text: &str) -> Result<f32, String> {
    let value: f32 = number(text)?;
    let is_good = value > 0.0 && value <= 1.0;
    is_good.then_some(value).ok_or_else(|| "must be above 0 and at most 1".to_owned())
}

/// Parses a number of at least 1, in place of which something else is said.
pub(crate) fn at_least_one(otherwise: &str) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    let none = format!("must be at least 1; {otherwise}");
    move |text| number(text).and_then(|count| if count > 0 { Ok(count) } else { Err(none.clone()) })
}
