//! Commands that give a run the kernels that it lacks.

use std::path::Path;

use precast_core::shell::quoted;
use precast_fatbins::{BundleError, Foreign, Stale};
use precast_kernels::{Arch, rebuild};
use precast_plan::single_file;
use precast_runtime::{Coverage, LoadError};
use precast_system::input;

/// Returns the command that builds the kernels of models. For a model in a single file it first writes the
/// configuration, from which kernels follow.
pub fn build_command(models: &[String], archs: &[Arch]) -> String {
    let (mut first, mut given) = (String::new(), Vec::new());
    for (index, model) in models.iter().enumerate() {
        if !is_single_file(model) {
            given.push(model.clone());
            continue;
        }
        let stem = |model: &str| Path::new(model).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = stem(model);
        // A number tells files of equal name apart.
        let number =
            if models[..index].iter().any(|other| stem(other) == name) { format!("-{index}") } else { String::new() };
        let config = format!("{name}{number}.config.json");
        first.push_str(&format!("precast config {} > {} && ", quoted(model), quoted(&config)));
        given.push(config);
    }
    first + &rebuild(&given, archs)
}

fn is_single_file(model: &str) -> bool {
    input::start(Path::new(model), single_file::START_BYTES)
        .is_ok_and(|start| single_file::single_file(&start).is_some())
}

/// Returns the commands that give a run over models kernels that its bundle lacks.
pub fn for_run(models: &[String], arch: Arch) -> String {
    format!("{}\nand run this command with --bundle run.bundle", build_command(models, &[arch]))
}

/// Returns the commands that give kernels for an architecture of which there are none: those of the built-in models, or
/// of these.
pub fn for_device(models: &[String], arch: Arch) -> String {
    let cargo = arch.feature().map(|feature| format!("cargo build --release --features {feature}"));
    match cargo {
        Some(cargo) if models.is_empty() => format!("Build the trainer with: {cargo}"),
        Some(cargo) => format!(
            "Build them with: {}; without --bundle, a trainer built with `{cargo}` has those of the built-in models",
            for_run(models, arch)
        ),
        None => format!("Build them with: {}", for_run(models, arch)),
    }
}

/// Names the commands of a run over models, for which a bundle may not have been built.
pub fn of_run(error: LoadError, models: &[String]) -> LoadError {
    let mut models = models.to_vec();
    models.dedup();
    match error {
        LoadError::Missing(lacking) => {
            let remedy = for_run(&models, lacking.arch);
            LoadError::Missing(Coverage { remedy, ..lacking })
        }
        LoadError::NoArch { device, arch, holds, .. } => {
            LoadError::NoArch { device, arch, holds, remedy: for_device(&models, arch) }
        }
        LoadError::Bundle(BundleError::Foreign(foreign)) if !models.is_empty() => {
            let remedy = build_command(&models, &foreign.archs);
            LoadError::Bundle(BundleError::Foreign(Foreign { remedy, ..foreign }))
        }
        LoadError::Bundle(BundleError::Stale(stale)) if !models.is_empty() => {
            let remedy = build_command(&models, &stale.archs);
            LoadError::Bundle(BundleError::Stale(Stale { remedy, ..stale }))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_of_a_single_file_are_built_from_its_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, magic: &[u8]| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, magic).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let command = |models: &[&str]| {
            let models: Vec<String> = models.iter().map(|model| (*model).to_owned()).collect();
            build_command(&models, &[Arch::Sm89]).replace(dir.path().to_str().unwrap(), "DIR")
        };
        assert_eq!(command(&["models/t"]), "precast-aot build --model models/t --arch sm_89 --out run.bundle");
        assert_eq!(
            command(&[&file("a/model.Q4_K_M.gguf", b"GGUF"), "models/s"]),
            "precast config DIR/a/model.Q4_K_M.gguf > model.Q4_K_M.config.json && precast-aot build --model \
             model.Q4_K_M.config.json --model models/s --arch sm_89 --out run.bundle"
        );
        assert_eq!(
            command(&[&file("a/model", b"GGUF"), &file("b/model.APR", b"APR\0")]),
            "precast config DIR/a/model > model.config.json && precast config DIR/b/model.APR > model-1.config.json && \
             precast-aot build --model model.config.json --model model-1.config.json --arch sm_89 --out run.bundle"
        );
        assert_eq!(
            command(&[&file("my models/new model.gguf", b"GGUF"), "its/a dir"]),
            "precast config 'DIR/my models/new model.gguf' > 'new model.config.json' && precast-aot build --model \
             'new model.config.json' --model 'its/a dir' --arch sm_89 --out run.bundle"
        );
    }
    #[test]
    fn kernels_of_a_model_that_is_not_built_in_are_built_from_it() {
        let models = ["models/mine".to_owned()];
        for arch in Arch::GPUS.into_iter().chain([Arch::Sm90Portable, Arch::Sim]) {
            let remedy = for_device(&models, arch);
            let command =
                format!("precast-aot build --model models/mine --arch {} --out run.bundle\n", arch.argument());
            assert!(remedy.contains(&command) && remedy.contains("--bundle run.bundle"), "{remedy}");
        }
        let built_in = for_device(&[], Arch::Sm90a);
        assert_eq!(built_in, "Build the trainer with: cargo build --release --features sm_90");
    }
}
