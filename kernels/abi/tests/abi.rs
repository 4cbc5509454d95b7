//! The committed file is made of the headers, and a wrong header is refused by name.

use std::path::{Path, PathBuf};

use precast_system::generated::{self, Stale};

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("src")
}

fn generate(folders: &[PathBuf]) -> Result<String, String> {
    let generated = precast_abi::generate(folders, "`kernels/src`", "cargo xtask abi");
    generated.map_err(|error| format!("{error:#}"))
}

#[test]
fn the_committed_file_is_made_of_the_headers() {
    let (folders, file) = (generated::folders(&sources()).unwrap(), sources().join("abi.rs"));
    let committed = std::fs::read_to_string(&file).unwrap();
    assert!(committed == generate(&folders).unwrap(), "the headers and kernels/src/abi.rs differ: cargo xtask abi");
    generated::check(&folders, &file).unwrap();
}

/// The Rust of a kernel with these lines above its block, this comment behind its operand, and this end.
fn softcap(above: &str, operand: &str, tail: &str) -> Result<String, String> {
    let dir = tempfile::tempdir().unwrap();
    let header = format!(
        "#include \"types.h\"\n{above}\ntypedef struct softcap_fwd_params {{\naddress x; ///< {operand}\nuint32_t \
        n;{tail}\n\
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
    assert!(refused.contains("softcap.h:3: implicit padding in softcap_fwd_params"), "{refused}");
    let generated = softcap(KERNEL, "[n, h] x, update", RESERVED).unwrap();
    assert!(generated.contains("pub struct softcap_fwd_params") && !generated.contains("padding"));
    let dir = tempfile::tempdir().unwrap();
    let refused = write(dir.path(), "typedef struct softcap_params { address x").unwrap_err();
    assert!(refused.contains("do not parse") && refused.contains("softcap.h:1:33: error: unknown type"), "{refused}");
    std::fs::write(dir.path().join("step.h"), "").unwrap();
    let twice = generate(&[dir.path().to_path_buf(), sources()]).unwrap_err();
    assert!(twice.contains("two headers are called step.h"), "{twice}");
}

#[test]
fn a_kernel_is_its_key_its_operands_and_a_row_of_the_registry() {
    let generated = softcap(KERNEL, "[ceil(n / 2), h] x, update if x == bf16, uniform(-1, 1): capped", RESERVED);
    let generated = generated.unwrap();
    for part in [
        "pub struct softcap_fwd_params, SoftcapFwdArgs {",
        "/// `[ceil(n / 2), h]` x, update if x == bf16, uniform(-1, 1): capped",
        "optional x(ReadWrite if self.x == Dtype::Bf16 => self.x, n.div_ceil(2) * h, Content::Uniform(-1.0, 1.0));",
        "scalar n(u32);\n        internal reserved(u32);",
        "|self, p| [n = p.n, h = self.h] {}",
        "kernel SoftcapFwd = \"softcap.fwd\" { h: u32, x: Dtype };",
        "operations! {\n    SoftcapFwd\n}",
    ] {
        assert!(generated.contains(part), "{part}\n{generated}");
    }
}

#[test]
fn a_comment_that_describes_no_operand_is_refused_with_its_line() {
    for (operand, why) in [
        ("", "an operand begins with `[shape] dtype`"),
        ("elements of the input", "an operand begins with `[shape] dtype`"),
        ("[n, h] x", "an operand is `[shape] dtype, access`"),
        ("[n, h] x, raed", "`raed` is no access"),
        ("[n, h] x, read, nonsense(h)", "no content (zeros, few, normal, uniform"),
        ("[n, h] x, read, uniform(1.0)", "`uniform` has 2 arguments"),
        ("[n, h] x, read, uniform(2, 1)", "`uniform(2, 1)`: 2 is not less than 1"),
        ("[n, h] x, read, uniform(0, 1e999)", "a number is not finite"),
        ("[n, h] x, read, normal(-1)", "normal is of more than 0"),
        ("[n] u32, read, ids(0)", "`ids(0)`: ids is of more than 0"),
        ("[4294967296, 4294967296 * 4294967296] x, read", "expected 1 to 2^48"),
        ("[0, h] x, read", "expected 1 to 2^48"),
        ("[n, h] x, read when x", "`read when x`: expected `if`"),
        ("[n, h, cap] x, read", "`cap` is neither a scalar of the block nor a field of the key"),
        ("[n, x] x, read", "`x` is a Dtype, no number"),
        ("[n +, h] x, read", "`n +` is no expression"),
        ("[n, h] dtype, read", "`dtype` is neither a scalar of the block nor a field of the key"),
        ("[n, h] h, read", "`h` is no dtype"),
        ("[n] x, read if ceil(n, 2)", "expected `ceil(a / b)`"),
        ("[n] x, read if rows(n)", "`rows` is a method of the key"),
        ("micro_scalars, read", "`micro_scalars` is no struct of the headers"),
        ("[n] x, read if n > 1, write if n > 2", "two accesses are `read if x, write if !x`"),
        ("[n] x, read, write if n > 2", "two accesses are `read if x, write if !x`"),
    ] {
        let refused = softcap(KERNEL, operand, RESERVED).unwrap_err();
        let place = "softcap.h:4: ";
        assert!([place, "softcap_fwd_params.x", why].iter().all(|part| refused.contains(part)), "{operand}: {refused}");
    }
}

#[test]
fn a_line_that_declares_no_kernel_is_refused_with_its_block() {
    for (above, why) in [
        ("softcap.fwd { h }: Caps.", "a field is `name: Type`"),
        (
            "softcap.fwd { h: u32, x: }: Caps.",
            "`x:`: a field is of bool, u32, Option<u32>, Block, Dtype, Format, or of a",
        ),
        ("softcap.fwd { h: i32 }: Caps.", "`h: i32`: a field is of"),
        ("softcap.fwd { x: Dtype, h: u32 }: Caps.", "the fields of a key stand in alphabetical order, each once"),
        ("softcap.fwd { h: u32, h: u32 }: Caps.", "the fields of a key stand in alphabetical order, each once"),
        ("softcap.fwd { h: u32 }", "stands `: ` and its text"),
        ("softcap.fwd { h: u32, x: Dtype }: Caps.\n/// operand: u32", "a parameter block is no operand"),
        ("softcap.fwd { h: u32, x: Dtype }: Caps.\n/// flops: 2 * m", "`m` is neither a scalar of the block"),
        (
            "softcap.fwd { h: u32, x: Dtype }: Caps.\n/// softcap.fwd { h: u32, x: Dtype }: Again.",
            "`softcap.fwd` is a kernel already: `softcap.fwd` of ",
        ),
        ("// softcap.fwd { h: u32, x: Dtype }: Caps.", "no header declares a kernel"),
    ] {
        let refused = softcap(&format!("/// {above}"), "[n] x, update", RESERVED).unwrap_err();
        let place = if above.starts_with('/') { "" } else { "softcap_fwd_params" };
        assert!(refused.contains(place) && refused.contains(why), "{above}: {refused}");
        assert!(place.is_empty() || refused.contains("softcap.h:"), "{above}: {refused}");
    }
    for (scalar, why) in [
        ("float a; ///< uniform(1.0, 0.1)", "1 is not less than 0.1"),
        ("uint32_t a; ///< below(0)", "below is of more than 0"),
    ] {
        let header = format!(
            "#include \"types.h\"\n/// operand: f32\ntypedef struct step_scalars {{\n    {scalar}: text\n}} \
            step_scalars;\n\n\
             {KERNEL}\ntypedef struct softcap_params {{\n    address x; ///< step_scalars, read\n}} softcap_params;\n"
        );
        let refused = write(tempfile::tempdir().unwrap().path(), &header).unwrap_err();
        assert!(refused.contains(why), "{scalar}: {refused}");
    }
    let pointer = "#include \"types.h\"\ntypedef struct softcap_params {\n    const float* x;\n} softcap_params;\n";
    let refused = write(tempfile::tempdir().unwrap().path(), pointer).unwrap_err();
    assert!(refused.contains("softcap.h:3: softcap_params.x is a pointer: an operand is `address x`"), "{refused}");
}

#[test]
fn a_client_is_told_of_a_stale_or_edited_file() {
    let dir = tempfile::tempdir().unwrap();
    // A folder is no regular expression.
    let (kernels, family) = (dir.path().join("c++ (mine)"), dir.path().join("c++ (mine)/softcap"));
    std::fs::create_dir_all(&family).unwrap();
    let header = |name: &str, op: &str| {
        format!(
            "#include \"types.h\"\n/// {op} {{ like: Like, x: Dtype }}: Caps.\ntypedef struct {name}_params {{\n\
             address x; ///< [n] x, update\nuint64_t n;\n}} {name}_params;\n"
        )
    };
    std::fs::write(kernels.join("cap.h"), header("cap", "cap.fwd")).unwrap();
    std::fs::write(family.join("softcap.h"), header("softcap", "softcap.fwd")).unwrap();
    let (out, command) = (kernels.join("abi.rs"), format!("`precast-aot abi '{}' --out ", kernels.display()));
    assert!(precast_abi::write(&kernels, &out).unwrap(), "there was none");
    assert!(!precast_abi::write(&kernels, &out).unwrap(), "it is as it was");
    let made = std::fs::read_to_string(&out).unwrap();
    // Wherever the module is; and the program need not list what this depends on.
    for part in ["use super::Like;", "use precast_core::{Block, ", "    CapFwd, SoftcapFwd\n"] {
        assert!(made.contains(part), "{part}\n{made}");
    }
    let check = || generated::check(&generated::folders(&kernels).unwrap(), &out);
    check().unwrap();
    let refused = |what: &str| {
        let error = check().unwrap_err();
        assert!(error.to_string().contains(&command) && error.to_string().contains(what), "{error}");
    };
    std::fs::write(&out, made.replace("scalar n(u64)", "scalar n(u32)")).unwrap();
    refused("was edited by hand");
    std::fs::write(&out, &made).unwrap();
    std::fs::write(family.join("softcap.h"), header("softcap", "softcap.bwd")).unwrap();
    refused("is not of the headers as they are");
    std::fs::write(&out, "").unwrap();
    assert!(matches!(check(), Err(Stale::NoHead(_))));
    let none = dir.path().join("none");
    std::fs::create_dir(&none).unwrap();
    assert!(matches!(generated::folders(&none), Err(Stale::NoHeader(_))));
}
