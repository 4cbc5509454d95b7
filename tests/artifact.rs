//! The trainer as it is shipped: what it needs at run time, what it holds, what it cannot do.

// Lints are of a build without kernels.
#![cfg(any(clippy, feature = "sm_121"))]

use crate::support::prelude::*;
use precast_kernels::KERNELS;

fn program() -> PathBuf {
    precast().get_program().into()
}

#[test]
fn it_needs_libc_and_libgcc_alone() {
    let listed = Command::new("ldd").arg(program()).succeeds();
    let libraries: Vec<&str> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let known = ["linux-vdso.so", "libgcc_s.so", "libc.so", "libm.so", "/lib/ld-linux", "/lib64/ld-linux"];
    for library in libraries {
        assert!(known.iter().any(|name| library.starts_with(name)), "{library} is needed too:\n{listed}");
    }
}

#[test]
fn it_starts_without_files_environment_or_network() {
    let dir = tempfile::tempdir().unwrap();
    let listed = Command::new(program()).arg("kernels").env_clear().current_dir(dir.path()).prints("sm_121");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    // A network namespace of its own needs rights that not every machine gives.
    let mut unshared = Command::new("unshare");
    unshared.with("-rn").arg(program()).arg("kernels").env_clear().current_dir(dir.path());
    let unshare = Command::new("unshare").with("-rn true").status().is_ok_and(|status| status.success());
    if !skipped(!unshare, "nothing here takes the network away from a process: no unshare, or no namespaces") {
        assert_eq!(unshared.succeeds(), listed);
    }
}

#[test]
fn nothing_it_depends_on_compiles_device_code_or_speaks_to_the_web() {
    let tree = Command::new(env!("CARGO"))
        .with("tree --edges normal --prefix none --package precast --features sm_89,sm_90,sm_121 --offline")
        .current_dir(root())
        .succeeds();
    let names: Vec<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains(&"cudarc"));
    for compiler in ["precast-aot", "bindgen", "cc", "nvptx", "cranelift-codegen", "inkwell"] {
        assert!(!names.contains(&compiler), "{compiler} is in the dependency tree");
    }
    // Ranks connect to each other by sockets of their own.
    for client in ["ureq", "reqwest", "hyper", "curl", "rustls", "native-tls", "openssl", "hf-hub"] {
        assert!(!names.contains(&client), "{client} is in the dependency tree");
    }
    let features = Command::new(env!("CARGO"))
        .with("tree --edges normal,features --prefix none --package precast --features sm_121 --offline")
        .current_dir(root())
        .succeeds();
    assert!(!features.contains("cudarc feature \"nvrtc\""));
    // Neither is there a name by which a compiler or linker of device code could be found, nor PTX.
    let contains = |text: &str| match Command::new("grep").args(["-qaF", text]).arg(program()).status().unwrap().code()
    {
        Some(0) => true,
        Some(1) => false,
        other => panic!("grep ended with {other:?}"),
    };
    assert!(contains("cuLibraryLoadData"));
    for name in ["nvrtc", "nvJitLink", "nvPTXCompiler", "cuLinkCreate", "cuLinkAddData", ".target sm_", "libnvvm"] {
        assert!(!contains(name), "the binary holds `{name}`");
    }
}

#[test]
fn it_gives_its_bundle_back_and_replaces_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("embedded.bundle");
    let write = || {
        let mut kernels = precast();
        kernels.with("kernels --write").arg(&out);
        kernels
    };
    write().with("--arch sm_121").fails(2, "leave --arch out");
    let printed = write().succeeds();
    let bytes = fs::read(&out).unwrap();
    let bundle = precast_fatbins::Bundle::read(&bytes, &KERNELS).unwrap();
    bundle.verify().unwrap();
    assert!(printed.contains(&bundle.digest().to_string()), "{printed}");
    write().fails(2, "is there already");
    assert_eq!(fs::read(&out).unwrap(), bytes);
}

#[test]
fn cuobjdump_lists_its_cubins() {
    let tool = root().join("target/precast/toolchain/nvidia-cuda-cuobjdump-13.4.92/cuobjdump");
    assert!(tool.exists(), "cargo run --release -p precast-models -- toolchain install --tools");
    let listed = Command::new(tool).arg("--list-elf").arg(program()).succeeds();
    let printed = precast().with("kernels --json").succeeds();
    let kernels: Value = serde_json::from_str(&printed).unwrap();
    let of_arch =
        |arch: &str| kernels["kernels"].as_array().unwrap().iter().filter(|kernel| kernel["arch"] == arch).count();
    let listed_of = |arch: &str| listed.lines().filter(|line| line.ends_with(&format!(".{arch}.cubin"))).count();
    assert!(of_arch("sm_121") > 100);
    for arch in ["sm_90a", "sm_121"] {
        assert_eq!(listed_of(arch), of_arch(arch), "{arch}");
    }
}
