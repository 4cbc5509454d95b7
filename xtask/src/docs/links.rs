//! Links: of a page in Markdown, to copy what it shows; and of the site, to check them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use precast_system::files::walk;

/// Returns the files that a page links to, as paths from the root, without headings; links to other sites are none.
pub fn targets(page: &str, text: &str) -> Vec<String> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    links.filter(|link| !link.is_empty() && !link.contains("://")).map(|link| beside(page, link)).collect()
}

/// Returns what a site calls a page: a server shows `index.html` for a folder, as GitHub shows README.md.
pub fn name(page: &str) -> String {
    page.replace("README.md", "index.md")
}

/// Returns a page whose links name pages as the site does. mdbook renames the pages and not the links.
pub fn of_site(text: &str) -> String {
    let mut parts = text.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |page, part| {
        let (link, rest) = part.split_at(part.find(')').unwrap_or(0));
        let link = if link.contains("://") { link.to_owned() } else { name(link) };
        page + "](" + &link + rest
    })
}

/// Returns the path that a link of a file names.
fn beside(file: &str, link: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns each link of a site's pages to a file or a heading that is not there.
pub fn broken(site: &Path) -> Result<Vec<String>> {
    let files: BTreeSet<String> = walk(site)?.into_iter().flatten().collect();
    let mut pages = BTreeMap::new();
    // mdbook writes the page of errors for the root of a server alone.
    for file in files.iter().filter(|file| file.ends_with(".html") && *file != "404.html") {
        pages.insert(&**file, fs::read_to_string(site.join(file)).with_context(|| file.clone())?);
    }
    let ids: BTreeMap<&str, BTreeSet<&str>> =
        pages.iter().map(|(page, text)| (*page, values(text, &["id"]).collect())).collect();
    let (mut broken, mut checked) = (Vec::new(), 0);
    for (page, text) in &pages {
        for link in values(text, &["href", "src"]).filter(|link| !link.contains(':')) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { (*page).to_owned() } else { beside(page, file) };
            let has_heading = || heading.is_empty() || ids.get(&*target).is_some_and(|ids| ids.contains(heading));
            if !files.contains(&target) || !has_heading() {
                broken.push(format!("{page}: {link}"));
            }
            checked += 1;
        }
    }
    ensure!(checked > pages.len(), "{} pages have {checked} links", pages.len());
    Ok(broken)
}

/// Returns the values of attributes, of tags alone: text has no bare `<`.
fn values<'a>(html: &'a str, names: &'a [&str]) -> impl Iterator<Item = &'a str> {
    let tags = html.split('<').skip(1).filter_map(|rest| rest.split('>').next());
    tags.filter(|tag| tag.starts_with(|c: char| c.is_ascii_alphabetic())).flat_map(|tag| {
        names.iter().filter_map(move |name| {
            let (_, value) = tag.split_once(&format!(" {name}=\""))?;
            value.split('"').next()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_a_page_are_paths_from_the_root() {
        let text = "[a](b.md#c) ![d](../e.svg) [f](https://g.h) [i](#j) [k](../../l/m.py)";
        assert_eq!(targets("docs/guides/n.md", text), ["docs/guides/b.md", "docs/e.svg", "l/m.py"]);
    }

    #[test]
    fn links_of_the_site_name_its_pages() {
        let text = "README.md: [a](../README.md#b), [c](d.md) and [e](https://f/README.md)";
        assert_eq!(of_site(text), "README.md: [a](../index.md#b), [c](d.md) and [e](https://f/README.md)");
    }

    #[test]
    fn a_link_of_the_site_that_leads_nowhere_is_named() {
        let site = tempfile::tempdir().unwrap();
        let put = |name: &str, body: &str| {
            let path = site.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, body).unwrap();
        };
        put(
            "index.html",
            "<a href=\"docs/a.html#there\">a</a> <img src=\"docs/b.svg\"> <a href=\"https://c\">c</a> href=\"text\"",
        );
        put(
            "docs/a.html",
            "<h2 id=\"there\">a</h2> <a class=\"x\" href=\"../index.html\">i</a> <a href=\"#there\">t</a>",
        );
        put("docs/b.svg", "");
        assert_eq!(broken(site.path()).unwrap(), [""; 0]);
        put("docs/d.html", "<a href=\"a.html#gone\">a</a> <a href=\"gone.html\">g</a> <a href=\"#gone\">h</a>");
        let expected = ["docs/d.html: a.html#gone", "docs/d.html: gone.html", "docs/d.html: #gone"];
        assert_eq!(broken(site.path()).unwrap(), expected);
    }
}
