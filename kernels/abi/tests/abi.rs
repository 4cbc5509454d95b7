//! What is committed is what the headers say, and a header that is wrong is refused by name.

use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn generate(headers: &Path) -> Result<String, String> {
    precast_abi::generate(headers, &folder().join("../../rustfmt.toml")).map_err(|error| format!("{error:#}"))
}

#[test]
fn committed_blocks_are_what_bindgen_makes_of_the_headers() {
    let committed = std::fs::read_to_string(folder().join("../src/abi.rs")).unwrap();
    assert!(committed == generate(&folder()).unwrap(), "kernels/abi and kernels/src/abi.rs differ: cargo xtask abi");
}

#[test]
fn padding_is_refused_by_the_name_of_its_struct_and_is_no_obstacle_once_it_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("types.h", &std::fs::read_to_string(folder().join("types.h")).unwrap());
    let header = |tail: &str| {
        format!(
            "#include \"types.h\"\ntypedef struct softcap_params {{ address x; uint32_t n;{tail} }} softcap_params;\n"
        )
    };
    write("softcap.h", &header(""));
    let refused = generate(dir.path()).unwrap_err();
    assert!(refused.contains("implicit padding in softcap_params"), "{refused}");
    write("softcap.h", &header(" uint32_t reserved;"));
    let generated = generate(dir.path()).unwrap();
    assert!(generated.contains("pub struct softcap_params") && !generated.contains("padding"));
    write("softcap.h", "typedef struct softcap_params { address x");
    assert!(generate(dir.path()).unwrap_err().contains("do not parse"));
}
