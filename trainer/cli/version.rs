//! `precast --version --verbose`

use std::collections::BTreeSet;

use precast_fatbins::Bundle;
use precast_kernels::Arch;
use precast_system::{built, say};

use crate::device::bundle::{embedded, framed};
use crate::run::failure::Failure;

/// Lock files of which each kernel of the build is: `NAME DIGEST` of each, or none where it embeds other kernels.
const LOCKS: Option<&str> = option_env!("PRECAST_LOCKS");

/// Prints what this trainer is made of, one fact a line.
pub fn run() -> Result<(), Failure> {
    let rows = match framed() {
        frames if frames.is_empty() => vec![None],
        frames => frames.into_iter().map(Some).collect(),
    };
    let bundles = rows.into_iter().filter_map(|row| embedded(row).transpose()).collect::<Result<Vec<_>, _>>()?;
    let mut lines = built::lines("precast", env!("CARGO_PKG_VERSION"));
    let compilers: BTreeSet<&str> = bundles.iter().map(|bundle| &*bundle.manifest().compiler).collect();
    lines.extend(compilers.into_iter().map(|compiler| format!("kernels: by {compiler}")));
    lines.extend(bundles.iter().map(|bundle| format!("bundle of {}: {}", rows_of(bundle), bundle.digest())));
    match LOCKS {
        _ if bundles.is_empty() => lines.push("bundle: none, for the simulated GPU alone".to_owned()),
        Some(locks) => lines.extend(locks.split(", ").filter_map(|lock| {
            let (name, digest) = lock.split_once(' ')?;
            Some(format!("lock of {name}: {digest}"))
        })),
        None => lines.push("locks: none, these kernels differ from them".to_owned()),
    }
    lines.iter().for_each(|line| say!("{line}"));
    Ok(())
}

/// Names the GPUs that a bundle has code for.
fn rows_of(bundle: &Bundle<'_>) -> String {
    let rows = bundle.archs().into_iter().filter(|arch| *arch != Arch::Sim);
    rows.map(Arch::argument).collect::<Vec<_>>().join(", ")
}
