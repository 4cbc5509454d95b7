//! Cost of a teacher that is not exact: the distance of its predictions from the exact one's, in nats.

mod file;
mod measured;

use std::path::PathBuf;

pub use file::{Certificate, Subject};
pub use measured::{Measured, Tally};

use precast_system::shell::quoted;

/// A teacher that is not exact and not known to be good enough.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// Nobody has measured it, and this run cannot.
    #[error(
        "--teacher-format int8: this run has no room to measure on its first batch what that costs. Measure it before, and give \
         --teacher-certificate FILE:\n  precast eval --model {} --format int8 --against bf16 --data DATA --out FILE",
        quoted(&teacher.display().to_string())
    )]
    Missing { teacher: PathBuf },
    /// A file that is no certificate.
    #[error("--teacher-certificate {}{reason}\n{}", path.display(), remedy(teacher, path))]
    Unusable { path: PathBuf, reason: String, teacher: PathBuf },
    /// The arithmetic broke down.
    #[error(
        "the int8 teacher's predictions are no numbers on {tokens} tokens: its activations overflow, or the exact model's do. \
         Use --teacher-format bf16 or stored"
    )]
    NotFinite { tokens: u64 },
    /// Its mean KL is above `--max-teacher-kl`.
    #[error(
        "{measured}: more than --max-teacher-kl {most} allows. Use --teacher-format bf16 or stored, which are exact; or allow it \
         with --max-teacher-kl"
    )]
    TooFar { measured: Measured, most: f64 },
}

fn remedy(teacher: &std::path::Path, path: &std::path::Path) -> String {
    let [teacher, path] = [teacher, path].map(|path| quoted(&path.display().to_string()));
    format!("Measure it again:\n  precast eval --model {teacher} --format int8 --against bf16 --data DATA --out {path}")
}
