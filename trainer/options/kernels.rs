//! Which kernels a run may use.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::base::record_text::path_or_none;

/// The kernels a run may use: a bundle file, and whose signature it must carry.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub struct Kernels {
    /// Kernels to use instead of the embedded ones
    #[arg(long, value_name = "FILE")]
    #[serde(serialize_with = "path_or_none")]
    pub bundle: Option<PathBuf>,
    /// Refuse a --bundle that this minisign key did not sign: base64 or a .pub file; repeatable [default: the keys in
    /// $PRECAST_TRUSTED_KEY, separated by blanks]
    #[arg(long, value_name = "KEY")]
    pub trusted_key: Vec<String>,
}
