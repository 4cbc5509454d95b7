//! Success means success: what has not done its work fails, and leaves nothing that looks done.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use precast::checkpoint::{Checkpoint, CheckpointError, Student, write_model};
use precast_kernels::Dtype;
use precast_plan::{Parameter, Parameters};
use safetensors::SafeTensors;

use crate::support::{bundle, device, distill, fail, precast, random_model, tiny_config, token_file};

/// A copy of a model with one f32 element of a tensor replaced.
fn planted(dir: &Path, model: &Path, name: &str, tensor: &str, element: usize, value: f32) -> PathBuf {
    let planted = dir.join(name);
    fs::create_dir(&planted).unwrap();
    fs::copy(model.join("config.json"), planted.join("config.json")).unwrap();
    let mut bytes = fs::read(model.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let data = tensors.tensor(tensor).unwrap().data();
    let offset = data.as_ptr().addr() - bytes.as_ptr().addr() + 4 * element;
    bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
    fs::write(planted.join("model.safetensors"), bytes).unwrap();
    planted
}

/// A command with a model and the device under test.
fn command(name: &str, arguments: &[(&str, &Path)]) -> Command {
    let mut command = precast();
    command.args([name, "--device", &device(), "--batch-size", "2", "--seq-len", "16"]);
    for (flag, path) in arguments {
        command.arg(flag).arg(path);
    }
    if let Some(bundle) = bundle() {
        command.arg("--bundle").arg(bundle);
    }
    command
}

#[test]
fn weights_that_are_not_finite_are_found_by_everything_that_loads_them() {
    let dir = tempfile::tempdir().unwrap();
    let model = random_model(dir.path(), "model", 1, &tiny_config(&[]));
    let data = token_file(dir.path(), "data.bin", 17 * 4, 96);
    let name = "model.layers.1.mlp.down_proj.weight";
    let bad = planted(dir.path(), &model, "bad", name, 77, f32::NAN);
    let infinite = planted(dir.path(), &model, "infinite", "model.norm.weight", 3, f32::NEG_INFINITY);
    // Finite as it is stored, infinite in the run's bf16.
    let large = planted(dir.path(), &model, "large", "model.norm.weight", 3, f32::MAX);
    let out = dir.path().join("out");

    let short = |teacher: &Path, student: &Path, precision: &str| {
        let mut command = distill(teacher, student, &data, &out);
        command.args(["--steps", "2", "--batch-size", "2", "--seq-len", "16", "--precision", precision]);
        command
    };
    let bench = |teacher: &Path| command("bench", &[("--teacher", teacher), ("--student", &model)]);
    let mut init = precast();
    init.arg("init").arg("--from").arg(&bad).args(["--layers", "0,1", "--out"]).arg(&out);
    let commands = [
        ("teacher", short(&bad, &model, "fp32")),
        ("student", short(&model, &bad, "fp32")),
        ("in bf16", short(&model, &bad, "bf16")),
        ("eval", command("eval", &[("--model", &bad), ("--data", &data)])),
        ("bench", bench(&bad)),
        ("init", init),
    ];
    for (what, mut command) in commands {
        let message = fail(&mut command, 5);
        assert!(
            message.contains(&format!("{}: tensor {name} is NaN at element 77", bad.display())),
            "{what}: {message}"
        );
        assert!(!out.join("student").exists() && !out.join("config.json").exists(), "{what}");
    }
    let message = fail(&mut short(&infinite, &model, "fp32"), 5);
    assert!(message.contains("tensor model.norm.weight is -inf at element 3 (as f32)"), "{message}");
    let message = fail(&mut short(&large, &model, "bf16"), 5);
    assert!(message.contains("tensor model.norm.weight is inf at element 3 (as bf16)"), "{message}");
}

#[test]
fn no_model_is_written_from_weights_that_are_not_finite() {
    let dir = tempfile::tempdir().unwrap();
    let model = Checkpoint::open(&random_model(dir.path(), "model", 1, &tiny_config(&[]))).unwrap();
    let parameters = Parameters::new(model.config()).list;
    let student =
        Student { config: model.json(), parameters: &parameters, dtype: Dtype::F32, tokenizer_from: &[&model] };
    let out = dir.path().join("below/out");
    let last = &parameters[parameters.len() - 1];
    let read = |parameter: &Parameter| {
        let mut values = vec![1.0f32; parameter.span.elems as usize];
        if parameter.name == last.name {
            values[5] = f32::INFINITY;
        }
        Ok::<_, CheckpointError>(bytemuck::cast_slice(&values).to_vec())
    };
    let error = write_model(&out, &student, read).unwrap_err();
    assert!(matches!(&error, CheckpointError::WouldNotBeFinite { what, .. } if what.tensor == last.name), "{error}");
    assert!(error.to_string().contains("is inf at element 5"), "{error}");
    let left = fs::read_dir(out.parent().unwrap()).map_or(0, Iterator::count);
    assert_eq!(left, 0, "something was left behind");
}
