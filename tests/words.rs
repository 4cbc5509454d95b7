//! One spelling, US English, and one name a thing: in code, messages, tests and pages.

use std::collections::BTreeMap;

use crate::support::prelude::*;

/// Stems of words and how they are not spelled here: apart, so that this file has none of them.
const BRITISH: &str = "quanti-s normali-s initiali-s recogni-s organi-s optimi-s seriali-s minimi-s summari-s \
    synchroni-s neighb-our behavi-our lic-ence label-led arte-fact generali-s utili-s \
    col-our fav-our cent-re";

const ENDINGS: [&str; 9] = ["rs", "cu", "cuh", "h", "cc", "c", "md", "toml", "snap"];

/// Folders of build outputs, and of texts by others.
const SKIPPED: [&str; 5] = ["target", "fixtures", ".git", "demo", "vendor"];

/// The page whose tables say which words are not used, and this file, which names exceptions.
const GLOSSARY: &str = "docs/glossary.md";
const THIS: &str = "tests/words.rs";

/// Phrases with a word of the glossary's last column: what is meant has that name, here or elsewhere.
const PHRASES: [&str; 8] = [
    // Of numbers.
    "dot product",
    "sum of products",
    "sums of products",
    // Of Rust's iterators.
    ".product()",
    ".product::<",
    // CUTLASS's name of a method.
    "threadblock swizzle",
    // A field of run.json, which programs read.
    "rows_passed_over",
    // What has runs in it there.
    "mlflow's experiment",
];

/// Folders that may have a word, and why.
const PLACES: [(&str, &str, &str); 1] =
    [("trainer/", "product", "names in JSON that programs read, as `beside_bundle.products`, and sizes of tensors")];

/// Bare names of types, each of which says too little to be two public types of the workspace.
const BARE: &str =
    "Fault Source Rows Part Share Block Form Place Comparison State Outcome Manifest Progress Student Trained Verdict";

fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory of the checkout") {
        let path = entry.expect("its entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !SKIPPED.contains(&&*name) {
            files(&path, found);
        } else if path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known)) {
            found.push(path);
        }
    }
}

/// Every text of the checkout, by its path in that.
fn texts() -> Vec<(String, String)> {
    let (root, mut paths) = (root(), Vec::new());
    files(&root, &mut paths);
    assert!(paths.len() > 500, "{}", paths.len());
    for ending in ENDINGS {
        assert!(paths.iter().any(|path| path.extension().is_some_and(|own| own == ending)), "no file of {ending}");
    }
    let text = |path: PathBuf| {
        let name = path.strip_prefix(&root).expect("it lies there").to_string_lossy().into_owned();
        (name, fs::read_to_string(&path).expect("a text"))
    };
    paths.into_iter().map(text).collect()
}

#[test]
fn words_are_spelled_one_way() {
    let words: Vec<String> = BRITISH.split(' ').map(|word| word.replace('-', "")).collect();
    let not_ours = |line: &str| {
        let line = line.to_lowercase();
        words.iter().find(|word| line.contains(word.as_str()))
    };
    assert_eq!(
        words.iter().map(|word| not_ours(&word.to_uppercase())).collect::<Vec<_>>(),
        words.iter().map(Some).collect::<Vec<_>>()
    );
    let mut faults = Vec::new();
    for (path, text) in texts() {
        for (number, line) in text.lines().enumerate() {
            faults.extend(not_ours(line).map(|word| format!("{path}:{}: {word}", number + 1)));
        }
    }
    assert!(faults.is_empty(), "US spelling:\n{}", faults.join("\n"));
}

/// Portable kernels are measured on a Hopper, with launches that no other card has.
#[test]
fn rates_of_portable_kernels_are_said_of_no_other_card() {
    let has = |sentence: &str, words: &[&str]| words.iter().any(|word| sentence.contains(word));
    let of_card = |sentence: &str| {
        has(sentence, &["ortable"])
            && has(sentence, &["RTX 4090", "GB10", "sm_89", "sm_121"])
            && has(sentence, &[" ms", "FLOP/s", "TB/s", "tokens/s", "speed", "fast", "rate of", "rates of"])
            && !has(sentence, &["never", " not ", "no part"])
    };
    let claim = "The portable build is what sm_89 runs: 147.2 ms a step";
    assert!(of_card(claim) && !of_card("Portable figures are never the speed of an RTX 4090"));
    let pages = texts().into_iter().filter(|(path, _)| path.ends_with(".md") || path.ends_with(".snap"));
    let faults = pages.flat_map(|(path, text)| {
        let text = text.replace('\n', " ");
        let claims = text.split(". ").filter(|sentence| of_card(sentence)).map(str::to_owned);
        claims.map(|claim| format!("{path}: {claim}")).collect::<Vec<_>>()
    });
    let faults: Vec<String> = faults.collect();
    assert!(faults.is_empty(), "of which card?\n{}", faults.join("\n"));
}

/// The words of a text in lower case, of identifiers too: `BoundGemm` and `bound_gemm` are two each. Other signs are
/// words of their own, so that `self.check` is no `self-check`.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in text.chars() {
        match c {
            ' ' | '-' | '_' => words.push(String::new()),
            c if !c.is_alphanumeric() => words.extend([c.to_string(), String::new()]),
            c => {
                if c.is_uppercase() && was_lower {
                    words.push(String::new());
                }
                words.last_mut().expect("one at least").extend(c.to_lowercase());
            }
        }
        was_lower = c.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// True if a line has these words in a row, the last of them perhaps in the plural.
fn has(line: &[String], twin: &[String]) -> bool {
    let (last, first) = twin.split_last().expect("a word");
    line.windows(twin.len()).any(|found| {
        let (end, start) = found.split_last().expect("as many");
        start == first && (end == last || end.strip_suffix('s') == Some(last))
    })
}

/// Each word of the glossary with those that are not used in its place.
fn twins(page: &str) -> Vec<(&str, Vec<&str>)> {
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---"));
    let cells = rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    let is_entry = |cells: &Vec<&str>| cells[0] != "Word";
    cells.filter(is_entry).map(|cells| (cells[0], cells[2].split(", ").collect())).collect()
}

#[test]
fn things_have_one_name() {
    let page = fs::read_to_string(root().join(GLOSSARY)).unwrap();
    let glossary = twins(&page);
    assert!(glossary.len() > 40, "{}", glossary.len());
    let twins: Vec<(&str, &str, Vec<String>)> =
        glossary.iter().flat_map(|(word, others)| others.iter().map(|other| (*word, *other, words(other)))).collect();
    let (mut faults, mut unused) = (Vec::new(), PLACES.map(|(_, _, why)| why).to_vec());
    for (path, text) in texts().into_iter().filter(|(path, _)| path != GLOSSARY && path != THIS) {
        for (number, line) in text.lines().enumerate() {
            let without = PHRASES.iter().fold(line.to_lowercase(), |line, phrase| line.replace(phrase, ". "));
            // Humps of identifiers stay where no phrase was taken out.
            let found = words(if without.len() == line.len() { line } else { &without });
            for (word, twin, _) in twins.iter().filter(|(.., twin)| has(&found, twin)) {
                match PLACES.iter().find(|(place, allowed, _)| path.starts_with(place) && twin == allowed) {
                    Some((.., why)) => unused.retain(|other| other != why),
                    None => faults.push(format!("{path}:{}: `{twin}` is `{word}` here", number + 1)),
                }
            }
        }
    }
    assert!(faults.is_empty(), "{GLOSSARY} has one name a thing:\n{}", faults.join("\n"));
    assert!(unused.is_empty(), "exceptions that nothing needs: {unused:?}");
}

/// `cargo run` works in a checkout alone, where a build script may say it.
#[test]
fn a_built_program_names_itself_in_remedies() {
    const OF_BUILD_SCRIPTS: &str = "aot/src/toolchain/provide.rs";
    const SHIPPED: [&str; 6] =
        ["trainer/", "aot/src/", "runtime/src/", "fatbins/src/", "fatbins/system/src/", "kernels/plan/src/"];
    let shipped = texts().into_iter().filter(|(path, _)| {
        path.ends_with(".rs") && path != OF_BUILD_SCRIPTS && SHIPPED.iter().any(|room| path.starts_with(room))
    });
    let lines = shipped.flat_map(|(path, text)| {
        let of_a_message = |line: &&str| line.contains("cargo run") && !line.trim_start().starts_with("//");
        text.lines().filter(of_a_message).map(|line| format!("{path}: {line}")).collect::<Vec<_>>()
    });
    let lines: Vec<String> = lines.collect();
    assert!(lines.is_empty(), "a program is called by its name:\n{}", lines.join("\n"));
}

/// The name that `--arch` takes, but where it is that of machine code: bundles and what they hold.
#[test]
fn pages_for_users_say_sm_90() {
    const OF_CODE: [&str; 1] = ["docs/reference/supported.md"];
    let pages = texts().into_iter().filter(|(path, _)| {
        let is_for_users =
            path == "README.md" || path.starts_with("docs/guides/") || path.starts_with("docs/reference/");
        is_for_users && path.ends_with(".md") && !OF_CODE.contains(&path.as_str())
    });
    let pages: Vec<(String, String)> = pages.collect();
    for place in ["README.md", "docs/guides/", "docs/reference/"] {
        assert!(pages.iter().any(|(path, _)| path.starts_with(place)), "no page of {place}");
    }
    let faults: Vec<&String> = pages.iter().filter(|(_, text)| text.contains("sm_90a")).map(|(path, _)| path).collect();
    assert!(faults.is_empty(), "{faults:?}");
}

#[test]
fn words_of_identifiers_are_found() {
    let line = words("    let [own, ofProducts] = thread_block_of(BoundGemm::new(mainLoop, self.check));");
    for (twin, is_there) in
        [("product", true), ("thread block", true), ("main loop", true), ("gemm", true), ("self check", false)]
    {
        assert_eq!(has(&line, &words(twin)), is_there, "{twin}");
    }
}

/// The name of the public type that a line declares.
fn public_type(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("pub ").or_else(|| line.strip_prefix("pub(crate) "))?;
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    let kind = words.next()?;
    words.next().filter(|_| ["struct", "enum", "type", "trait", "union"].contains(&kind))
}

/// A reader of `Fault` alone cannot tell which of two is meant.
#[test]
fn no_two_public_types_share_a_bare_name() {
    let lines = ["    pub(crate) enum Part<'a> {", "pub struct Fault;", "pub fn fault() {", "struct Fault;"];
    assert_eq!(lines.map(public_type), [Some("Part"), Some("Fault"), None, None]);
    let mut declared: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (path, text) in texts().into_iter().filter(|(path, _)| path.ends_with(".rs") && path != THIS) {
        for line in text.lines() {
            if let Some(bare) = BARE.split(' ').find(|bare| public_type(line) == Some(bare)) {
                declared.entry(bare).or_default().push(path.clone());
            }
        }
    }
    assert!(declared.len() > 5, "{declared:?}");
    let twice: Vec<_> = declared.iter().filter(|(_, places)| places.len() > 1).collect();
    assert!(twice.is_empty(), "each says whose it is, as `RunFault`: {twice:#?}");
}

/// rustfmt wraps code and leaves comments, texts and macros. Rows of tables, raw texts and generated code have no place
/// to break, and the digests of CUDA sources are those of their comments, too.
#[test]
fn lines_of_rust_have_at_most_120_columns() {
    let is_generated = |text: &str| text.lines().take(4).any(|line| line.starts_with("//! Not edited by hand: "));
    let all = texts().into_iter().filter(|(path, text)| path.ends_with(".rs") && !is_generated(text));
    let long: Vec<String> = all
        .flat_map(|(path, text)| {
            let is_long = |line: &&str| line.chars().count() > 120 && !line.contains("//! |");
            let raw = ["r\"", "r#\"", "\"#"];
            let lines = text.lines().filter(is_long).filter(|line| !raw.iter().any(|raw| line.contains(raw)));
            lines.map(|line| format!("{path}: {line}")).collect::<Vec<_>>()
        })
        .collect();
    assert!(long.is_empty(), "wider than .editorconfig says:\n{}", long.join("\n"));
}
