//! CONTRIBUTING.md's way to add a kernel, done to a copy of the checkout: the kernel of `kernels/simt/tests/softcap`,
//! its line, its formula, and the commands of the page. Then mistakes that only `cargo test` of the kernels catches,
//! one at a time.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use precast_system::files::walk;

use super::reproducible::toolchain;
use crate::planted::{Mistake, edited, fails, mistakes};
use crate::run::{cargo, listed, step};
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
    let mistakes = mistakes("softcap")?;
    mistakes.iter().try_for_each(|mistake| plant(&copy, mistake))?;
    println!("== {}: its example is added by its own commands; {} mistakes in it are found", PAGE.0, mistakes.len());
    Ok(())
}

/// The checkout's files with the example's in their places. What is there already, and alike, keeps its time: cargo
/// builds the rest.
fn write_copy(copy: &Path) -> Result<()> {
    let names = listed(&[])?.into_iter();
    let mut files: Vec<(PathBuf, Vec<u8>)> =
        names.map(|name| Ok((name.clone().into(), fs::read(name)?))).collect::<Result<_>>()?;
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
    for old in files_below(copy)?.iter().filter(|old| !there.contains(old.as_path())) {
        fs::remove_file(copy.join(old))?;
    }
    files.iter().try_for_each(|(path, text)| put(&copy.join(path), text))
}

/// Lists the files of the copy, but for what is built there.
fn files_below(copy: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in copy.read_dir().into_iter().flatten() {
        let entry = entry?;
        let name = entry.file_name();
        match entry.file_type()?.is_dir() {
            true if name == "target" => {}
            true => {
                files.extend(walk(&copy.join(&name))?.into_iter().flatten().map(|file| Path::new(&name).join(file)));
            }
            false => files.push(name.into()),
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
    for edit in &mistake.edits {
        let (path, text) = (folder.join(&edit[0]), fs::read_to_string(folder.join(&edit[0]))?);
        fs::write(&path, edited(&text, edit)?)?;
        right.push((path, text));
    }
    // A header is one of `abi.rs`.
    let declared = mistake.edits.iter().any(|[name, ..]| name.ends_with(".h"));
    let declare = || if declared { declare(copy) } else { Ok(()) };
    declare()?;
    let found =
        fails(&mut in_copy(copy, &["test", "--package", "precast-kernels", "--test", "kernels"]), &mistake.says);
    right.into_iter().rev().try_for_each(|(path, text)| fs::write(path, text))?;
    declare()?;
    found
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
        let [of_kernel, of_program] = ["softcap", "saxpy"].map(|example| mistakes(example).unwrap());
        for (mistakes, folder) in [(&of_kernel, EXAMPLE), (&of_program, "docs/examples/saxpy")] {
            for edit in mistakes.iter().flat_map(|mistake| &mistake.edits) {
                edited(&fs::read_to_string(root.join(folder).join(&edit[0])).unwrap(), edit).unwrap();
            }
        }
        assert_eq!([of_kernel.len(), of_program.len()], [7, 14]);
    }
}
