//! Collects the licenses of Rust's standard library and of the runtime that zig links: they ask for their texts in
//! every copy.

use std::path::Path;

use anyhow::Result;

use super::files::read;

/// Names license texts in zig's wheel, below `ziglang/`, each with the linked part that it covers.
const OF_ZIG: [(&str, &str); 2] =
    [("LICENSE", "compiler-rt, by zig"), ("lib/libunwind/LICENSE.TXT", "libunwind, of LLVM, by zig")];

/// Sources of what glibc adds to each program: its start, of either machine, and what calls initializers. Their first
/// comments are their licenses, most with the permission to pass on what they are linked into.
const OF_GLIBC: [&str; 3] = ["sysdeps/x86_64/start-2.33.S", "sysdeps/aarch64/start-2.33.S", "csu/elf-init-2.33.c"];

/// Returns texts by name. `rust` is the folder of rustc's own notices.
pub fn notices(rust: &Path, zig: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let text = |folder: &Path, name: &str| Ok::<_, anyhow::Error>(String::from_utf8(read(folder, name)?)?);
    let mut parts = vec![("Unicode data in Rust's standard library", text(rust, "licenses/Unicode-3.0.txt")?)];
    for (name, of) in OF_ZIG {
        parts.push((of, text(zig, name)?));
    }
    for name in OF_GLIBC {
        let source = text(zig, &format!("lib/libc/glibc/{name}"))?;
        let comment = source.split("*/").next().unwrap_or_default().trim_start_matches("/*").trim();
        parts.push(("glibc's start files, by zig", comment.to_owned()));
    }
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
            (&zig, "sysdeps/x86_64/start-2.33.S", "/* Startup\n   unlimited permission  */\n\n/* code */"),
            (&zig, "sysdeps/aarch64/start-2.33.S", "/* Start */"),
            (&zig, "csu/elf-init-2.33.c", "/* Initializers */"),
            (&rust, "COPYRIGHT-library.html", "<h1>"),
        ] {
            assert!(held().unwrap_err().contains(name));
            let below = if name.ends_with(['S', 'c']) { "lib/libc/glibc" } else { "" };
            put(&folder.join(below), name, text);
        }
        let texts = held().unwrap();
        let rule = "-".repeat(79);
        let expected = format!(
            "Licenses of what the compiler and the linker add\n\n{rule}\n\
             Unicode data in Rust's standard library\n\nUnicode\n\n{rule}\n\
             compiler-rt, by zig\n\nThe MIT License\n\n{rule}\n\
             libunwind, of LLVM, by zig\n\nLLVM\n\n{rule}\n\
             glibc's start files, by zig\n\nStartup\n   unlimited permission\n\n{rule}\n\
             glibc's start files, by zig\n\nStart\n\n{rule}\n\
             glibc's start files, by zig\n\nInitializers\n"
        );
        assert_eq!(texts[0], ("COPYRIGHT-OF-RUST-STD.html".to_owned(), b"<h1>".to_vec()));
        assert_eq!(String::from_utf8_lossy(&texts[1].1), expected);
    }
}
