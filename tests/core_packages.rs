//! The packages that other programs are made of know nothing of this one: no model, kernel or option of the trainer.

use precast_kernels::KERNELS;

use crate::support::prelude::*;

/// Directories of the packages that a program with kernels of its own depends on.
const CORE: [&str; 7] = ["aot", "fatbins", "fatbins/system", "kernels/abi", "kernels/core", "kernels/simt", "runtime"];

/// Packages of the trainer, as sources import them.
const CLIENTS: [&str; 5] = ["precast_kernels", "precast_models", "precast_plan", "precast_inputs", "precast::"];

/// Names that only the trainer has a use for.
struct Names {
    /// `qwen3-8b` and `qwen`: built-in models, and the letters that each begins with.
    models: Vec<String>,
    /// Folders of kernels.
    families: Vec<String>,
    /// `--steps`.
    options: Vec<String>,
}

impl Names {
    fn of_trainer() -> Self {
        let stems = names_in(&root().join("aot/models")).into_iter();
        let stems: Vec<String> = stems.filter_map(|name| Some(name.strip_suffix(".json")?.to_owned())).collect();
        let makers = stems.iter().map(|stem| stem.chars().take_while(char::is_ascii_alphabetic).collect());
        let kernels = root().join("kernels/src");
        let has_header = |name: &String| {
            let folder = kernels.join(name);
            folder.is_dir() && names_in(&folder).iter().any(|name| name.ends_with(".h"))
        };
        let families = names_in(&kernels).into_iter().filter(has_header).collect();
        let page = fs::read_to_string(root().join("docs/reference/options.md")).expect("the page of options");
        let is_of_name = |letter: char| letter == '-' || letter.is_ascii_lowercase();
        let words = page.split(|letter| !is_of_name(letter)).filter(|word| word.starts_with("--") && word.len() > 3);
        let options = words.map(str::to_owned).collect();
        Self { models: stems.iter().cloned().chain(makers).collect(), families, options }
    }

    /// Finds those that a line of a source has.
    fn found(&self, line: &str) -> Option<String> {
        let lower = line.to_lowercase();
        let client = CLIENTS.iter().find(|package| is_word(line, package)).map(|name| (*name).to_owned());
        let model = || self.models.iter().find(|name| lower.contains(*name)).cloned();
        let operation = || {
            let mut named = KERNELS.ops.iter().map(|op| op.name);
            let is_named = |name: &str| {
                is_word(line, &format!("{name}{{"))
                    || line.contains(&format!("\"{name}\""))
                    || (name.contains('.') && is_word(line, name))
            };
            named.find(|name| is_named(name)).map(str::to_owned)
        };
        let family = || self.families.iter().map(|name| format!("{name}/")).find(|folder| is_word(line, folder));
        // The compiler's own commands have options, too.
        let is_of_user = !line.trim_start().starts_with("//") && !line.contains("precast-aot ");
        let option = || self.options.iter().find(|option| is_of_user && is_word(line, option)).cloned();
        client.or_else(model).or_else(operation).or_else(family).or_else(option)
    }
}

/// True if a text has a word that is no part of a longer one.
fn is_word(text: &str, word: &str) -> bool {
    let is_part =
        |letter: Option<char>| letter.is_some_and(|letter| letter == '_' || letter == '-' || letter.is_alphanumeric());
    let ends_itself = word.ends_with(['{', '/', ':']);
    text.match_indices(word).any(|(at, _)| {
        let (before, behind) = (text[..at].chars().next_back(), text[at + word.len()..].chars().next());
        !is_part(before) && (ends_itself || !is_part(behind))
    })
}

/// Sources below a directory, without tests.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for name in names_in(directory) {
        let path = directory.join(&name);
        let is_of_package = !["tests", "tests.rs", "snapshots"].contains(&&*name);
        match path.extension().and_then(|ending| ending.to_str()) {
            None if path.is_dir() && is_of_package && !path.join("Cargo.toml").is_file() => sources(&path, found),
            Some("rs" | "cu" | "cuh" | "h" | "cc") if is_of_package => found.push(path),
            _ => {}
        }
    }
}

#[test]
fn the_core_names_nothing_of_the_trainer() {
    let (names, mut files) = (Names::of_trainer(), Vec::new());
    assert!(names.models.len() > 20 && names.families.len() > 20 && names.options.len() > 50);
    CORE.iter().for_each(|package| sources(&root().join(package), &mut files));
    assert!(files.len() > 100, "{}", files.len());
    let mut wrong = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).expect("a source is text");
        let (shipped, _) = text.split_once("\n#[cfg(test)]\nmod ").unwrap_or((&text, ""));
        for (number, line) in shipped.lines().enumerate() {
            wrong.extend(names.found(line).map(|name| format!("{}:{}: {name}", path.display(), number + 1)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_kind_of_name_is_found_where_it_is() {
    let names = Names::of_trainer();
    for (line, found) in [
        ("use precast_plan::Plan;", Some("precast_plan")),
        ("    let config = precast::options();", Some("precast::")),
        ("/// As for Qwen3.", Some("qwen")),
        ("let key = \"rmsnorm.fwd\";", Some("rmsnorm.fwd")),
        ("/// `add{}[threads=256]`", Some("add")),
        ("include_str!(\"gemm/gemm.h\")", Some("gemm/")),
        ("#[error(\"or use --device sim\")]", Some("--device")),
        ("#[error(\"precast-aot build --out FILE writes one\")]", None),
        ("// Passed on as --device.", None),
        ("let padded = padding(gemms);", None),
    ] {
        assert_eq!(names.found(line).as_deref(), found, "{line}");
    }
}
