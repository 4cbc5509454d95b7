//! Fields that transformers knows: `fields.txt` has each with its default, and with what is done with another value.

use serde_json::Value;

use super::error::ConfigError;
use crate::family::Family;

/// Class (`*` for all), field, default, `null` where the class takes that, another value, and what is done with it.
const TABLE: &str = include_str!("fields.txt");

/// Returns the fields of a family's class, or of all classes, in six columns.
fn of(family: &Family) -> impl Iterator<Item = [&'static str; 6]> {
    let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
    let columns = rows.filter_map(|row| row.splitn(6, ' ').collect::<Vec<_>>().try_into().ok());
    columns.filter(|[class, name, ..]: &[_; 6]| *class == family.model_type || *class == "*" && !replaces(family, name))
}

/// True if the family's class has a field of all classes in its own way.
fn replaces(family: &Family, field: &str) -> bool {
    family.delta_rule && field == "partial_rotary_factor"
}

/// True if a family's class has a field.
pub(super) fn is_known(family: &Family, field: &str) -> bool {
    of(family).any(|[_, name, ..]| name == field)
}

/// True if the family's class has a padding token where a configuration names none.
pub fn pads_by_default(family: &Family) -> bool {
    of(family).any(|[_, name, default, ..]| name == "pad_token_id" && *default != *"null")
}

/// Refuses null in a field of which transformers' class takes none: it is no default.
pub(super) fn refuse_null(config: &Value, family: &Family) -> Result<(), ConfigError> {
    let is_null = |name: &str| config.get(name).is_some_and(Value::is_null);
    match of(family).find(|[_, name, _, null, ..]| *null != "null" && is_null(name)) {
        None => Ok(()),
        Some([_, name, ..]) => Err(ConfigError::Inconsistent(format!(
            "{name} is null, and {family} takes a value there: give one, or remove the line for the default"
        ))),
    }
}

/// Sizes without which a configuration is incomplete, whatever a class assumes.
pub(super) const REQUIRED: [&str; 6] = [
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "vocab_size",
    "max_position_embeddings",
];

/// Adds the defaults of the family's class for fields that are absent, but for some.
pub(super) fn fill(config: &mut Value, family: &Family, but: &[&str]) {
    for [class, name, default, ..] in of(family).filter(|[_, _, default, ..]| *default != "null") {
        if class != "*" && config.get(name).is_none() && !but.contains(&name) {
            config[name] = serde_json::from_str(default).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::model::ModelConfig;
    use super::*;
    use crate::family::FAMILIES;

    fn value(text: &str) -> Value {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// The defaults of a class, written out: null where it takes that.
    fn defaults(family: &Family) -> Value {
        let mut config = json!({"architectures": [family.class], "model_type": family.model_type});
        for [_, name, default, null, ..] in of(family) {
            if config.get(name).is_none() && (default != "null" || null == "null") {
                config[name] = value(default);
            }
        }
        config
    }

    #[test]
    fn no_field_of_transformers_is_ignored() {
        for family in &FAMILIES {
            let base = defaults(family);
            let read = |config: &Value| ModelConfig::from_json(&config.to_string()).map_err(|error| error.to_string());
            let expected = read(&base).unwrap();
            for [_, name, _, null, another, treatment] in of(family) {
                let mut config = base.clone();
                config[name] = value(another);
                let found = read(&config);
                let holds = match treatment.split(':').next() {
                    Some("read") => found.as_ref().is_ok_and(|found| *found != expected),
                    Some("refused") => {
                        found.as_ref().is_err_and(|message| message.contains(name.trim_end_matches('s')))
                    }
                    Some("implied") => found.as_ref() == Ok(&expected),
                    other => panic!("{name}: {other:?} is none of read, refused and implied"),
                };
                assert!(holds, "{} {name} = {another} should be {treatment}: {found:?}", family.model_type);
                config[name] = Value::Null;
                assert_eq!(read(&config).is_ok(), null == "null", "{} {name} = null", family.model_type);
            }
        }
    }
}
