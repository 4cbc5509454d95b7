//! Sources of a chat template: the files beside a model, or a GGUF file's metadata.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::added_tokens;
use crate::base::impostors::read_text;

/// A template of its own for conversations with tools, in a directory.
pub const TOOL_USE: &str = "additional_chat_templates/tool_use.jinja";

/// A chat template and the texts that it names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatSource {
    pub default: String,
    /// For conversations with tools, where they have a template of their own.
    pub tool_use: Option<String>,
    /// Names and texts: `bos_token`, ...
    pub constants: Vec<(String, String)>,
}

impl ChatSource {
    /// Of a Hugging Face directory: `chat_template.jinja`, else `chat_template` of `tokenizer_config.json`, and
    /// [`TOOL_USE`] beside the former. None where there is no template.
    ///
    /// # Errors
    /// The file that does not read, and why.
    pub fn of_directory(directory: &Path) -> Result<Option<Self>, (PathBuf, String)> {
        let config = tokenizer_config(directory)?;
        let read = |name: &str| {
            let file = directory.join(name);
            let text = file.exists().then(|| read_text(&file).map_err(|error| (file, error.to_string())));
            text.transpose()
        };
        let (default, tool_use) = (read("chat_template.jinja")?, read(TOOL_USE)?);
        let of_config = Self::of_config(&config);
        Ok(match default {
            Some(default) => Some(Self { default, tool_use, constants: constants(&config) }),
            None => of_config.map(|source| Self { tool_use: tool_use.or(source.tool_use), ..source }),
        })
    }

    /// Of the value of a `tokenizer_config.json`.
    pub fn of_config(config: &Value) -> Option<Self> {
        match config.get("chat_template")? {
            Value::String(text) => Some(Self { default: text.clone(), tool_use: None, constants: constants(config) }),
            Value::Array(list) => {
                let named = |name: &str| {
                    let one = list.iter().find(|one| one.get("name").and_then(Value::as_str) == Some(name))?;
                    Some(one.get("template")?.as_str()?.to_owned())
                };
                Some(Self { default: named("default")?, tool_use: named("tool_use"), constants: constants(config) })
            }
            _ => None,
        }
    }

    /// These templates for a model with this `tokenizer_config.json`: its own tokens stay, and those that it does not
    /// name come along.
    #[must_use]
    pub fn beside(&self, mut config: Value) -> Self {
        self.write_into(&mut config);
        Self::of_config(&config).unwrap_or_default()
    }

    /// Puts the templates into the value of a `tokenizer_config.json`, and the tokens that it does not name.
    pub fn write_into(&self, config: &mut Value) {
        if !config.is_object() {
            *config = json!({});
        }
        config["chat_template"] = match &self.tool_use {
            None => self.default.as_str().into(),
            Some(tool_use) => json!([
                { "name": "default", "template": self.default },
                { "name": "tool_use", "template": tool_use },
            ]),
        };
        for (name, token) in &self.constants {
            let entries = config.as_object_mut().expect("an object, as made above");
            entries.entry(name).or_insert_with(|| token.as_str().into());
        }
    }
}

/// The value of a directory's `tokenizer_config.json`, with the tokens of `special_tokens_map.json`: those of the
/// latter count in files of before there was `added_tokens_decoder`. Null where it is not there.
///
/// # Errors
/// The file that does not read, and why.
pub fn tokenizer_config(directory: &Path) -> Result<Value, (PathBuf, String)> {
    let json = |name: &str| -> Result<Value, (PathBuf, String)> {
        let path = directory.join(name);
        if !path.exists() {
            return Ok(Value::Null);
        }
        let text = read_text(&path).map_err(|error| (path.clone(), error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| (path, error.to_string()))
    };
    let mut config = json("tokenizer_config.json")?;
    if let (Value::Object(config), Value::Object(map)) = (&mut config, json("special_tokens_map.json")?) {
        if config.contains_key("added_tokens_decoder") {
            map.into_iter().for_each(|(name, token)| _ = config.entry(name).or_insert(token));
        } else {
            config.extend(map);
        }
    }
    Ok(config)
}

/// The special tokens of a configuration, by name.
fn constants(config: &Value) -> Vec<(String, String)> {
    added_tokens::NAMES.into_iter().filter_map(|name| Some((name.to_owned(), token(config, name)?))).collect()
}

/// The text of a configuration's special token: itself, or what an object about it has.
pub fn token(config: &Value, name: &str) -> Option<String> {
    let value = config.get(name)?;
    value.as_str().or_else(|| value.get("content")?.as_str()).map(ToOwned::to_owned)
}
