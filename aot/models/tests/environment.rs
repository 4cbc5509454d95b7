//! A program that pip or uv installed takes its compiler from its own Python environment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use precast_aot::home;
use precast_aot::toolchain::pins::NVRTC;

use crate::support::program::ends;

/// Puts a file into another place, without a copy where both are on one disk.
fn put(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::hard_link(from, to).or_else(|_| fs::copy(from, to).map(drop)).unwrap();
}

/// Asks for the compiler of an environment: exit code and what is printed.
fn which(environment: &Path) -> (Option<i32>, String) {
    let mut program = Command::new(environment.join("bin/precast-aot"));
    program.args(["toolchain", "which"]).current_dir(environment);
    program.env_remove("PRECAST_NVRTC").env_remove("CUDA_HOME").env("PRECAST_HOME", environment.join("home"));
    let (code, printed, message) = ends(&mut program);
    (code, printed + &message)
}

#[test]
fn the_compiler_is_found_in_the_programs_own_environment() {
    let environment = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let packages = environment.path().join("lib/python3.12/site-packages");
    let installed: Vec<PathBuf> = NVRTC.files.iter().map(|file| packages.join(file)).collect();
    put(env!("CARGO_BIN_EXE_precast-aot").as_ref(), &environment.path().join("bin/precast-aot"));
    fs::create_dir_all(&packages).unwrap();
    let (code, said) = which(environment.path());
    assert!(code == Some(1) && said.contains("pip install 'precast[compiler]' puts it there"), "{said}");

    for (file, installed) in NVRTC.files.iter().zip(&installed) {
        put(&NVRTC.installed(&home::directory(), file), installed);
    }
    let (code, said) = which(environment.path());
    assert!(code == Some(0) && said.starts_with("NVRTC 13.0 (V13.0.88) at "), "{said}");
    assert!(said.contains(&*installed[0].to_string_lossy()), "{said}");

    let remedy = "pip install --force-reinstall nvidia-cuda-nvrtc==13.0.88";
    let mut bytes = fs::read(&installed[1]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::remove_file(&installed[1]).unwrap();
    fs::write(&installed[1], bytes).unwrap();
    let (code, said) = which(environment.path());
    let named = format!("{} has SHA-256", installed[1].display());
    assert!(code == Some(1) && said.contains(&named) && said.contains(remedy), "{said}");

    let about = |version: &str| packages.join(format!("nvidia_cuda_nvrtc-{version}.dist-info"));
    fs::rename(about(NVRTC.version), about("13.0.48")).unwrap();
    let (code, said) = which(environment.path());
    let named = format!("{} belongs to nvidia-cuda-nvrtc 13.0.48", installed[0].display());
    assert!(code == Some(1) && said.contains(&named) && said.contains(remedy), "{said}");
}
