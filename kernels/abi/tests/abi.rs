//! The committed file is made of the headers, and a wrong header is refused by name.

use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn generate(folders: &[PathBuf]) -> Result<String, String> {
    precast_abi::generate(folders, &folder().join("../../rustfmt.toml")).map_err(|error| format!("{error:#}"))
}

#[test]
fn the_committed_file_is_made_of_the_headers() {
    let committed = std::fs::read_to_string(folder().join("../src/abi.rs")).unwrap();
    let folders = precast_abi::folders(&folder().join("..")).unwrap();
    assert!(committed == generate(&folders).unwrap(), "the headers and kernels/src/abi.rs differ: cargo xtask abi");
}

/// The Rust of a kernel with these lines above its block, this comment behind its operand, and this end.
fn softcap(above: &str, operand: &str, tail: &str) -> Result<String, String> {
    let dir = tempfile::tempdir().unwrap();
    let header = format!(
        "#include \"types.h\"\n{above}\ntypedef struct softcap_fwd_params {{\naddress x; ///< {operand}\nuint32_t n;{tail}\n\
         }} softcap_fwd_params;\n"
    );
    write(dir.path(), &header)
}

fn write(dir: &Path, header: &str) -> Result<String, String> {
    std::fs::write(dir.join("softcap.h"), header).unwrap();
    generate(&[dir.to_path_buf()])
}

const KERNEL: &str = "/// softcap.fwd { h: u32, x: Dtype }: Caps elements.";
const RESERVED: &str = " uint32_t reserved;";

#[test]
fn padding_is_refused_by_the_name_of_its_struct() {
    let refused = softcap(KERNEL, "[n, h] x, update", "").unwrap_err();
    assert!(refused.contains("implicit padding in softcap_fwd_params"), "{refused}");
    let generated = softcap(KERNEL, "[n, h] x, update", RESERVED).unwrap();
    assert!(generated.contains("pub struct softcap_fwd_params") && !generated.contains("padding"));
    let dir = tempfile::tempdir().unwrap();
    assert!(write(dir.path(), "typedef struct softcap_params { address x").unwrap_err().contains("do not parse"));
    std::fs::write(dir.path().join("step.h"), "").unwrap();
    let twice = generate(&[dir.path().to_path_buf(), folder()]).unwrap_err();
    assert!(twice.contains("two headers are called step.h"), "{twice}");
}

#[test]
fn a_kernel_is_its_key_its_operands_and_a_row_of_the_registry() {
    let generated = softcap(KERNEL, "[ceil(n / 2), h] x, update if x == bf16, uniform(-1.0, 1.0): capped", RESERVED);
    let generated = generated.unwrap();
    for part in [
        "pub struct SoftcapFwd = \"softcap.fwd\" { h: u32, x: Dtype }",
        "/// `[ceil(n / 2), h]` x, update if x == bf16, uniform(-1.0, 1.0): capped",
        "SoftcapFwdArgs of softcap_fwd_params {",
        "optional { x }",
        "scalars { n: u32 }",
        "(self.x == Dtype::Bf16)",
        "operand!(ReadWrite Self::Params, x: self.x, n.div_ceil(2) * h)",
        ".with(Content::Uniform(-1.0, 1.0))",
        "$of! {\n            SoftcapFwd,\n        }",
    ] {
        assert!(generated.contains(part), "{part}\n{generated}");
    }
}

#[test]
fn a_comment_that_describes_no_operand_is_refused() {
    for (operand, why) in [
        ("", "an operand begins with `[shape] dtype`"),
        ("elements of the input", "an operand begins with `[shape] dtype`"),
        ("[n, h] x", "an operand is `[shape] dtype, access`"),
        ("[n, h] x, raed", "`raed` is no access"),
        ("[n, h] x, read when x", "`read when x`: expected `if`"),
        ("[n, h, cap] x, read", "`cap` is neither a scalar of the block nor a field of the key"),
        ("[n, h] dtype, read", "`dtype` is neither a scalar of the block nor a field of the key"),
        ("[n] x, read if ceil(n, 2)", "expected `ceil(a / b)`"),
        ("[n] x, read if rows(n)", "`rows` is a method of the key"),
        ("micro_scalars, read", "`micro_scalars` is no struct of the headers"),
        ("[n] x, read if n > 1, write if n > 2", "two accesses are `read if x, write if !x`"),
        ("[n] x, read, write if n > 2", "two accesses are `read if x, write if !x`"),
    ] {
        let refused = softcap(KERNEL, operand, RESERVED).unwrap_err();
        assert!(refused.contains(why) && refused.contains("x"), "{operand}: {refused}");
    }
    let refused = softcap("/// softcap.fwd { h }: Caps elements.", "[n, h] x, update", RESERVED).unwrap_err();
    assert!(refused.contains("a field is `name: Type`") && refused.contains("softcap_fwd_params"), "{refused}");
    let both = format!("{KERNEL}\n/// operand: u32");
    let refused = softcap(&both, "[n, h] x, update", RESERVED).unwrap_err();
    assert!(refused.contains("softcap_fwd_params: a parameter block is no operand"), "{refused}");
    let refused = softcap("/// softcap.fwd { h: u32 }", "[n, h] x, update", RESERVED).unwrap_err();
    assert!(refused.contains("stands `: ` and its text"), "{refused}");
}
