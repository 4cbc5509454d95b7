//! The chapters of the site: docs/README.md lists them for readers of the plain pages, and nothing lists them again.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

use crate::run::listed;

use super::links;

pub const LIST: &str = "docs/README.md";
/// The page that the site opens with. The list links to its headings.
const FIRST: &str = "README.md";
/// Pages of the root that are chapters.
const ROOT: [&str; 4] = [FIRST, "ARCHITECTURE.md", "BENCHMARKS.md", "CONTRIBUTING.md"];

/// A line of the list.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A heading: the chapters below it are one part of the site.
    Part(String),
    /// The first link to a page, as its path from the root.
    Page(String),
}

/// Returns the parts and pages of a list, in its order, behind the first page and the list itself.
pub fn chapters(list: &str) -> Vec<Line> {
    let mut seen = BTreeSet::new();
    let mut lines = Vec::new();
    let mut page = |lines: &mut Vec<Line>, page: String| {
        if is_page(&page) && seen.insert(page.clone()) {
            lines.push(Line::Page(page));
        }
    };
    [FIRST, LIST].into_iter().for_each(|first| page(&mut lines, first.to_owned()));
    for line in list.lines() {
        match line.strip_prefix("## ") {
            Some(part) => lines.push(Line::Part(part.to_owned())),
            None => links::targets(LIST, line).into_iter().for_each(|linked| page(&mut lines, linked)),
        }
    }
    lines
}

/// Returns the paths of the pages of a list.
pub fn files(lines: &[Line]) -> impl Iterator<Item = &str> {
    lines.iter().filter_map(|line| if let Line::Page(page) = line { Some(&**page) } else { None })
}

/// Returns what mdbook calls SUMMARY.md: its chapters under their own headings.
///
/// # Errors
/// Those of `title`, which returns the heading of a page.
pub fn summary(lines: &[Line], title: impl Fn(&str) -> Result<String>) -> Result<String> {
    let mut summary = "# Summary\n\n".to_owned();
    let mut bullet = "";
    for line in lines {
        match line {
            Line::Part(part) => {
                bullet = "- ";
                summary += &format!("\n# {part}\n\n");
            }
            Line::Page(page) => summary += &format!("{bullet}[{}]({page})\n", title(page)?),
        }
    }
    Ok(summary)
}

/// Returns the first heading of a page.
///
/// # Errors
/// Fails for a page without a heading.
pub fn title(page: &str) -> Result<String> {
    let heading = page.lines().find_map(|line| line.strip_prefix("# "));
    heading.map(str::to_owned).context("a page begins with its heading")
}

/// Returns every page that the list must name: those of docs/, and four of the root.
pub fn pages() -> Result<BTreeSet<String>> {
    Ok(listed(&["docs/*.md"])?.into_iter().chain(ROOT.map(str::to_owned)).collect())
}

/// Returns the pages that the list does not name.
pub fn missing(lines: &[Line], pages: &BTreeSet<String>) -> Vec<String> {
    let named: BTreeSet<&str> = files(lines).collect();
    pages.iter().filter(|page| !named.contains(&***page)).cloned().collect()
}

pub fn is_page(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|kind| kind == "md")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::root;

    const SMALL: &str = "# Contents\n\n## Guides\n\n| To | read |\n| --- | --- |\n| start | [one](../README.md#one) |\n\
                         | learn | [a](guides/a.md), and [b](b.md#two) |\n\n## Notes\n\n- [a again](guides/a.md)\n- \
                         [c](../c/README.md)\n";

    #[test]
    fn a_list_becomes_parts_of_chapters() {
        let summary = summary(&chapters(SMALL), |page| Ok(page.to_uppercase())).unwrap();
        assert_eq!(
            summary,
            "# Summary\n\n[README.MD](README.md)\n[DOCS/README.MD](docs/README.md)\n\n# Guides\n\n\
             - [DOCS/GUIDES/A.MD](docs/guides/a.md)\n- [DOCS/B.MD](docs/b.md)\n\n# Notes\n\n- \
             [C/README.MD](c/README.md)\n"
        );
    }

    #[test]
    fn a_page_that_the_list_forgets_is_named() {
        let pages: BTreeSet<String> = ["docs/guides/a.md", "docs/b.md", "docs/forgotten.md"].map(str::to_owned).into();
        assert_eq!(missing(&chapters(SMALL), &pages), ["docs/forgotten.md"]);
    }

    #[test]
    fn every_page_is_one_chapter() {
        let read = |page: &str| std::fs::read_to_string(root().join(page));
        let listed = chapters(&read(LIST).unwrap());
        let pages = pages().unwrap();
        assert!(pages.len() > 30, "{pages:?}");
        assert_eq!(missing(&listed, &pages), [""; 0]);
        let summary = summary(&listed, |page| title(&read(page)?)).unwrap();
        for page in pages {
            assert_eq!(summary.matches(&format!("]({page})")).count(), 1, "{page} in\n{summary}");
        }
    }
}
