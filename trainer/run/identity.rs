//! What a run is: everything that decides its weights.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use precast_fatbins::Digest;
use precast_plan::{Objective, Recipe};
use serde::{Deserialize, Serialize};

use crate::checkpoint::Checkpoint;
use crate::config::RunConfig;
use crate::data::Dataset;
use crate::models::{Models, Role};

/// Named values that a run and one that continues it have in common. How many steps it takes is not among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Identity(BTreeMap<String, String>);

/// A value that is not the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub name: String,
    /// In the run so far.
    pub was: String,
    /// As it is asked for now.
    pub is: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was {}, is {}", self.name, self.was, self.is)
    }
}

impl Identity {
    /// All of it but the digests of the weights, which take a while: [`Self::models`] adds them.
    pub fn new(config: &RunConfig, data: &Data, models: &Models<Checkpoint>) -> Self {
        let json = |model: &Checkpoint| Digest::of(model.json().to_string().as_bytes()).to_string();
        let optional = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
        let values = [
            ("tokenizer", optional(data.tokenizer.map(|digest| digest.to_string()))),
            ("end of text", optional(data.eos.map(|id| id.to_string()))),
            ("data", data.dataset.digest().to_string()),
            ("packing", data.dataset.packing()),
            ("lr", config.lr.to_string()),
            ("warmup", config.warmup.to_string()),
            ("schedule", config.schedule.to_string()),
            ("betas", format!("{} {}", Recipe::BETA1, Recipe::BETA2)),
            ("eps", Recipe::EPS.to_string()),
            ("weight_decay", config.weight_decay.to_string()),
            ("clip", config.clip.to_string()),
            ("precision", config.precision.to_string()),
            ("batch_size", config.batch_size.to_string()),
            ("seq_len", config.seq_len.to_string()),
            ("grad_accum", config.grad_accum.to_string()),
            ("shuffle", config.shuffle.to_string()),
            ("seed", config.seed.to_string()),
        ];
        let values = values.map(|(name, value)| (name.to_owned(), value)).into_iter();
        let configs = models.iter().map(|(role, model)| (format!("{role} config"), json(model)));
        let objective = match config.objective {
            Objective::CrossEntropy => Vec::new(),
            Objective::Distill { alpha, temperature, beta } => {
                vec![("alpha", alpha), ("temperature", temperature), ("beta", beta)]
            }
        };
        let objective = objective.into_iter().map(|(name, value)| (name.to_owned(), value.to_string()));
        Self(values.chain(configs).chain(objective).collect())
    }

    /// Adds the digests of the weights.
    pub fn models(&mut self, digests: &Models<Digest>) {
        self.0.extend(digests.iter().map(|(role, digest)| (role.name().to_owned(), digest.to_string())));
    }

    /// What is not as it was, by name. Before [`Self::models`] the weights count as the same.
    pub fn differences(&self, was: &Self) -> Vec<Difference> {
        let complete = self.0.contains_key(Role::Student.name());
        let names = was.0.keys().filter(|name| complete || Role::ALL.iter().all(|role| role.name() != name.as_str()));
        let mut names: Vec<&String> = names.chain(self.0.keys()).collect();
        names.sort_unstable();
        names.dedup();
        let value = |of: &Self, name: &String| of.0.get(name).cloned().unwrap_or_else(|| "none".to_owned());
        let differences = names.into_iter().map(|name| Difference {
            name: name.clone(),
            was: value(was, name),
            is: value(self, name),
        });
        differences.filter(|difference| difference.was != difference.is).collect()
    }
}

/// Training data, and how text became tokens.
pub struct Data {
    pub dataset: Arc<Dataset>,
    /// Digest of the tokenizer as it is used; none where no data is text.
    pub tokenizer: Option<Digest>,
    /// The token that ends a document.
    pub eos: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(values: &[(&str, &str)]) -> Identity {
        Identity(values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn every_difference_is_named_with_both_values() {
        let was = identity(&[("lr", "0.1"), ("seed", "1"), ("teacher", "a"), ("student", "b")]);
        let early = identity(&[("lr", "0.2"), ("seed", "1")]);
        let texts =
            |identity: &Identity| identity.differences(&was).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&early), ["lr was 0.1, is 0.2"]);
        let whole = identity(&[("lr", "0.1"), ("seed", "1"), ("teacher", "a"), ("student", "c"), ("new", "x")]);
        assert_eq!(texts(&whole), ["new was none, is x", "student was b, is c"]);
    }
}
