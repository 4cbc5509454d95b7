//! Fields that transformers knows: `fields.txt` has each with its default, and with what is done with another value.

use std::collections::BTreeSet;

use serde_json::Value;

use super::error::ConfigError;
use crate::family::Family;

/// Class (`*` for all), field, default, `null` where the class takes that, another value, and what is done with it.
const TABLE: &str = include_str!("fields.txt");

/// Returns the rows of a class, by its `model_type`, or of all classes, in six columns.
fn rows_of(class: &str) -> impl Iterator<Item = [&'static str; 6]> {
    let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
    let columns = rows.filter_map(|row| row.splitn(6, ' ').collect::<Vec<_>>().try_into().ok());
    columns.filter(move |[of, ..]: &[_; 6]| *of == class)
}

/// Returns the fields of a class, or of all classes where it has them not in its own way.
fn of(class: &str) -> impl Iterator<Item = [&'static str; 6]> {
    let own: BTreeSet<&str> = rows_of(class).map(|[_, name, ..]| name).collect();
    rows_of("*").filter(move |[_, name, ..]| !own.contains(name)).chain(rows_of(class))
}

/// True if a class has a field.
pub(super) fn is_known(class: &str, field: &str) -> bool {
    of(class).any(|[_, name, ..]| name == field)
}

/// True if the family's class has a padding token where a configuration names none.
pub fn pads_by_default(family: &Family) -> bool {
    of(family.model_type).any(|[_, name, default, ..]| name == "pad_token_id" && *default != *"null")
}

/// Refuses null in a field of which transformers' class takes none: it is no default.
pub(super) fn refuse_null(config: &Value, family: &Family) -> Result<(), ConfigError> {
    let is_null = |name: &str| config.get(name).is_some_and(Value::is_null);
    match of(family.model_type).find(|[_, name, _, null, ..]| *null != "null" && is_null(name)) {
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

/// Adds the defaults of a class for fields that are absent, but for some.
pub(super) fn fill(config: &mut Value, class: &str, but: &[&str]) {
    for [_, name, default, ..] in rows_of(class).filter(|[_, _, default, ..]| *default != "null") {
        if config.get(name).is_none() && !but.contains(&name) {
            config[name] = serde_json::from_str(default).unwrap_or_default();
        }
    }
}

/// Asserts that another value of each field of a class is treated as its row says. `read` returns true for a
/// configuration that means what `base` does, and the error of one that is refused.
#[cfg(test)]
pub(super) fn each_is_treated(class: &str, base: &Value, read: impl Fn(&Value) -> (bool, Option<String>)) {
    for [_, name, _, _, another, treatment] in of(class) {
        let mut config = base.clone();
        config[name] = serde_json::from_str(another).unwrap_or_else(|error| panic!("{another}: {error}"));
        let (is_same, error) = read(&config);
        let holds = match (treatment.split(':').next(), &error) {
            (Some("read"), None) => !is_same,
            (Some("implied"), None) => is_same,
            (Some("refused"), Some(message)) => message.contains(name.trim_end_matches('s')),
            (Some("read" | "implied" | "refused"), _) => false,
            (other, _) => panic!("{name}: {other:?} is none of read, refused and implied"),
        };
        assert!(holds, "{class} {name} = {another} should be {treatment}: {error:?}");
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
        for [_, name, default, null, ..] in of(family.model_type) {
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
            each_is_treated(family.model_type, &base, |config| {
                let found = read(config);
                (found.as_ref() == Ok(&expected), found.err())
            });
            for [_, name, _, null, ..] in of(family.model_type) {
                let mut config = base.clone();
                config[name] = Value::Null;
                assert_eq!(read(&config).is_ok(), null == "null", "{} {name} = null", family.model_type);
            }
        }
    }
}
