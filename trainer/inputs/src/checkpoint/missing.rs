//! What stands where a model was expected, and what to do about it.

use std::ffi::OsStr;
use std::path::{Component, Path};

use precast_core::shell::quoted;

use super::CheckpointError;
use crate::base::checkpoint_name::PREFIX;
use crate::base::impostors::{Disguise, read_text};

/// Weights in formats that are not read.
const OTHER_WEIGHTS: [&str; 4] = ["bin", "pt", "pth", "ckpt"];

/// Settings of a PEFT adapter, in its directory.
const ADAPTER_CONFIG: &str = "adapter_config.json";

/// Models that are read.
const EXPECTED: &str = "expected a Hugging Face directory (config.json, model.safetensors), a .gguf or an .apr file";

/// Why there is no model at a path.
pub(super) fn model(path: &Path) -> CheckpointError {
    let not_a_model = |reason: &str| not_a_model(path, reason);
    if path.is_dir() {
        let other = of_checkpoint(path).or_else(|| of_run(path));
        let usual = || "give the directory that holds config.json and model.safetensors".to_owned();
        return not_a_model(&format!("there is no config.json in it; {}", other.unwrap_or_else(usual)));
    }
    if !path.exists() {
        return nothing(path, EXPECTED);
    }
    if let Some(what) = Disguise::at(path) {
        return CheckpointError::disguised(path, what);
    }
    match extension(path) {
        Some("safetensors") => not_a_model(
            "a .safetensors file holds weights and does not say of what model; give the directory that holds it and \
            its config.json",
        ),
        Some("json") => not_a_model("it is one file of a model; give the directory that holds it"),
        Some("gguf") => not_a_model("it does not start as a GGUF file does: it is damaged, fetch it again"),
        Some("apr") => not_a_model(
            "it does not start as an APR file of version 2 does: convert it with a current tool, or fetch it again",
        ),
        Some(other) if OTHER_WEIGHTS.contains(&other) => {
            not_a_model("PyTorch files are not read; convert it to safetensors")
        }
        _ => not_a_model(EXPECTED),
    }
}

/// Why there is no model at a path, where its shape is enough.
pub(super) fn shape(path: &Path) -> CheckpointError {
    nothing(path, &format!("{EXPECTED}; for `precast plan` and `precast bench` a bare config.json is enough"))
}

fn nothing(path: &Path, expected: &str) -> CheckpointError {
    let id = hugging_face_id(path).map(|id| download(&id)).unwrap_or_default();
    CheckpointError::Wrong(format!("no model at {}: {expected}{id}", path.display()))
}

/// Why a directory with a `config.json` has no weights that are read.
pub(super) fn weights(directory: &Path) -> CheckpointError {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let other = files.filter(|path| extension(path).is_some_and(|end| OTHER_WEIGHTS.contains(&end))).min();
    let adapter = of_adapter(directory).map(|meant| format!("; {meant}"));
    let found = match other {
        _ if adapter.is_some() => adapter.unwrap_or_default(),
        Some(file) => format!(
            "; it has {}, and PyTorch files are not read: convert them to safetensors",
            file.file_name().unwrap_or_default().display()
        ),
        None => ": fetch its weights too, or use `precast plan` and `precast init`, which need none".to_owned(),
    };
    let reason = format!("there is no model.safetensors and no model.safetensors.index.json in it{found}");
    not_a_model(directory, &reason)
}

/// Refuses a model with an adapter in its own directory, which transformers adds to it.
pub(super) fn refuse_adapter_in(model: &Path) -> Result<(), CheckpointError> {
    if !model.join(ADAPTER_CONFIG).exists() {
        return Ok(());
    }
    let path = model.display().to_string();
    let (model, adapter) = (quoted(&path), quoted(&format!("{}-adapter", path.trim_end_matches('/'))));
    Err(CheckpointError::Wrong(format!(
        "{path} holds an adapter beside the model ({ADAPTER_CONFIG}), which transformers adds to it and nothing here \
        reads. Move it:\n  \
         mkdir {adapter} && mv {model}/adapter_* {adapter}\n\
         and give --model {model} --adapter {adapter}, or merge the two: precast merge --model {model} --adapter \
         {adapter} --out MERGED"
    )))
}

/// Says which command writes the model of a checkpoint.
fn of_checkpoint(directory: &Path) -> Option<String> {
    let step: u64 = directory.file_name()?.to_str()?.strip_prefix(PREFIX)?.parse().ok()?;
    directory.join("state.json").exists().then(|| {
        format!(
            "a checkpoint is the state of a run: the run's own command with --resume --steps {step} writes the \
            model, if no later \
             checkpoint is there"
        )
    })
}

/// Names what of a run's directory is a model, or an adapter with its base.
fn of_run(directory: &Path) -> Option<String> {
    let [student, adapter] = ["student", "adapter"].map(|name| directory.join(name));
    if student.join("config.json").exists() {
        return Some(format!("did you mean {}?", student.display()));
    }
    of_adapter(directory).or_else(|| of_adapter(&adapter))
}

/// Names an adapter with its base.
fn of_adapter(adapter: &Path) -> Option<String> {
    let config: serde_json::Value = serde_json::from_str(&read_text(&adapter.join(ADAPTER_CONFIG)).ok()?).ok()?;
    let base = config.get("base_model_name_or_path").and_then(|base| base.as_str()).unwrap_or("BASE");
    let [base, adapter] = [base, &adapter.display().to_string()].map(quoted);
    Some(format!("did you mean the adapter, --model {base} --adapter {adapter}?"))
}

fn not_a_model(path: &Path, reason: &str) -> CheckpointError {
    CheckpointError::Wrong(format!("{} is not a model: {reason}", path.display()))
}

/// Says how to get a model whose Hugging Face id a path may be meant as.
fn download(id: &str) -> String {
    format!(
        ".\nIf {id} is a name at Hugging Face, it is not in the cache, and nothing is downloaded here: hf download {id}"
    )
}

fn extension(path: &Path) -> Option<&str> {
    path.extension().and_then(OsStr::to_str)
}

/// The Hugging Face id (`organization/name`) that a path to nothing may be meant as.
fn hugging_face_id(path: &Path) -> Option<String> {
    let mut parts = path.components().map(|part| match part {
        Component::Normal(part) => part.to_str().filter(|part| is_name(part)),
        _ => None,
    });
    let (organization, name) = (parts.next()??, parts.next()??);
    // A directory of that name is where somebody keeps models.
    (parts.next().is_none() && !Path::new(organization).exists()).then(|| format!("{organization}/{name}"))
}

fn is_name(part: &str) -> bool {
    part.starts_with(|first: char| first.is_ascii_alphanumeric())
        && part.chars().all(|char| char.is_ascii_alphanumeric() || "-_.".contains(char))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_told_from_a_path() {
        let id = |path: &str| hugging_face_id(Path::new(path));
        assert_eq!(id("Qwen/Qwen2.5-0.5B").as_deref(), Some("Qwen/Qwen2.5-0.5B"));
        for path in ["/Qwen/Qwen2.5-0.5B", "./Qwen/model", "../Qwen/model", "model", "a/b/c", "src/no-such", "a/b c"] {
            assert_eq!(id(path), None, "{path}");
        }
    }

    #[test]
    fn what_stands_in_the_place_of_a_model_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            model(&path).to_string()
        };
        assert!(file("model.safetensors", b"").contains("give the directory that holds it and its config.json"));
        assert!(file("model.apr", b"APR1").contains("does not start as an APR file of version 2"));
        assert!(file("pytorch_model.bin", b"PK").contains("PyTorch files are not read"));
        assert!(file("model.gguf", b"GGU").contains("does not start as a GGUF file"));
        assert!(file("lfs.gguf", b"version https://git-lfs.github.com/spec/v1\n").contains("git-lfs pointer"));
        assert!(model(dir.path()).to_string().contains("there is no config.json in it"));
        assert!(weights(dir.path()).to_string().contains("it has pytorch_model.bin"));
        assert!(model(&dir.path().join("none")).to_string().starts_with("no model at "));
    }
}
