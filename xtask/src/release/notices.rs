//! What the programs hold besides crates: Rust's standard library, and what zig links of its own. Their licenses ask
//! for their texts in every copy.

use std::path::Path;

use anyhow::Result;

use super::files::read;

/// Texts of zig's wheel, below `ziglang/`, and what is linked that each is of.
const OF_ZIG: [(&str, &str); 2] =
    [("LICENSE", "compiler-rt, by zig"), ("lib/libunwind/LICENSE.TXT", "libunwind, of LLVM, by zig")];

/// The start files' source: its first comment has their license, with the permission to pass on what they are linked
/// into.
const START: &str = "lib/libc/glibc/sysdeps/x86_64/start.S";

/// Returns texts by name. `rust` is the folder of rustc's own notices.
pub fn notices(rust: &Path, zig: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let text = |folder: &Path, name: &str| Ok::<_, anyhow::Error>(String::from_utf8(read(folder, name)?)?);
    let mut parts = vec![("Unicode data in Rust's standard library", text(rust, "licenses/Unicode-3.0.txt")?)];
    for (name, of) in OF_ZIG {
        parts.push((of, text(zig, name)?));
    }
    let start = text(zig, START)?;
    let comment = start.split("*/").next().unwrap_or_default().trim_start_matches("/*").trim();
    parts.push(("glibc's start files", comment.to_owned()));
    let rule = format!("\n{}\n", "-".repeat(79));
    let parts: Vec<String> = parts.into_iter().map(|(of, text)| format!("{of}\n\n{}\n", text.trim())).collect();
    let linked = format!("Licenses of what the compiler and the linker add\n{rule}{}", parts.join(&rule));
    Ok(vec![
        ("COPYRIGHT-OF-RUST-STD.html".to_owned(), read(rust, "COPYRIGHT-library.html")?),
        ("LICENSES-OF-RUNTIME.txt".to_owned(), linked.into_bytes()),
    ])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn notices_of_the_compiler_and_the_linker_are_collected() {
        let dir = tempfile::tempdir().unwrap();
        let [rust, zig] = ["rust", "zig"].map(|name| dir.path().join(name));
        let put = |folder: &Path, name: &str, text: &str| {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let held = || notices(&rust, &zig).map_err(|error| format!("{error:#}"));
        for (folder, name, text) in [
            (&rust, "licenses/Unicode-3.0.txt", "Unicode"),
            (&zig, "LICENSE", "The MIT License"),
            (&zig, "lib/libunwind/LICENSE.TXT", "LLVM"),
            (&zig, START, "/* Startup\n   unlimited permission  */\n\n/* code */"),
            (&rust, "COPYRIGHT-library.html", "<h1>"),
        ] {
            assert!(held().unwrap_err().contains(name));
            put(folder, name, text);
        }
        let texts = held().unwrap();
        let rule = "-".repeat(79);
        let expected = format!(
            "Licenses of what the compiler and the linker add\n\n{rule}\n\
             Unicode data in Rust's standard library\n\nUnicode\n\n{rule}\n\
             compiler-rt, by zig\n\nThe MIT License\n\n{rule}\n\
             libunwind, of LLVM, by zig\n\nLLVM\n\n{rule}\n\
             glibc's start files\n\nStartup\n   unlimited permission\n"
        );
        assert_eq!(texts[0], ("COPYRIGHT-OF-RUST-STD.html".to_owned(), b"<h1>".to_vec()));
        assert_eq!(String::from_utf8_lossy(&texts[1].1), expected);
    }
}
