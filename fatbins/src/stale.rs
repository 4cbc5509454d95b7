//! Finds modules of a bundle that this program would make from other sources, or does not know.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;

use precast_core::Arch;
use precast_system::input;
use precast_system::shell::quoted;

use crate::manifest::Manifest;

/// Modules listed in a message: a whole bundle of another version has hundreds.
const LISTED: usize = 5;

/// Modules of a bundle whose sources are not this program's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Stale {
    /// Every such module, in the manifest's order.
    pub modules: Vec<StaleModule>,
    /// Number of modules in the bundle.
    pub total: usize,
    /// Models to rebuild, in the remedy: those of the bundle, unless the caller knows better.
    pub models: Vec<String>,
    /// Architectures to build for, in the remedy.
    pub archs: Vec<Arch>,
}

/// A module that must not be used, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StaleModule {
    /// Its sources, headers, options or macros are not this program's.
    Source(String),
    /// Its key or variant is unknown to this program.
    Unknown(String),
}

impl Stale {
    /// Reports these modules of a manifest.
    pub(crate) fn new(manifest: &Manifest, modules: Vec<StaleModule>) -> Self {
        let mut archs: Vec<Arch> = manifest.modules.iter().filter_map(|module| Arch::of_name(&module.arch)).collect();
        archs.sort_unstable();
        archs.dedup();
        archs.retain(|arch| *arch != Arch::Sim);
        Self { modules, total: manifest.modules.len(), models: manifest.models.clone(), archs }
    }
}

/// Returns the command that builds kernels. For a model in a single file it first writes the configuration, from which
/// kernels follow.
pub fn build_command(models: &[String], archs: &[Arch]) -> String {
    let (mut first, mut command) = (String::new(), "precast-aot build".to_owned());
    for (index, model) in models.iter().enumerate() {
        if !matches!(single_file(Path::new(model)), Ok(Some(_))) {
            command.push_str(&format!(" --model {}", quoted(model)));
            continue;
        }
        let stem = |model: &str| Path::new(model).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = stem(model);
        // A number tells files of equal name apart.
        let number =
            if models[..index].iter().any(|other| stem(other) == name) { format!("-{index}") } else { String::new() };
        let config = quoted(&format!("{name}{number}.config.json"));
        first.push_str(&format!("precast config {} > {config} && ", quoted(model)));
        command.push_str(&format!(" --model {config}"));
    }
    if !archs.is_empty() {
        let archs: Vec<&str> = archs.iter().map(|arch| arch.argument()).collect();
        command.push_str(&format!(" --arch {}", archs.join(",")));
    }
    first + &command + " --out run.bundle"
}

/// Returns the kind of a weights file, with its article, from its first bytes; none for other files.
///
/// # Errors
/// Those of [`input::open`].
pub fn single_file(path: &Path) -> io::Result<Option<&'static str>> {
    let mut start = Vec::new();
    input::open(path)?.take(4).read_to_end(&mut start)?;
    Ok(match &start[..] {
        b"GGUF" => Some("a GGUF"),
        b"APR\0" => Some("an APR"),
        _ => None,
    })
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { modules, total, models, archs } = self;
        writeln!(f, "{} of {total} modules were not made from this program's sources:", modules.len())?;
        modules.iter().take(LISTED).try_for_each(|module| writeln!(f, "  {module}"))?;
        if modules.len() > LISTED {
            writeln!(f, "  and {} more", modules.len() - LISTED)?;
        }
        write!(f, "Build them with: {}", build_command(models, archs))
    }
}

impl fmt::Display for StaleModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(module) => write!(f, "STALE   {module}"),
            Self::Unknown(module) => write!(f, "UNKNOWN {module}"),
        }
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
}
