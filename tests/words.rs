//! One spelling: US English, in code, messages, tests and pages.

use std::path::{Path, PathBuf};

use crate::support::root;

/// Stems of words and how they are not spelled here: apart, so that this file has none of them.
const BRITISH: [(&str, &str); 15] = [
    ("quanti", "s"),
    ("normali", "s"),
    ("initiali", "s"),
    ("recogni", "s"),
    ("organi", "s"),
    ("optimi", "s"),
    ("seriali", "s"),
    ("minimi", "s"),
    ("summari", "s"),
    ("synchroni", "s"),
    ("neighb", "our"),
    ("behavi", "our"),
    ("lic", "ence"),
    ("label", "led"),
    ("arte", "fact"),
];

const ENDINGS: [&str; 9] = ["rs", "cu", "cuh", "h", "cc", "c", "md", "toml", "snap"];

/// Folders of build outputs, and of texts by others.
const SKIPPED: [&str; 5] = ["target", "fixtures", ".git", "demo", "vendor"];

fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory of the checkout") {
        let path = entry.expect("its entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !SKIPPED.contains(&&*name) {
            files(&path, found);
        } else if path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known)) {
            found.push(path);
        }
    }
}

#[test]
fn words_are_spelled_one_way() {
    let mut paths = Vec::new();
    files(&root(), &mut paths);
    assert!(paths.len() > 500, "{}", paths.len());
    let words = BRITISH.map(|(stem, end)| format!("{stem}{end}"));
    let mut faults = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("a text").to_lowercase();
        for (number, line) in text.lines().enumerate() {
            let is_not_ours = |word: &&String| line.contains(word.as_str());
            faults.extend(
                words.iter().find(is_not_ours).map(|word| format!("{}:{}: {word}", path.display(), number + 1)),
            );
        }
    }
    assert!(faults.is_empty(), "US spelling:\n{}", faults.join("\n"));
}
