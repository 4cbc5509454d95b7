//! Fields that transformers knows: `fields.txt` has each with its default, and with what is done with another value.

use serde_json::Value;

use super::ConfigError;
use super::unsupported::SETTINGS;
use crate::family::Family;

/// Class (`*` for all), field, default, `null` where the class takes that, another value, and what is done with it.
const TABLE: &str = include_str!("fields.txt");

/// Returns the fields of a family's class, or of all classes, in six columns.
fn of(family: &Family) -> impl Iterator<Item = [&'static str; 6]> {
    let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
    let columns = rows.filter_map(|row| row.splitn(6, ' ').collect::<Vec<_>>().try_into().ok());
    columns.filter(|[class, ..]: &[_; 6]| ["*", family.model_type].contains(class))
}

/// True if a family's class has a field.
pub(super) fn is_known(family: &Family, field: &str) -> bool {
    of(family).any(|[_, name, ..]| name == field)
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

/// Returns the fields with a value that neither transformers' class nor this program knows: a model's own code may read them.
pub fn unread_fields<'a>(config: &'a Value, family: &Family) -> Vec<&'a str> {
    let fields = config.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let is_setting = |name: &str| SETTINGS.iter().any(|(setting, ..)| *setting == name);
    let names = fields.map(|(name, _)| name.as_str()).filter(|name| !name.starts_with('_'));
    names.filter(|name| !is_known(family, name) && !is_setting(name)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::ModelConfig;
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

    #[test]
    fn fields_of_no_class_are_named() {
        let config = json!({"hidden_size": 64, "_name_or_path": "a", "sink_tokens": 4, "mup": null, "qk_norm": false});
        assert_eq!(unread_fields(&config, &FAMILIES[0]), ["sink_tokens"]);
    }
}
