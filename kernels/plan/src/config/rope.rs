//! Reads base and scaling of the rotary embedding from a `config.json`, and refuses unsupported ones.
//!
//! Newer files have `rope_parameters`, older ones `rope_scaling` and `rope_theta` beside it. A file may have both, if
//! they agree.

use serde_json::{Map, Value};

use super::error::ConfigError;
use super::layer::RopeConfig;
use super::unsupported::{Neutral, UNSCALED, WHOLE, given, refuse_at};
use crate::family::{Family, LINEAR, LLAMA3, Windows, YARN};
use crate::rope::{Llama3, Scaling, Yarn};

/// Objects with the settings.
const OBJECTS: [&str; 2] = ["rope_parameters", "rope_scaling"];

/// Fields of a [`LLAMA3`] object besides its type.
const LLAMA3_FIELDS: [&str; 4] = ["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"];

/// Fields of a [`YARN`] object besides its type.
const YARN_FIELDS: [&str; 6] = ["factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"];

fn inconsistent<T>(what: String) -> Result<T, ConfigError> {
    Err(ConfigError::Inconsistent(what))
}

fn object<'a>(config: &'a Value, name: &str) -> Result<Option<&'a Map<String, Value>>, ConfigError> {
    let Some(value) = given(config, name) else { return Ok(None) };
    let object = value.as_object().ok_or_else(|| refuse_at(name, value, "expected an object or null"));
    object.map(Some)
}

/// Returns the type of an object, which older files call `type`.
fn kind(object: &Map<String, Value>) -> Option<&str> {
    ["rope_type", "type"].into_iter().find_map(|field| object.get(field)?.as_str())
}

/// Reads the rotary embeddings: of all layers, or of full ones and then of those that slide.
///
/// # Errors
/// [`ConfigError`] for settings that would change the mathematics beyond the family's, and for two that disagree.
pub(super) fn ropes(config: &Value, family: &Family) -> Result<Vec<RopeConfig>, ConfigError> {
    let Windows::Between { theta: sliding, .. } = family.windows else {
        return Ok(vec![rope(config, family, family.rope_theta)?]);
    };
    // Newer files have an object for each kind of layer, older ones fields: `rope_theta` and `rope_scaling` of full
    // layers, and of Gemma 3 one for the base of those that slide.
    let of = |kind: &str, theta: Option<&Value>, scaling: Option<&Value>| {
        let named = config["rope_parameters"].get(kind);
        let fields = [("rope_theta", theta), ("rope_scaling", scaling), ("rope_parameters", named)];
        Value::from_iter(fields.into_iter().filter_map(|(field, value)| Some((field, value?.clone()))))
    };
    let flat = |field: &str| config.get(field);
    let full = of("full_attention", flat("rope_theta"), flat("rope_scaling"));
    let local = of("sliding_attention", given(config, "rope_local_base_freq"), None);
    let names = |name: &&String| !["full_attention", "sliding_attention"].contains(&name.as_str());
    match object(config, "rope_parameters")?.and_then(|object| object.keys().find(names)) {
        Some(name) => Err(refuse_at(
            format!("rope_parameters.{name}"),
            &config["rope_parameters"][name],
            "full_attention and sliding_attention have an object each",
        )),
        None => Ok(vec![rope(&full, family, family.rope_theta)?, rope(&local, family, sliding)?]),
    }
}

/// Returns the elements of a head that are rotated: a share of it where the family has `partial_rotary_factor`, which
/// config.json has at its top or among the settings of the rotary embedding.
pub(super) fn rotary(config: &Value, family: &Family, head_dim: u32) -> Result<u32, ConfigError> {
    if !family.delta_rule {
        return Ok(head_dim);
    }
    let field = "partial_rotary_factor";
    let places = [None, Some(OBJECTS[0]), Some(OBJECTS[1])];
    let found = places.iter().filter_map(|place| given(place.map_or(Some(config), |place| config.get(place))?, field));
    let found: Vec<&Value> = found.collect();
    if let Some(other) = found.iter().find(|other| other.as_f64() != found[0].as_f64()) {
        return inconsistent(format!("{field} is {} and {other}: remove the wrong one", found[0]));
    }
    let factor = found.first().map_or(Some(0.25), |factor| factor.as_f64());
    let rotated = factor.map(|factor| (f64::from(head_dim) * factor) as u32);
    match rotated.filter(|rotated| (2..=head_dim).contains(rotated) && rotated.is_multiple_of(2)) {
        Some(rotated) => Ok(rotated),
        None => {
            let said = found.first().copied().unwrap_or(&Value::Null);
            Err(refuse_at(field, said, "an even number of elements of a head is rotated"))
        }
    }
}

/// Checks the sections of multimodal positions: of text all three are one position, which rotates as usual.
fn refuse_sections(name: &str, object: &Map<String, Value>) -> Result<(), ConfigError> {
    for field in ["mrope_section", "mrope_interleaved"] {
        let Some(value) = object.get(field).filter(|value| !value.is_null()) else { continue };
        let is_known = value.is_boolean()
            || value.as_array().is_some_and(|parts| parts.len() == 3 && parts.iter().all(Value::is_u64));
        if !is_known {
            return Err(refuse_at(format!("{name}.{field}"), value, "expected three numbers of pairs"));
        }
    }
    Ok(())
}

fn rope(config: &Value, family: &Family, default: f64) -> Result<RopeConfig, ConfigError> {
    refuse(config, family)?;
    let scaling = scaling(config)?.or(family.yarn.map(Scaling::Yarn));
    Ok(RopeConfig { theta: theta(config, default)? as f32, scaling })
}

/// Refuses settings that would change the mathematics beyond the family's.
fn refuse(config: &Value, family: &Family) -> Result<(), ConfigError> {
    for name in OBJECTS {
        if let Some(object) = object(config, name)? {
            if family.delta_rule {
                refuse_sections(name, object)?;
            }
            refuse_in(name, object, family)?;
        }
    }
    Ok(())
}

/// Refuses all but the family's types and fields without effect there.
fn refuse_in(name: &'static str, object: &Map<String, Value>, family: &Family) -> Result<(), ConfigError> {
    // The type first: people look for it.
    for field in ["rope_type", "type"] {
        let known = |value: &&Value| value.as_str().is_some_and(|kind| family.rope.contains(&kind));
        if let Some(found) = object.get(field).filter(|value| !known(value)) {
            let reason = match family.rope {
                [_, LLAMA3] => "only rotary embeddings of type `default` and `llama3` are supported",
                [_, LINEAR] => "only rotary embeddings of type `default` and `linear` are supported",
                [_, YARN] => "only rotary embeddings of type `default` and `yarn` are supported",
                [YARN] => "only rotary embeddings of type `yarn` are supported",
                _ => "only unscaled rotary embeddings (type `default`) are supported",
            };
            return Err(refuse_at(format!("{name}.{field}"), found, reason));
        }
        if let (Some(found), Some(kind)) = (object.get(field).and_then(Value::as_str), kind(object))
            && found != kind
        {
            return inconsistent(format!(
                "{name}.rope_type is {kind} and {name}.{field} is {found}: remove the wrong one"
            ));
        }
    }
    if kind(object).is_none() && !family.rope.contains(&"default") {
        return inconsistent(format!("{name}.rope_type is missing: {family} has {}", family.rope.concat()));
    }
    let [is_llama3, is_linear, is_yarn] = [LLAMA3, LINEAR, YARN].map(|name| kind(object) == Some(name));
    // Of an object for each kind of layer transformers does not see it.
    let truncates = !matches!(family.windows, Windows::Between { .. });
    for (key, value) in object {
        let (neutral, reason) = match key.as_str() {
            "rope_type" | "type" | "rope_theta" | "original_max_position_embeddings" => continue,
            key if is_llama3 && LLAMA3_FIELDS.contains(&key) => continue,
            "factor" if is_linear => continue,
            // It tells how queries grow beyond the original length, and the length beyond that.
            "llama_4_scaling_beta" | "max_position_embeddings" if family.yarn.is_some() => continue,
            "partial_rotary_factor" | "mrope_section" | "mrope_interleaved" if family.delta_rule => continue,
            key if is_yarn && (YARN_FIELDS.contains(&key) || key == "truncate" && truncates) => continue,
            "partial_rotary_factor" => (Neutral::Number(1.0), WHOLE),
            _ => (Neutral::Number(1.0), UNSCALED),
        };
        // An unknown type's only neutral field is a factor.
        let known = matches!(key.as_str(), "partial_rotary_factor" | "factor" | "attention_factor");
        if !(known && neutral.is(value) || value.is_null()) {
            return Err(refuse_at(format!("{name}.{key}"), value, reason));
        }
    }
    Ok(())
}

/// Returns the base; fails if two places disagree.
fn theta(config: &Value, default: f64) -> Result<f64, ConfigError> {
    let mut found: Option<(String, f64)> = None;
    let nested = OBJECTS.map(|name| (format!("{name}.rope_theta"), config.get(name)));
    for (name, object) in [("rope_theta".to_owned(), Some(config))].into_iter().chain(nested) {
        let Some(value) = object.and_then(|object| object.get("rope_theta")) else { continue };
        let theta = value.as_f64().ok_or_else(|| ConfigError::Inconsistent(format!("{name} is {value}")))?;
        match &found {
            Some((first, other)) if *other != theta => {
                return inconsistent(format!("{first} is {other} and {name} is {theta}: remove the wrong one"));
            }
            _ => found = Some((name, theta)),
        }
    }
    Ok(found.map_or(default, |(_, theta)| theta))
}

/// Returns the scaling of frequencies; fails if two objects disagree. Expects settings that [`refuse`] has passed.
fn scaling(config: &Value) -> Result<Option<Scaling>, ConfigError> {
    let mut found: Option<(&str, Option<Scaling>)> = None;
    for name in OBJECTS {
        let Some(object) = object(config, name)? else { continue };
        let Some(kind) = kind(object) else { continue };
        let scaling = match kind {
            LLAMA3 => Some(Scaling::Llama3(llama3(name, object)?)),
            LINEAR => Some(Scaling::Linear(factor(name, LINEAR, object)?)),
            YARN => Some(Scaling::Yarn(yarn(name, object)?)),
            _ => None,
        };
        match found {
            Some((first, other)) if other != scaling => {
                return inconsistent(format!("{first} and {name} scale differently: remove the wrong one"));
            }
            _ => found = Some((name, scaling)),
        }
    }
    Ok(found.and_then(|(_, scaling)| scaling))
}

/// Reads a number that a type of scaling needs.
fn number((name, kind): (&str, &str), object: &Map<String, Value>, field: &str) -> Result<f64, ConfigError> {
    match object.get(field) {
        None | Some(Value::Null) => inconsistent(format!("{name}.{field} is missing: type {kind} needs it")),
        Some(value) => match value.as_f64() {
            Some(number) => Ok(number),
            None => inconsistent(format!("{name}.{field} is {value}")),
        },
    }
}

fn factor(name: &str, kind: &str, object: &Map<String, Value>) -> Result<f64, ConfigError> {
    match number((name, kind), object, "factor")? {
        factor if factor >= 1.0 => Ok(factor),
        factor => inconsistent(format!("{name}.factor is {factor}, at least 1 is expected")),
    }
}

/// Reads the context length of the original training.
fn original(name: &str, kind: &str, object: &Map<String, Value>) -> Result<u32, ConfigError> {
    let field = "original_max_position_embeddings";
    let positions = number((name, kind), object, field)?;
    if positions >= 1.0 && positions <= f64::from(u32::MAX) && positions.fract() == 0.0 {
        return Ok(positions as u32);
    }
    inconsistent(format!("{name}.{field} is {positions}"))
}

/// Reads YaRN's scaling with transformers' defaults, which it also takes for zero.
fn yarn(name: &str, object: &Map<String, Value>) -> Result<Yarn, ConfigError> {
    let positive = |field: &str| match object.get(field).filter(|value| !value.is_null()) {
        None => Ok(None),
        Some(zero) if zero.as_f64() == Some(0.0) && field != "attention_factor" => Ok(None),
        Some(_) => match number((name, YARN), object, field)? {
            number if number > 0.0 => Ok(Some(number)),
            number => inconsistent(format!("{name}.{field} is {number}, a positive number is expected")),
        },
    };
    let truncate = match object.get("truncate") {
        None => true,
        Some(value) => {
            value.as_bool().ok_or_else(|| ConfigError::Inconsistent(format!("{name}.truncate is {value}")))?
        }
    };
    let factor = factor(name, YARN, object)?;
    let implied = match (positive("mscale")?, positive("mscale_all_dim")?) {
        (Some(one), Some(all)) => Yarn::mscale(factor, one) / Yarn::mscale(factor, all),
        _ => Yarn::mscale(factor, 1.0),
    };
    Ok(Yarn {
        factor,
        attention_factor: positive("attention_factor")?.unwrap_or(implied),
        beta_fast: positive("beta_fast")?.unwrap_or(32.0),
        beta_slow: positive("beta_slow")?.unwrap_or(1.0),
        truncate,
        original_max_position_embeddings: original(name, YARN, object)?,
    })
}

fn llama3(name: &str, object: &Map<String, Value>) -> Result<Llama3, ConfigError> {
    let number = |field: &str| number((name, LLAMA3), object, field);
    let [_, low, high, _] = LLAMA3_FIELDS;
    let original_max_position_embeddings = original(name, LLAMA3, object)?;
    let scaling = Llama3 {
        factor: factor(name, LLAMA3, object)?,
        low_freq_factor: number(low)?,
        high_freq_factor: number(high)?,
        original_max_position_embeddings,
    };
    if !(scaling.low_freq_factor > 0.0 && scaling.low_freq_factor < scaling.high_freq_factor) {
        return inconsistent(format!(
            "{name}.{low} is {} and {name}.{high} is {}: the first is positive and less than the second",
            scaling.low_freq_factor, scaling.high_freq_factor
        ));
    }
    Ok(scaling)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::unsupported;
    use super::*;

    fn read(family: &str, config: &Value) -> Result<Option<Scaling>, String> {
        let family = Family::of_model_type(family).expect("a family");
        let read = unsupported::refuse(config, family)
            .and_then(|()| refuse(config, family))
            .and_then(|()| theta(config, family.rope_theta));
        read.and_then(|_| scaling(config)).map_err(|error| error.to_string())
    }

    fn refused(field: &str, value: Value) -> String {
        read("llama", &json!({ field: value })).err().unwrap_or_default()
    }

    #[test]
    fn rotary_settings_read_in_any_spelling() {
        let llama3 = |field: &str, value: Value| {
            let mut object = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 8192});
            object[field] = value;
            object
        };
        let refused = [
            ("rope_scaling", json!("yarn")),
            ("rope_scaling", json!(2.0)),
            ("rope_scaling", json!({"factor": 2.0})),
            ("rope_scaling", json!({"type": "default", "mrope_section": [16, 24, 24]})),
            ("rope_scaling", json!({"rope_type": "default", "type": "mrope"})),
            ("rope_scaling", json!({"rope_type": "default", "type": "llama3"})),
            ("rope_parameters", json!("default")),
            ("rope_parameters", json!({"rope_type": "yarn", "rope_theta": 5e5, "factor": 8.0})),
            ("rope_parameters", json!({"rope_type": "default", "partial_rotary_factor": 0.5})),
            ("rope_parameters", json!({"full_attention": {"rope_type": "default"}})),
            ("rope_parameters", json!({"rope_theta": "1e6"})),
            ("rope_parameters", json!({"rope_theta": null})),
            ("rope_parameters", json!({"rope_type": null})),
            ("rope_scaling", json!({"type": null})),
            ("rope_parameters", json!({"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0})),
            ("rope_parameters", llama3("attention_factor", json!(0.5))),
            ("rope_parameters", llama3("partial_rotary_factor", json!(0.5))),
            ("rope_scaling", llama3("factor", json!(0.5))),
            ("rope_scaling", llama3("factor", json!("8"))),
            ("rope_scaling", llama3("high_freq_factor", json!(1.0))),
            ("rope_scaling", llama3("low_freq_factor", json!(0.0))),
            ("rope_scaling", llama3("original_max_position_embeddings", json!(0.5))),
            ("rope_scaling", llama3("original_max_position_embeddings", json!(null))),
            ("partial_rotary_factor", json!(0.25)),
            ("rotary_pct", json!(0.25)),
            ("rope_ratio", json!(500)),
            ("rope_local_base_freq", json!(1e4)),
        ]
        .map(|(field, value)| refused(field, value));
        insta::assert_snapshot!(refused.join("\n"));
    }

    #[test]
    fn what_changes_nothing_is_taken() {
        let taken = [
            ("rope_scaling", json!(null)),
            ("rope_scaling", json!({})),
            ("rope_scaling", json!({"type": "default", "factor": 1.0})),
            ("rope_parameters", json!({"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 1})),
        ];
        for (field, value) in taken {
            assert_eq!(refused(field, value), "", "{field}");
        }
    }

    #[test]
    fn both_spellings_of_llama3_are_one() {
        let object = json!({"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"});
        let mut newer = object.clone();
        newer["rope_theta"] = 5e5.into();
        let newer = json!({ "rope_parameters": newer });
        let older = json!({"rope_theta": 5e5, "rope_scaling": object});
        let oldest = {
            let mut oldest = older.clone();
            let object = oldest["rope_scaling"].as_object_mut().unwrap();
            let kind = object.remove("rope_type").unwrap();
            object.insert("type".to_owned(), kind);
            oldest
        };
        let expected = Scaling::Llama3(Llama3 {
            factor: 32.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 8192,
        });
        let mut both = older.clone();
        both["rope_parameters"] = newer["rope_parameters"].clone();
        for config in [&newer, &older, &oldest, &both] {
            assert_eq!(read("llama", config), Ok(Some(expected)), "{config}");
            assert_eq!(theta(config, 1e4).unwrap(), 5e5);
        }
        both["rope_parameters"]["factor"] = 8.0.into();
        let differ = "rope_parameters and rope_scaling scale differently: remove the wrong one";
        assert_eq!(read("llama", &both), Err(format!("inconsistent config.json: {differ}")));
        both["rope_parameters"] = json!({"rope_type": "default"});
        assert_eq!(read("llama", &both), Err(format!("inconsistent config.json: {differ}")));
        for family in ["qwen2", "qwen3"] {
            let message = read(family, &older).unwrap_err();
            assert!(message.starts_with("unsupported rope_scaling.rope_type = llama3: "), "{family}: {message}");
        }
    }

    /// Compares attention factors with transformers 5.17's.
    #[test]
    fn yarn_is_read_with_the_defaults_of_transformers() {
        let read = |field: &str, value: Value| {
            let mut object = json!({"factor": 8.0, "original_max_position_embeddings": 128, "beta_fast": 0});
            object[field] = value;
            yarn("rope_scaling", object.as_object().unwrap()).map_err(|error| error.to_string())
        };
        let plain = read("beta_slow", json!(null)).unwrap();
        assert_eq!((plain.beta_fast, plain.beta_slow, plain.truncate), (32.0, 1.0, true));
        assert_eq!((plain.attention_factor, plain.original_max_position_embeddings), (1.2079441541679836, 128));
        assert_eq!(read("mscale", json!(2.0)), Ok(plain));
        assert_eq!(read("attention_factor", json!(1.25)).unwrap().attention_factor, 1.25);
        let both =
            json!({"factor": 8.0, "original_max_position_embeddings": 128, "mscale": 0.707, "mscale_all_dim": 1.2});
        let both = yarn("rope_scaling", both.as_object().unwrap()).unwrap();
        assert!((both.attention_factor - 0.9179561730379721).abs() < 1e-15);
        for (field, value, reason) in [
            ("attention_factor", json!(0), "attention_factor is 0, a positive number is expected"),
            ("beta_slow", json!(-1), "beta_slow is -1, a positive number is expected"),
            ("truncate", json!(1), "truncate is 1"),
            ("factor", json!(null), "factor is missing: type yarn needs it"),
            ("original_max_position_embeddings", json!(null), "original_max_position_embeddings is missing"),
        ] {
            let error = read(field, value).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn two_different_rotary_bases_are_refused() {
        let both = |nested: f64| {
            let config = json!({"rope_theta": 1e6, "rope_parameters": {"rope_theta": nested}});
            theta(&config, 1e4).map_err(|e| e.to_string())
        };
        assert_eq!(both(1e6), Ok(1e6));
        let wrong = "rope_theta is 1000000 and rope_parameters.rope_theta is 10000: remove the wrong one";
        assert_eq!(both(1e4), Err(format!("inconsistent config.json: {wrong}")));
        assert_eq!(theta(&json!({}), 1e4).unwrap(), 10_000.0);
    }
}
