//! `cargo xtask tuned FILE...`: adds times that owners of GPUs measured to the committed table.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use precast_kernels::{Arch, KERNELS, tuned::Table};
use precast_system::files;

const COMMITTED: &str = "kernels/src/tuned.txt";

/// Adds the launches of each file; those that are there already are replaced.
pub fn merge(paths: &[PathBuf]) -> Result<()> {
    let text = fs::read_to_string(COMMITTED).context(COMMITTED)?;
    let comments: String = text.lines().filter(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    let mut table = read(&text).context(COMMITTED)?;
    for path in paths {
        let name = || path.display().to_string();
        let launches = merged(&mut table, &fs::read_to_string(path).with_context(name)?).with_context(name)?;
        println!("{}: {launches} launches", path.display());
    }
    files::write_whole(Path::new(COMMITTED), format!("{comments}{table}").as_bytes())?;
    Ok(())
}

fn read(text: &str) -> Result<Table> {
    Ok(KERNELS.table(text)?)
}

/// Adds a file's launches, unless a GPU that stood in for another row's measured them. Returns how many there were.
fn merged(table: &mut Table, text: &str) -> Result<usize> {
    let new = read(text)?;
    let rows = || Arch::GPUS.into_iter().chain([Arch::Sm90Portable]);
    for arch in rows() {
        for other in rows().filter(|other| arch.compute_capability() != other.compute_capability()) {
            let chip = other.chip().expect("a GPU's row has a chip");
            ensure!(!new.covers(chip, arch), "{chip} stood in for {arch}: its times say nothing of that row's GPUs");
        }
    }
    Ok(table.merge(new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_stand_in_are_not_added() {
        let row = "NVIDIA_L4 sm_89 gemm.wgrad{x=bf16} 8x8x8 threads=256,tile=64 1.50\n";
        let mut table = Table::default();
        assert_eq!(merged(&mut table, row).unwrap(), 1);
        let refused = merged(&mut table, &row.replace("NVIDIA_L4", "NVIDIA_H200")).unwrap_err().to_string();
        assert!(refused.starts_with("NVIDIA H200 stood in for sm_89"), "{refused}");
        assert_eq!(table.to_string(), row);
    }
}
