//! CONTRIBUTING.md's way to add a kernel, done to a copy of the checkout: the kernel of `kernels/simt/tests/softcap`, its
//! line, its formula, and the commands of the page. Then mistakes that only `cargo test` of the kernels catches, one at a time.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::toolchain;
use crate::run::{cargo, output, step};
use crate::setup;

/// The copy, which keeps what it has built.
const COPY: &str = "target/page";

/// The example, as a newcomer writes it.
const EXAMPLE: &str = "kernels/simt/tests/softcap";

/// Its files, and the place of each.
const FILES: [(&str, &str); 5] = [
    ("softcap.h", "kernels/src/softcap/softcap.h"),
    ("mod.rs", "kernels/src/softcap/mod.rs"),
    ("fwd.cu", "kernels/src/softcap/fwd.cu"),
    ("host.rs", "kernels/src/softcap/host.rs"),
    ("formula.rs", "kernels/tests/formulas/softcap.rs"),
];

/// Lines outside of its folder, each with the line that it stands above.
const LINES: [(&str, &str, &str); 3] = [
    ("kernels/src/lib.rs", "pub mod softcap;", "pub mod swiglu;"),
    ("kernels/tests/formulas/mod.rs", "mod softcap;", "mod sums;"),
    ("kernels/tests/formulas/mod.rs", "    (\"softcap.fwd\", softcap::fwd),", "    (\"swiglu.bwd\", swiglu::bwd),"),
];

/// The page and the heading of its part.
const PAGE: (&str, &str) = ("CONTRIBUTING.md", "## How to add a kernel");

/// A mistake of the example's, and part of what the tests of the kernels say of it.
struct Mistake {
    what: &'static str,
    /// Files of the kernel, and what stands where something else stood.
    edits: &'static [(&'static str, &'static str, &'static str)],
    said: &'static str,
}

/// Mistakes that no launch shows, as reference and kernel agree, or that a launch alone does not. The others:
/// `kernels/simt/tests/mistakes.rs`.
const MISTAKES: [Mistake; 7] = [
    Mistake {
        what: "a reference of another formula",
        edits: &[("host.rs", "(x / cap).tanh()", "x.tanh()")],
        said: "softcap.fwd{x=f32}, sample 0: y is ",
    },
    Mistake {
        what: "a cap that reference and kernel ignore where it is large",
        edits: &[
            ("host.rs", "*y = cap", "*y = if cap > 40.0 { *x } else { cap }"),
            ("fwd.cu", "return cap", "return cap > 40.0f ? x : cap"),
        ],
        said: "softcap.fwd{x=f32}, sample 2: y is ",
    },
    Mistake {
        what: "a dtype that examples leave out",
        edits: &[("mod.rs", "[Dtype::Bf16, Dtype::F32].map", "[Dtype::F32].map")],
        said: "softcap.fwd: no example has x=bf16",
    },
    Mistake {
        what: "inputs far below the cap",
        edits: &[("softcap.h", ", normal(40.0)", "")],
        said: "doubled inputs give outputs that are a power of two as large",
    },
    Mistake {
        what: "an output that is declared too long",
        edits: &[("softcap.h", "[tokens, n] x, write", "[tokens * n + 4] x, write")],
        said: "softcap.fwd{x=bf16}: y is not whole",
    },
    Mistake {
        what: "an input that is declared too long",
        edits: &[("softcap.h", "[tokens, n] x, read", "[tokens * n + 4] x, read")],
        said: "failed: softcap.fwd{x=f32}, sample 0: y",
    },
    Mistake {
        what: "operands that are declared for one token",
        edits: &[
            ("softcap.h", "[tokens, n] x, read", "[n] x, read"),
            ("softcap.h", "[tokens, n] x, write", "[n] x, write"),
        ],
        said: "its typical launch has ",
    },
];

/// Applies the page and runs its commands; then plants mistakes.
pub fn check() -> Result<()> {
    setup::compiler()?;
    let libclang = setup::libclang()?;
    let copy = PathBuf::from(COPY);
    write_copy(&copy)?;
    let copy = copy.canonicalize()?;
    toolchain(&copy)?;
    let page = fs::read_to_string(PAGE.0)?;
    for line in commands(&page).context("the page has no commands")? {
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        step(line, in_copy(&copy, &words).env("LIBCLANG_PATH", &libclang))?;
    }
    for mistake in &MISTAKES {
        plant(&copy, mistake)?;
    }
    println!("== {}: its example is added by its own commands; {} mistakes in it are found", PAGE.0, MISTAKES.len());
    Ok(())
}

/// The checkout's files with the example's in their places. What is there already, and alike, keeps its time: cargo builds the rest.
fn write_copy(copy: &Path) -> Result<()> {
    let listed = output(Command::new("git").args(["ls-files", "-co", "--exclude-standard", "-z"]))?;
    let names = listed.split_terminator('\0').filter(|name| Path::new(name).is_file());
    let mut files: Vec<(PathBuf, Vec<u8>)> =
        names.map(|name| Ok((name.into(), fs::read(name)?))).collect::<Result<_>>()?;
    for (name, to) in FILES {
        files.push((to.into(), fs::read(Path::new(EXAMPLE).join(name))?));
    }
    for (name, line, above) in LINES {
        let (_, text) = files.iter_mut().find(|(path, _)| path == Path::new(name)).context(name)?;
        let (before, after) = (String::from_utf8(std::mem::take(text))?, format!("{line}\n{above}\n"));
        ensure!(before.contains(&format!("{above}\n")), "{name}: `{above}` is not there");
        *text = before.replacen(&format!("{above}\n"), &after, 1).into_bytes();
    }
    let there: BTreeSet<&Path> = files.iter().map(|(path, _)| path.as_path()).collect();
    for old in files_below(copy, copy)?.iter().filter(|old| !there.contains(old.as_path())) {
        fs::remove_file(copy.join(old))?;
    }
    files.iter().try_for_each(|(path, text)| put(&copy.join(path), text))
}

/// Every file below a directory of the copy, by its path in that, but for what was built.
fn files_below(directory: &Path, copy: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    if !directory.exists() {
        return Ok(files);
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true if entry.path() == copy.join("target") => {}
            true => files.extend(files_below(&entry.path(), copy)?),
            false => files.push(entry.path().strip_prefix(copy)?.to_owned()),
        }
    }
    Ok(files)
}

/// Writes a file that has another content, or none.
fn put(path: &Path, text: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().context("a file lies in a directory")?)?;
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// Cargo there, which builds the same again after each mistake.
fn in_copy(copy: &Path, arguments: &[&str]) -> Command {
    let mut command = cargo(arguments);
    command.current_dir(copy).env("CARGO_INCREMENTAL", "1");
    command
}

/// The commands of the page's part that need no GPU, which are cargo's, without their comments.
fn commands(page: &str) -> Option<Vec<&str>> {
    let part = page.split_once(PAGE.1)?.1;
    let block = part.split_once("```sh\n")?.1.split_once("```")?.0;
    let lines = block.lines().map(|line| line.split(" #").next().unwrap_or(line).trim());
    Some(lines.filter(|line| line.starts_with("cargo ")).collect())
}

/// Makes `abi.rs` of the headers.
fn declare(copy: &Path) -> Result<()> {
    let libclang = setup::libclang()?;
    let mut generator = in_copy(copy, &["run", "--quiet", "--package", "precast-abi"]);
    ensure!(generator.env("LIBCLANG_PATH", libclang).status()?.success(), "abi.rs was not made");
    Ok(())
}

/// Makes a mistake, which the tests of the kernels must name, and takes it back.
fn plant(copy: &Path, mistake: &Mistake) -> Result<()> {
    println!("\n== planted: {}", mistake.what);
    let folder = copy.join("kernels/src/softcap");
    let mut right = Vec::new();
    for (name, from, to) in mistake.edits {
        let (path, text) = (folder.join(name), fs::read_to_string(folder.join(name))?);
        ensure!(text.contains(from), "{}: `{from}` is not there", path.display());
        fs::write(&path, text.replacen(from, to, 1))?;
        right.push((path, text));
    }
    // A header is one of `abi.rs`.
    let declared = mistake.edits.iter().any(|(name, ..)| name.ends_with(".h"));
    let declare = || if declared { declare(copy) } else { Ok(()) };
    declare()?;
    let tested = in_copy(copy, &["test", "--package", "precast-kernels", "--test", "kernels"]).output();
    for (path, text) in right.into_iter().rev() {
        fs::write(path, text)?;
    }
    declare()?;
    let tested = tested?;
    let said = String::from_utf8_lossy(&tested.stdout);
    ensure!(
        !tested.status.success() && said.contains(mistake.said),
        "{}: `{}` is not said:\n{said}\n{}",
        mistake.what,
        mistake.said,
        String::from_utf8_lossy(&tested.stderr)
    );
    let line = said.lines().find(|line| line.contains(mistake.said)).unwrap_or_default();
    println!("   {line}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_commands_and_its_example_is_beside_them() {
        let root = crate::run::root();
        let page = fs::read_to_string(root.join(PAGE.0)).unwrap();
        let commands = commands(&page).unwrap();
        assert!(
            commands.len() >= 4 && commands.iter().any(|line| line.ends_with("--out softcap.bundle")),
            "{commands:?}"
        );
        for (name, _) in FILES {
            assert!(root.join(EXAMPLE).join(name).is_file(), "{name}");
        }
        for edit in MISTAKES.iter().flat_map(|mistake| mistake.edits) {
            let text = fs::read_to_string(root.join(EXAMPLE).join(edit.0)).unwrap();
            assert!(text.contains(edit.1), "{}: {}", edit.0, edit.1);
        }
    }
}
