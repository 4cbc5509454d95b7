//! Factors by which a configuration scales values.

use serde_json::Value;

use super::error::ConfigError;
use super::unsupported::MULTIPLIERS;
use crate::family::Family;

/// Factors of values on their way through a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Multipliers {
    /// Of rows of the embedding table.
    pub embedding: f32,
    /// Of what attention and MLP add to the residual stream.
    pub residual: f32,
    /// Of logits.
    pub logits: f32,
}

impl Multipliers {
    pub const NONE: Self = Self { embedding: 1.0, residual: 1.0, logits: 1.0 };
}

/// Reads a factor, a positive number; none where the family has no such setting.
fn factor(config: &Value, family: &Family, field: &str) -> Result<Option<f64>, ConfigError> {
    let Some(value) = config.get(field).filter(|_| family.multipliers) else { return Ok(None) };
    match value.as_f64().filter(|number| number.is_finite() && *number > 0.0) {
        Some(number) => Ok(Some(number)),
        None => Err(ConfigError::Inconsistent(format!("{field} is {value}, a positive number is expected"))),
    }
}

/// Reads the factor of scores; without a setting it is `head_dim^(-1/2)`.
pub(super) fn scores(config: &Value, family: &Family, head_dim: u32) -> Result<f32, ConfigError> {
    if family.root_scales {
        let scalar = &config["query_pre_attn_scalar"];
        return match scalar.as_f64().filter(|scalar| scalar.is_finite() && *scalar > 0.0) {
            Some(scalar) => Ok(scalar.powf(-0.5) as f32),
            None => Err(ConfigError::Inconsistent(format!(
                "query_pre_attn_scalar is {scalar}, a positive number is expected"
            ))),
        };
    }
    let [field, ..] = MULTIPLIERS;
    Ok(factor(config, family, field)?.map_or(1.0 / (head_dim as f32).sqrt(), |factor| factor as f32))
}

/// Reads the factors of embedding, residual branches and logits; `logits_scaling` divides.
pub(super) fn multipliers(config: &Value, family: &Family, hidden: u32) -> Result<Multipliers, ConfigError> {
    if family.root_scales {
        return Ok(Multipliers { embedding: f64::from(hidden).sqrt() as f32, ..Multipliers::NONE });
    }
    let [_, embedding, residual, logits] = MULTIPLIERS;
    let factor = |field| Ok::<_, ConfigError>(factor(config, family, field)?.unwrap_or(1.0));
    Ok(Multipliers {
        embedding: factor(embedding)? as f32,
        residual: factor(residual)? as f32,
        logits: (1.0 / factor(logits)?) as f32,
    })
}
