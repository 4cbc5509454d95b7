//! Finds the models to build kernels for: built-in ones, and any that the user names.

use std::path::{Path, PathBuf};

use precast_core::shell::quoted;
use precast_plan::single_file::{START_BYTES, single_file};
use precast_plan::{ConfigError, ModelConfig};
use precast_system::input::{self, ReadError};

/// Name of the lock that built-in models share with kernels that none of them launches; no other model has it.
pub const SHARED_LOCK: &str = "built-in";

/// Built-in configurations, by name.
const BUILT_IN: [(&str, &str); 33] = [
    ("gemma-3-12b", include_str!("../gemma-3-12b.json")),
    ("gemma-3-1b", include_str!("../gemma-3-1b.json")),
    ("gemma-3-270m", include_str!("../gemma-3-270m.json")),
    ("gemma-3-4b", include_str!("../gemma-3-4b.json")),
    ("granite-4.0-1b", include_str!("../granite-4.0-1b.json")),
    ("granite-4.0-350m", include_str!("../granite-4.0-350m.json")),
    ("granite-4.1-3b", include_str!("../granite-4.1-3b.json")),
    ("granite-4.1-8b", include_str!("../granite-4.1-8b.json")),
    ("llama-3.1-8b", include_str!("../llama-3.1-8b.json")),
    ("llama-3.2-1b", include_str!("../llama-3.2-1b.json")),
    ("llama-3.2-3b", include_str!("../llama-3.2-3b.json")),
    ("ministral-3-3b", include_str!("../ministral-3-3b.json")),
    ("ministral-3-8b", include_str!("../ministral-3-8b.json")),
    ("olmo-2-1b", include_str!("../olmo-2-1b.json")),
    ("olmo-2-7b", include_str!("../olmo-2-7b.json")),
    ("qwen2.5-0.5b", include_str!("../qwen2.5-0.5b.json")),
    ("qwen2.5-1.5b", include_str!("../qwen2.5-1.5b.json")),
    ("qwen2.5-7b", include_str!("../qwen2.5-7b.json")),
    ("qwen3-0.6b", include_str!("../qwen3-0.6b.json")),
    ("qwen3-1.7b", include_str!("../qwen3-1.7b.json")),
    ("qwen3-30b-a3b", include_str!("../qwen3-30b-a3b.json")),
    ("qwen3-4b", include_str!("../qwen3-4b.json")),
    ("qwen3-8b", include_str!("../qwen3-8b.json")),
    ("qwen3.5-0.8b", include_str!("../qwen3.5-0.8b.json")),
    ("qwen3.5-27b", include_str!("../qwen3.5-27b.json")),
    ("qwen3.5-2b", include_str!("../qwen3.5-2b.json")),
    ("qwen3.5-35b-a3b", include_str!("../qwen3.5-35b-a3b.json")),
    ("qwen3.5-4b", include_str!("../qwen3.5-4b.json")),
    ("qwen3.5-9b", include_str!("../qwen3.5-9b.json")),
    ("smollm2-1.7b", include_str!("../smollm2-1.7b.json")),
    ("smollm2-135m", include_str!("../smollm2-135m.json")),
    ("smollm2-360m", include_str!("../smollm2-360m.json")),
    ("smollm3-3b", include_str!("../smollm3-3b.json")),
];

/// A model to build kernels for.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Name, for messages and the manifest.
    pub name: String,
    pub config: ModelConfig,
}

/// A model that cannot be found or read.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// Neither a built-in name nor a path.
    #[error(
        "no model `{name}`: looked for a built-in model ({}) and for a directory or config.json of that path",
        BUILT_IN.map(|(name, _)| name).join(", ")
    )]
    Unknown {
        /// Argument of `--model`.
        name: String,
    },
    /// A model of one's own has the name of the lock that built-in models share.
    #[error("{} would be called {SHARED_LOCK}, as the lock of the built-in models is", path.display())]
    Reserved { path: PathBuf },
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file holds weights; kernels follow from a configuration.
    #[error(
        "{} is {what} file, and kernels are built from a configuration: write it by\n  precast config {} > \
        {config}\nand give \
         --model {config}",
        path.display(),
        quoted(&path.display().to_string())
    )]
    SingleFile {
        path: PathBuf,
        /// Kind of the file, with its article.
        what: &'static str,
        /// Suggested path of the configuration, quoted for a shell.
        config: String,
    },
    /// The file is no supported configuration.
    #[error("{}: {error}", path.display())]
    Config { path: PathBuf, error: ConfigError },
}

impl Model {
    /// Returns every built-in model.
    pub fn built_in() -> Vec<Self> {
        BUILT_IN.into_iter().map(|(name, json)| Self::parse(name, json)).collect()
    }

    fn parse(name: &str, json: &str) -> Self {
        let config = ModelConfig::from_json(json).expect("built-in configurations are supported");
        Self { name: name.to_owned(), config }
    }

    /// Finds a model: a built-in name, a directory with a `config.json`, or a `config.json`.
    ///
    /// # Errors
    /// [`ModelError`] if no such file exists or its configuration is not supported.
    pub fn find(text: &str) -> Result<Self, ModelError> {
        if let Some((name, json)) = BUILT_IN.into_iter().find(|(name, _)| *name == text) {
            return Ok(Self::parse(name, json));
        }
        let given = Path::new(text);
        let path = if given.is_dir() { given.join("config.json") } else { given.to_owned() };
        if !path.exists() {
            return Err(ModelError::Unknown { name: text.to_owned() });
        }
        if let Some(what) = single_file(&input::start(&path, START_BYTES).map_err(ReadError::of(&path))?) {
            let config = quoted(&format!("{}.config.json", path.file_stem().unwrap_or_default().display()));
            return Err(ModelError::SingleFile { path, what, config });
        }
        let json = input::read_text(&path, input::SETTINGS_BYTES).map_err(ReadError::of(&path))?;
        let config = ModelConfig::from_json(&json).map_err(|error| ModelError::Config { path: path.clone(), error })?;
        let name = name_of(&path);
        if name == SHARED_LOCK {
            return Err(ModelError::Reserved { path });
        }
        Ok(Self { name, config })
    }
}

/// Names a model after the directory of its `config.json`, or the stem of another file name. The rest of the path is
/// left out, so a bundle does not depend on where it was built.
fn name_of(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    if stem != "config" {
        return stem;
    }
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let parent = absolute.parent().and_then(Path::file_name);
    parent.map_or(stem, |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_models_have_the_parameters_they_are_named_after() {
        let count = |name: &str| precast_plan::Parameters::new(&Model::find(name).unwrap().config).count();
        let counts = [
            ("gemma-3-12b", 11_766_034_176),
            ("gemma-3-1b", 999_885_952),
            ("gemma-3-270m", 268_098_176),
            ("gemma-3-4b", 3_880_263_168),
            ("granite-4.0-1b", 1_631_750_144),
            ("granite-4.0-350m", 352_379_904),
            ("granite-4.1-3b", 3_402_836_480),
            ("granite-4.1-8b", 8_380_551_168),
            ("llama-3.1-8b", 8_030_261_248),
            ("llama-3.2-1b", 1_235_814_400),
            ("llama-3.2-3b", 3_212_749_824),
            ("ministral-3-3b", 3_429_006_336),
            ("ministral-3-8b", 8_489_553_920),
            ("olmo-2-1b", 1_484_916_736),
            ("olmo-2-7b", 7_298_617_344),
            ("qwen2.5-0.5b", 494_032_768),
            ("qwen2.5-1.5b", 1_543_714_304),
            ("qwen2.5-7b", 7_615_616_512),
            ("qwen3-0.6b", 596_049_920),
            ("qwen3-1.7b", 1_720_574_976),
            ("qwen3-30b-a3b", 30_532_122_624),
            ("qwen3-4b", 4_022_468_096),
            ("qwen3-8b", 8_190_735_360),
            ("qwen3.5-0.8b", 752_393_024),
            ("qwen3.5-27b", 26_895_998_464),
            ("qwen3.5-2b", 1_881_825_088),
            ("qwen3.5-35b-a3b", 34_660_610_688),
            ("qwen3.5-4b", 4_205_751_296),
            ("qwen3.5-9b", 8_953_803_264),
            ("smollm2-1.7b", 1_711_376_384),
            ("smollm2-135m", 134_515_008),
            ("smollm2-360m", 361_821_120),
            ("smollm3-3b", 3_075_098_624),
        ];
        assert_eq!(counts.map(|(name, _)| name), BUILT_IN.map(|(name, _)| name));
        for (name, expected) in counts {
            assert_eq!(count(name), expected, "{name}");
        }
    }

    #[test]
    fn a_models_name_is_its_directory_not_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let model = dir.path().join("tiny");
        std::fs::create_dir(&model).unwrap();
        std::fs::write(model.join("config.json"), BUILT_IN[0].1).unwrap();
        assert_eq!(Model::find(model.to_str().unwrap()).unwrap().name, "tiny");
        assert!(matches!(Model::find("no-such-model"), Err(ModelError::Unknown { .. })));
    }
}
