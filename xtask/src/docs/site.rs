//! Builds the site.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{contents, links};
use crate::run::step;
use crate::setup;

const MDBOOK: &str = "0.5.4";
/// Receives a copy of the pages, and what mdbook reads beside them.
const BOOK: &str = "target/docs-site";
/// Receives the site.
const SITE: &str = "target/site";

/// `--option` keeps its two dashes, no code runs in a browser, and the search stands in for one page of all.
const CONFIGURATION: &str = "\
[book]
title = \"Precast\"
language = \"en\"

[build]
build-dir = \"../site\"
create-missing = false

[output.html]
smart-punctuation = false
no-section-label = true
additional-css = [\"site.css\"]

[output.html.playground]
runnable = false

[output.html.print]
enable = false
";

/// Blocks of code are as wide as their sources, and on a phone commands wrap in cells of tables.
const STYLE: &str = "\
:root { --content-max-width: 920px; }
.table-wrapper code { white-space: pre-wrap; overflow-wrap: anywhere; }
.content img { height: auto; }
";

/// Builds the site, and fails where one of its links leads nowhere.
pub fn docs() -> Result<()> {
    let mdbook = setup::program("mdbook", MDBOOK, &["--no-default-features", "--features", "search"])?;
    let listed = contents::chapters(&read(contents::LIST)?);
    let missing = contents::missing(&listed, &contents::pages()?);
    ensure!(missing.is_empty(), "{} does not list {}", contents::LIST, missing.join(", "));

    for directory in [BOOK, SITE] {
        if Path::new(directory).exists() {
            fs::remove_dir_all(directory).context(directory)?;
        }
    }
    let source = Path::new(BOOK).join("src");
    let summary = contents::summary(&listed, |page| contents::title(&read(page)?).context(page.to_owned()))?;
    write(&source.join("SUMMARY.md"), links::of_site(&summary))?;
    write(&Path::new(BOOK).join("book.toml"), CONFIGURATION)?;
    write(&Path::new(BOOK).join("site.css"), STYLE)?;
    let mut beside = BTreeSet::new();
    for page in contents::files(&listed) {
        let text = read(page)?;
        write(&source.join(links::name(page)), links::of_site(&text))?;
        // Pages that the list does not name are not copied: links to them are broken.
        let linked = links::targets(page, &text).into_iter();
        beside.extend(linked.filter(|file| Path::new(file).is_file() && !contents::is_page(file)));
    }
    for file in beside {
        write(&source.join(&file), fs::read(&file).with_context(|| file.clone())?)?;
    }
    step("build the site", Command::new(&mdbook).arg("build").arg(BOOK))?;

    let broken = links::broken(Path::new(SITE))?;
    ensure!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
    println!("open {SITE}/index.html");
    Ok(())
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.to_owned())
}

fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(path, bytes).with_context(|| path.display().to_string())
}
