//! How PEFT's files name modules: by the ends of their names or by a regular expression (`check_target_module_exists`,
//! `get_pattern_key` in peft 0.21).

use fancy_regex::Regex;
use serde::{Deserialize, Deserializer};

use crate::members;

/// `target_modules`, `exclude_modules`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a list of names or a pattern")]
pub(super) enum Modules {
    Names(Vec<String>),
    Pattern(String),
}

/// Matches names by one regular expression: all of a name.
fn whole(pattern: &str) -> Result<Regex, String> {
    Regex::new(&format!(r"\A(?:{pattern})\z")).map_err(|error| format!("is no pattern: {error}"))
}

fn is_match(regex: &Regex, module: &str) -> Result<bool, String> {
    regex.is_match(module).map_err(|error| format!("is a pattern that takes too long: {error}"))
}

/// True if a module has this name, or ends in it.
pub(super) fn ends_in(module: &str, name: &str) -> bool {
    module.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

impl Modules {
    /// Those of `modules` that are meant.
    pub fn of<'a>(&self, modules: &[&'a str]) -> Result<Vec<&'a str>, String> {
        match self {
            Self::Names(names) => {
                let named = modules.iter().filter(|module| names.iter().any(|name| ends_in(module, name)));
                Ok(named.copied().collect())
            }
            Self::Pattern(pattern) => {
                let regex = whole(pattern)?;
                let matches = modules.iter().map(|module| Ok((*module, is_match(&regex, module)?)));
                let matches: Vec<(&str, bool)> = matches.collect::<Result<_, String>>()?;
                Ok(matches.into_iter().filter(|(_, is)| *is).map(|(module, _)| module).collect())
            }
        }
    }
}

/// `rank_pattern`, `alpha_pattern`: the first pattern in the order of the file that matches the end of a name counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs<T>(pub Vec<(String, T)>);

impl<T: Copy> Pairs<T> {
    /// A function from modules to their values.
    pub fn compiled(&self) -> Result<impl Fn(&str) -> Result<Option<T>, String> + use<T>, String> {
        let pairs = self.0.iter().map(|(pattern, value)| Ok((whole(&format!(r"(?:.*\.)?(?:{pattern})"))?, *value)));
        let pairs: Vec<(Regex, T)> = pairs.collect::<Result<_, String>>()?;
        Ok(move |module: &str| {
            for (regex, value) in &pairs {
                if is_match(regex, module)? {
                    return Ok(Some(*value));
                }
            }
            Ok(None)
        })
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pairs<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        members::in_order(from, "patterns with numbers").map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULES: [&str; 4] = [
        "model.layers.0.self_attn.q_proj",
        "model.layers.1.self_attn.q_proj",
        "model.layers.11.self_attn.q_proj",
        "model.layers.1.mlp.up_proj",
    ];

    fn of(json: serde_json::Value) -> Result<Vec<&'static str>, String> {
        serde_json::from_value::<Modules>(json).unwrap().of(&MODULES)
    }

    #[test]
    fn modules_are_named_by_their_ends_or_matched_whole() {
        let [q0, q1, q11, up] = MODULES;
        assert_eq!(of(["q_proj"].into()).unwrap(), [q0, q1, q11]);
        assert_eq!(of([q1, "mlp.up_proj"].into()).unwrap(), [q1, up]);
        // A part of a name is not a name.
        assert_eq!(of(["proj", "1.self_attn.q_proj"].into()).unwrap(), [q1]);
        assert_eq!(of(r".*\.1\..*".into()).unwrap(), [q1, up]);
        assert_eq!(of("q_proj".into()).unwrap(), [""; 0]);
        // What Python has and most engines have not.
        assert_eq!(of(r".*\.(?!0\.)\d+\.self_attn\.q_proj".into()).unwrap(), [q1, q11]);
        assert!(of("(".into()).unwrap_err().contains("is no pattern"));
    }

    #[test]
    fn the_first_pattern_of_the_file_counts() {
        let value = |json: &str, module: &str| {
            let pairs: Pairs<u32> = serde_json::from_str(json).unwrap();
            pairs.compiled().unwrap()(module).unwrap()
        };
        let both = r#"{"self_attn.q_proj": 3, "model.layers.1.self_attn.q_proj": 5}"#;
        let turned = r#"{"model.layers.1.self_attn.q_proj": 5, "self_attn.q_proj": 3}"#;
        assert_eq!([value(both, MODULES[1]), value(turned, MODULES[1])], [Some(3), Some(5)]);
        assert_eq!([value(turned, MODULES[2]), value(turned, MODULES[3])], [Some(3), None]);
        assert_eq!(value(r#"{"^model\\.layers\\.0\\..*": 7}"#, MODULES[0]), Some(7));
        assert_eq!(value(r#"{"q": 7}"#, MODULES[0]), None);
    }
}
