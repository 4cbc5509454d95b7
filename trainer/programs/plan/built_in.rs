//! The models whose kernels are built in, those with one tokenizer together: pairs that can be distilled.

use std::fmt;

use serde::Serialize;

use crate::device::DeviceError;
use crate::device::bundle::embedded;

/// Models at Hugging Face that kernels are built for by default. No configuration names a tokenizer, so they stand in
/// a row of those that share one.
const TOKENIZERS: [(&str, &[&str]); 11] = [
    ("Gemma 3", &["google/gemma-3-270m", "google/gemma-3-1b-pt", "google/gemma-3-4b-pt", "google/gemma-3-12b-pt"]),
    ("Granite 4.0", &["ibm-granite/granite-4.0-350m", "ibm-granite/granite-4.0-1b"]),
    ("Granite 4.1", &["ibm-granite/granite-4.1-3b", "ibm-granite/granite-4.1-8b"]),
    ("Llama 3", &["meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-3B", "meta-llama/Llama-3.1-8B"]),
    ("Ministral 3", &["mistralai/Ministral-3-3B-Base-2512", "mistralai/Ministral-3-8B-Base-2512"]),
    ("OLMo 2", &["allenai/OLMo-2-0425-1B", "allenai/OLMo-2-1124-7B"]),
    ("Qwen2.5", &["Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-1.5B", "Qwen/Qwen2.5-7B"]),
    ("Qwen3", &["Qwen/Qwen3-0.6B", "Qwen/Qwen3-1.7B", "Qwen/Qwen3-4B", "Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B"]),
    (
        "Qwen3.5",
        &[
            "Qwen/Qwen3.5-0.8B",
            "Qwen/Qwen3.5-2B",
            "Qwen/Qwen3.5-4B",
            "Qwen/Qwen3.5-9B",
            "Qwen/Qwen3.5-27B",
            "Qwen/Qwen3.5-35B-A3B",
        ],
    ),
    ("SmolLM2", &["HuggingFaceTB/SmolLM2-135M", "HuggingFaceTB/SmolLM2-360M", "HuggingFaceTB/SmolLM2-1.7B"]),
    ("SmolLM3", &["HuggingFaceTB/SmolLM3-3B"]),
];

/// The models that this program has kernels for.
#[derive(Debug, Serialize)]
pub struct BuiltIn {
    /// True if kernels are embedded; else the models are those of a build for a GPU.
    embedded: bool,
    tokenizers: Vec<Sharing>,
    /// Models of a configuration that the build was given, by its name: of their tokenizers nothing is known.
    others: Vec<String>,
}

/// Models that share a tokenizer.
#[derive(Debug, Serialize)]
struct Sharing {
    tokenizer: &'static str,
    models: Vec<&'static str>,
}

impl BuiltIn {
    /// Reads the models of the embedded bundle.
    ///
    /// # Errors
    /// [`DeviceError::Bundle`] if it is not the one that the program was built with.
    pub fn find() -> Result<Self, DeviceError> {
        Ok(Self::of(embedded(None)?.map(|bundle| bundle.manifest().built_for.clone())))
    }

    fn of(built_for: Option<Vec<String>>) -> Self {
        let has = |model: &str| built_for.as_ref().is_none_or(|names| names.contains(&name_of(model)));
        let share = |(tokenizer, models): (_, &[&'static str])| Sharing {
            tokenizer,
            models: models.iter().copied().filter(|model| has(model)).collect(),
        };
        let tokenizers = TOKENIZERS.map(share).into_iter().filter(|row| !row.models.is_empty()).collect();
        let known: Vec<String> =
            TOKENIZERS.iter().flat_map(|(_, models)| models.iter().map(|it| name_of(it))).collect();
        let others = built_for.iter().flatten().filter(|name| !known.contains(name)).cloned().collect();
        Self { embedded: built_for.is_some(), tokenizers, others }
    }
}

/// Returns the name of a model at Hugging Face as bundles have it, without month, `base` or `pt`.
fn name_of(model: &str) -> String {
    let name = model.rsplit('/').next().unwrap_or(model).to_lowercase();
    let is_date = |part: &str| part.len() == 4 && part.bytes().all(|byte| byte.is_ascii_digit());
    name.split('-').filter(|part| !["base", "pt"].contains(part) && !is_date(part)).collect::<Vec<_>>().join("-")
}

impl fmt::Display for BuiltIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.embedded {
            "Kernels are built in for these models and their fine-tuned versions."
        } else {
            "No kernels are embedded: this trainer runs on the simulated GPU alone, any model of a supported family.\n\
             A build for GPUs has kernels for these models and their fine-tuned versions."
        })?;
        writeln!(
            f,
            "\nModels of one row share a tokenizer, so each can teach the others of its row. Those with \
             experts (A3B) do not train.\n"
        )?;
        for Sharing { tokenizer, models } in &self.tokenizers {
            writeln!(f, "  {tokenizer:<11} {}", models.join("  "))?;
        }
        if !self.others.is_empty() {
            writeln!(f, "\nOthers, of unknown tokenizers: {}", self.others.join("  "))?;
        }
        write!(
            f,
            "\nPlan a run of two:      precast plan --teacher T --student S --card H200\n\
             Kernels for another:    precast-aot build --model DIR --arch ARCH --out FILE"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_rows_are_of_the_models_that_kernels_are_built_for() {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("aot/models");
        let files = std::fs::read_dir(models).unwrap().map(|file| file.unwrap().path());
        let json = files.filter(|file| file.extension().is_some_and(|it| it == "json"));
        let mut built_for: Vec<String> = json.map(|file| file.file_stem().unwrap().display().to_string()).collect();
        built_for.sort();
        let mut rows: Vec<String> =
            TOKENIZERS.iter().flat_map(|(_, models)| models.iter().map(|it| name_of(it))).collect();
        rows.sort();
        assert_eq!(rows, built_for);
    }

    #[test]
    fn a_row_has_the_models_that_are_embedded() {
        let names = ["mine", "qwen2.5-0.5b", "qwen2.5-7b"].map(str::to_owned).to_vec();
        insta::assert_snapshot!(BuiltIn::of(Some(names)));
    }
}
