//! Identity of a run: everything that decides its weights.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use precast_fatbins::Digest;
use precast_plan::{Moments, Recipe};
use precast_runtime::cublas::Version;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::difference::Difference;
use crate::base::roles::{Models, Role};
use crate::device::run_models::RunModels;
use crate::inputs::checkpoint::Checkpoint;
use crate::inputs::data::{Dataset, Packing, Streams};
use crate::inputs::teacher_cache::TeacherCache;
use crate::options::{Change, DeviceChoice, RunConfig, TaughtBy, change, is_of_completions};

/// Named values that a run and one that continues it have in common. How many steps it takes is not among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Identity(BTreeMap<String, String>);

/// The digests of named teachers' weights have this in their names.
const WEIGHTS: &str = "weights";

/// The name of the data's digest.
const DATA: &str = "data";

/// The name of how rows become micro-batches, where they are not padded: in records `packing` has always been the
/// rules by which files become rows.
pub(super) const PACKING: &str = "--packing";

impl Identity {
    /// All of it but the digests of weights and data, which take a while: [`Self::models`] and [`Self::data`] add them.
    pub fn new(config: &RunConfig, data: &Data, models: &RunModels<Checkpoint>) -> Self {
        let json = |model: &Checkpoint| Digest::of(model.json.to_string().as_bytes()).to_string();
        let optional = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
        let values = [
            ("tokenizer", optional(data.tokenizer.map(|digest| digest.to_string()))),
            ("end of text", optional(data.eos.map(|id| id.to_string()))),
            ("packing", data.streams.corpus.chunking_rules()),
            ("betas", format!("{} {}", Recipe::BETA1, Recipe::BETA2)),
            ("eps", Recipe::EPS.to_string()),
        ];
        let values = values.map(|(name, value)| (name.to_owned(), value)).into_iter();
        let of = |number: usize, what: &str| config.teachers[number].record_name(what);
        let caches = models.caches.iter().enumerate().filter_map(|(number, cache)| Some((number, cache.as_ref()?)));
        let digest_of_cache =
            |(number, cache): (usize, &Arc<TeacherCache>)| (of(number, "cache"), cache.sha256().to_string());
        let digests_of_caches: Vec<(String, String)> = caches.map(digest_of_cache).collect();
        // Exact forms of a teacher are one.
        let rounded = config.teacher_format.filter(|format| !format.is_exact());
        let rounded = rounded.map(|format| ("rounding of the teacher".to_owned(), format.to_string()));
        // Its path is the student's, of which another teacher may be a copy.
        let own = config.teachers.iter().filter(|teacher| teacher.by == TaughtBy::Student);
        let own = own.map(|teacher| {
            let name =
                if teacher.name.is_some() { teacher.record_name("teaches") } else { "weights that teach".to_owned() };
            (name, "the student's own".to_owned())
        });
        let own: Vec<(String, String)> = own.collect();
        let packing = config.packing.packing.filter(|packing| *packing != Packing::None);
        let packing = packing.map(|packing| (PACKING.to_owned(), packing.to_string()));
        // Earlier ones had sequences of one length in a micro-batch, and another order of sums.
        let rollouts = config.on_policy.map(|_| ("rollouts".to_owned(), "end to end".to_owned()));
        let stands_in = match config.target.device {
            DeviceChoice::As(arch, _) => Some(("launches".to_owned(), arch.to_string())),
            _ => None,
        };
        let configs = models.models.iter().map(|(role, model)| match role {
            Role::Teacher(number) => {
                let cache = models.caches[number].as_ref();
                let cached = cache.map(|cache| cache.manifest().made.teacher_config_sha256.to_string());
                (of(number, "config"), cached.unwrap_or_else(|| json(model)))
            }
            Role::Student => ("student config".to_owned(), json(model)),
        });
        // Only an adapter that was there has a digest: a new one follows from options.
        let digest = models.adapter.as_ref().and_then(|adapter| Some((adapter.digest()?, adapter.layout.digest())));
        let adapter = digest.map(|(tensors, layout)| {
            [("adapter".to_owned(), tensors.to_string()), ("adapter config".to_owned(), layout.to_string())]
        });
        Self(
            values
                .chain(packing)
                .chain(rollouts)
                .chain(stands_in)
                .chain(rounded)
                .chain(own)
                .chain(digests_of_caches)
                .chain(configs)
                .chain(adapter.into_iter().flatten())
                .chain(options(config))
                .collect(),
        )
    }

    /// Adds the version of the library that computes products, if one does: another one may round otherwise.
    pub fn cublas(&mut self, version: Option<Version>) {
        self.0.extend(version.map(|version| ("cuBLASLt".to_owned(), version.to_string())));
    }

    /// Adds the digest of the table that selects variants, if there is one.
    pub fn tuned(&mut self, digest: Option<Digest>) {
        self.0.extend(digest.map(|digest| ("tuned".to_owned(), digest.to_string())));
    }

    /// Adds the digests of the weights.
    pub fn models(&mut self, digests: &Models<Digest>, config: &RunConfig) {
        let name = |role| match role {
            Role::Teacher(number) if config.teachers[number].name.is_some() => {
                config.teachers[number].record_name(WEIGHTS)
            }
            role => role.name().to_owned(),
        };
        self.0.extend(digests.iter().map(|(role, digest)| (name(role), digest.to_string())));
    }

    /// A value, by its name.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Every name with its value.
    pub fn values(&self) -> impl Iterator<Item = (String, String)> {
        self.0.iter().map(|(name, value)| (name.clone(), value.clone()))
    }

    /// Adds the digest of the data.
    pub fn data(&mut self, digest: Digest) {
        self.0.insert(DATA.to_owned(), digest.to_string());
    }

    /// Returns the differences, by name. Before [`Self::models`] the weights count as the same, and before
    /// [`Self::data`] the data.
    pub fn differences(&self, was: &Self) -> Vec<Difference> {
        let complete = self.0.contains_key(Role::Student.name());
        let is_of_weights =
            |name: &str| ["teacher", "student"].contains(&name) || name.ends_with(&format!(": {WEIGHTS}"));
        let names = was.0.keys().filter(|name| complete || !is_of_weights(name));
        let names = names.filter(|name| *name != DATA || self.0.contains_key(DATA));
        let names: BTreeSet<&String> = names.chain(self.0.keys()).collect();
        // Runs of versions without that option had them in fp32.
        let absent = |name: &str| if name == "moments" { Moments::Fp32.to_string() } else { "none".to_owned() };
        let value = |of: &Self, name: &String| of.0.get(name).cloned().unwrap_or_else(|| absent(name));
        let differences = names.into_iter().map(|name| Difference {
            name: name.clone(),
            was: value(was, name),
            is: value(self, name),
        });
        differences.filter(|difference| difference.was != difference.is).collect()
    }
}

/// The options that a run that continues has in common with the run so far.
fn options(config: &RunConfig) -> impl Iterator<Item = (String, String)> {
    let Value::Object(options) = config.to_json() else { unreachable!("a configuration has names") };
    // Completions of held-out prompts decide no weights.
    let trains_on_them = config.on_policy.is_some();
    let has_name_of_its_own = |name: &str| name == "packing";
    let decides = move |name: &str| {
        change(name) == Change::Never && (trains_on_them || !is_of_completions(name)) && !has_name_of_its_own(name)
    };
    let compared = options.into_iter().filter(move |(name, _)| decides(name));
    compared.map(|(name, value)| (name, text(&value)))
}

fn text(value: &Value) -> String {
    match (value, value.as_f64()) {
        (Value::String(text), _) => text.clone(),
        (Value::Number(number), Some(float)) if number.is_f64() => float.to_string(),
        _ => value.to_string(),
    }
}

/// Training data, and how text became tokens.
pub struct Data {
    pub streams: Streams,
    /// Data that the run does not train on.
    pub held_out: Option<Dataset>,
    /// Digest of the tokenizer as it is used; none where no data is text.
    pub tokenizer: Option<Digest>,
    /// The token that ends a document.
    pub eos: Option<u32>,
}

impl Data {
    /// True if a teacher reads other prompts than the student, of any row.
    pub fn has_teacher_prompts(&self) -> bool {
        let held_out = self.held_out.iter().flat_map(|data| &data.chunks);
        self.streams.corpus.has_teacher_prompts() || held_out.into_iter().any(|chunk| chunk.teacher_prompt.is_some())
    }

    /// Digest of everything that decides the training sequences: files, tokenizer, rules of chunking, sequence length.
    pub fn signature(&self, files: Digest) -> Digest {
        let corpus = &self.streams.corpus;
        let rule = format!("{} {:?} {:?} {}", corpus.chunking_rules(), self.tokenizer, self.eos, corpus.chunk);
        Digest::of_parts("precast.sequences", [&files.0[..], rule.as_bytes()])
    }
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
        let moments = |of| identity(&[("lr", "0.1"), ("seed", "1"), ("moments", of)]);
        assert_eq!(texts(&moments("bf16")), ["moments was fp32, is bf16"]);
        assert!(texts(&moments("fp32")).is_empty(), "a run of a version without that option goes on");
    }

    #[test]
    fn numbers_are_written_as_they_were_before() {
        let texts = ["0.1", "1e-5", "2.0", "7", "18446744073709551615", "true", "\"cosine\""];
        let values = texts.map(|one| text(&serde_json::from_str(one).unwrap()));
        assert_eq!(values, ["0.1", "0.00001", "2", "7", "18446744073709551615", "true", "cosine"]);
    }
}
