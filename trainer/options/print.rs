//! run.toml as text: what [`super::file`] reads back.

use std::collections::BTreeMap;

use precast_system::terminal::visible;
use serde_json::Value;
use serde_json::value::RawValue;

use super::usage::UsageError;
use super::{Division, RunConfig, all, is_of_teacher};

impl RunConfig {
    /// The run.toml that gives this configuration: a line for each option that has a value, in the order of their
    /// declarations. What follows from the number of GPUs has none.
    ///
    /// # Errors
    /// [`UsageError`] for a path that is not UTF-8: TOML has no text for it.
    pub fn to_toml(&self) -> Result<String, UsageError> {
        if let Some(path) = self.inputs().into_iter().chain([&*self.out]).find(|path| path.to_str().is_none()) {
            return Err(UsageError(format!("run.toml cannot name {}: a path there is UTF-8", path.display())));
        }
        // As text: a `Value` rounds some numbers.
        let text = serde_json::to_string(self).expect("plain data serializes");
        let values: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&text).expect("JSON reads back");
        let Division { grad_accum, share } = self.division;
        let (replicas, is_usual) = (share.replicas.to_string(), share.replicas == share.ranks);
        let list = |texts: Vec<String>| match &self.teachers[..] {
            [only] if only.name.is_none() => texts.first().map(|text| Value::from(&**text).to_string()),
            _ => (!texts.is_empty()).then(|| Value::from(texts).to_string()),
        };
        // A cache says which model it is of.
        let (models, caches) = (list(self.teachers.models()), list(self.teachers.caches()));
        let lines = all().filter_map(|option| {
            let name = option.get_id().as_str();
            let json = match (name, self.teachers.is_empty()) {
                ("model", true) => values.get("student")?.get(),
                ("teacher", false) => models.as_deref()?,
                ("teacher_cache", false) => caches.as_deref()?,
                (name, true) if is_of_teacher(name) => return None,
                // On other GPUs they follow from those.
                ("replicas", _) if is_usual => return None,
                ("grad_accum", _) if is_usual && grad_accum == share.replicas => return None,
                // A record leaves out one replica.
                ("replicas", _) => &replicas,
                _ => values.get(name)?.get(),
            };
            Some(format!("{name} = {}\n", value(json)?))
        });
        Ok(lines.collect())
    }
}

/// A value in JSON as TOML has it; none where there is none. Texts and lists are the same in both, once nothing in them
/// is a character that a terminal would obey.
fn value(json: &str) -> Option<String> {
    match json {
        "null" => None,
        // Integers of TOML have 63 bits; a text is read as the flag is.
        number if number.parse::<u64>().is_ok_and(|number| i64::try_from(number).is_err()) => {
            Some(format!("\"{number}\""))
        }
        json => Some(visible(json).into_owned()),
    }
}
