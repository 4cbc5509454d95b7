//! Stand-ins for the driver and its libraries: tests/libcuda.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::root;

/// Puts a source of tests/libcuda into a directory as a library. Each is compiled once in a process.
fn build_library(source: &'static str, library: PathBuf) -> PathBuf {
    static BUILT: Mutex<BTreeMap<&str, Vec<u8>>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let code = built.entry(source).or_insert_with(|| {
        precast_libcuda::compile(&root().join("tests/libcuda").join(source), &library).expect("a C compiler");
        std::fs::read(&library).expect("the compiler writes a library")
    });
    std::fs::write(&library, code).expect("a scratch directory is writable");
    library
}

/// The stand-in for libcuda, under both of its names.
pub fn build_libcuda(dir: &Path) -> PathBuf {
    let library = build_library("fake.c", dir.join("libcuda.so"));
    std::os::unix::fs::symlink(&library, dir.join("libcuda.so.1")).expect("a scratch directory is writable");
    library
}

/// The stand-in for an NVRTC of CUDA 12.9.
pub fn build_old_nvrtc(dir: &Path) -> PathBuf {
    build_library("nvrtc.c", dir.join("libnvrtc.so.12"))
}

/// The stand-in for cuBLASLt, as it is installed.
pub fn build_cublas(dir: &Path) -> PathBuf {
    build_library("cublaslt.c", dir.join("libcublasLt.so.13"))
}

/// The stand-in for NCCL, as it is installed.
pub fn build_nccl(dir: &Path) -> PathBuf {
    build_library("nccl.c", dir.join("libnccl.so.2"))
}

/// The stand-in for NVML, as the driver brings it.
pub fn build_nvml(dir: &Path) -> PathBuf {
    build_library("nvml.c", dir.join("libnvidia-ml.so.1"))
}

/// What sees the loads of a process in front of any driver: for `LD_PRELOAD`.
pub fn build_shim(dir: &Path) -> PathBuf {
    build_library("shim.c", dir.join("shim.so"))
}

/// Where libraries are looked for besides the system's places.
pub fn library_path() -> String {
    std::env::var("LD_LIBRARY_PATH").unwrap_or_default()
}
