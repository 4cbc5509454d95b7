//! Arguments that several commands take.

use std::path::PathBuf;

use clap::Args;
use precast_aot::home;
use precast_fatbins::{SignatureError, TrustedKey};
use precast_kernels::Arch;
use precast_models::kernels;
use precast_models::{Model, ModelError, Selection};

use super::failure::Failure;

#[derive(Args)]
pub(super) struct Models {
    /// A built-in model, a model directory or a config.json; repeatable [default: every built-in model]
    #[arg(long = "model", value_name = "NAME|DIR|FILE")]
    pub(super) models: Vec<String>,
}

impl Models {
    pub(super) fn find(&self) -> Result<Vec<Model>, ModelError> {
        if self.models.is_empty() {
            return Ok(Model::built_in());
        }
        self.models.iter().map(|model| Model::find(model)).collect()
    }

    /// Returns the configurations that are read.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let file = |path: PathBuf| if path.is_dir() { path.join("config.json") } else { path };
        self.models.iter().map(PathBuf::from).map(file).collect()
    }
}

#[derive(Args)]
pub(super) struct Archs {
    /// Architectures, separated by commas
    #[arg(long, value_delimiter = ',', default_values = Arch::GPUS.map(Arch::argument), value_name = "ARCH")]
    pub(super) arch: Vec<Arch>,
}

/// Kernels beyond those of the models.
#[derive(Args)]
pub(super) struct Kernels {
    /// A kernel independent of models: a key, or an operation for its examples; repeatable, and without --model nothing
    /// else [default: kernels that no built-in model launches]
    #[arg(long = "key", value_name = "KEY|OPERATION")]
    pub(super) keys: Vec<String>,
}

/// Models, kernels and architectures to compile.
#[derive(Args)]
pub(super) struct Targets {
    #[command(flatten)]
    pub(super) models: Models,
    #[command(flatten)]
    pub(super) kernels: Kernels,
    #[command(flatten)]
    pub(super) archs: Archs,
}

impl Targets {
    pub(super) fn selection(&self) -> Result<Selection, Failure> {
        let keys = self.kernels.keys.iter().map(|text| kernels::find(text)).collect::<Result<Vec<_>, _>>()?.concat();
        let archs = self.archs.arch.clone();
        Ok(match (&*self.models.models, &*keys) {
            ([], []) => Selection { archs, ..Selection::everything() },
            ([], _) => Selection { models: Vec::new(), keys, archs },
            _ => Selection { models: self.models.find()?, keys, archs },
        })
    }
}

/// Directory of the locks.
#[derive(Args)]
pub(super) struct Locks {
    /// Directory of the lock files [default: aot/models/locks of the checkout]
    #[arg(long, value_name = "DIR")]
    pub(super) locks: Option<PathBuf>,
}

impl Locks {
    pub(super) fn directory(&self) -> PathBuf {
        self.locks.clone().unwrap_or_else(|| home::of_checkout("aot/models/locks"))
    }
}

/// Keys whose holders' bundles may be used.
#[derive(Args)]
pub(super) struct Trusted {
    /// Refuse files without a signature by this minisign key: base64 or a .pub file; repeatable
    #[arg(long = "trusted-key", value_name = "KEY")]
    pub(super) keys: Vec<String>,
}

impl Trusted {
    pub(super) fn keys(&self) -> Result<Vec<TrustedKey>, SignatureError> {
        self.keys.iter().map(|key| TrustedKey::find(key)).collect()
    }
}
