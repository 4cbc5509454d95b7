use std::collections::BTreeSet;
use std::path::Path;

use clap::CommandFactory;

use super::{Arguments, shell};
use crate::options::{Change, change};

/// Flags that messages and pages name and `precast` does not have: those of other programs, `precast-aot` among them.
const OF_OTHERS: [&str; 19] = [
    "--family",
    "--features",
    "--from",
    "--help",
    "--kernel-name",
    "--key",
    "--launch-count",
    "--local-dir",
    "--merge",
    "--metrics",
    "--new-key",
    "--offline",
    "--query-gpu",
    "--release",
    "--section",
    "--target",
    "--test",
    "--to",
    "--workspace",
];

#[test]
fn what_every_command_says_of_its_options() {
    Arguments::command().debug_assert();
    let mut program = Arguments::command().term_width(100);
    program.build();
    for command in
        program.get_subcommands_mut().filter(|command| !command.is_hide_set() && command.get_name() != "help")
    {
        let help = command.render_help().to_string();
        insta::assert_snapshot!(format!("help_{}", command.get_name()), help);
    }
}

/// A flag is spelled in one place, and where a message or a page names it, it is spelled so.
#[test]
fn every_flag_that_a_message_or_a_page_names_is_one() {
    let program = Arguments::command();
    let options = program.get_subcommands().flat_map(|command| command.get_arguments());
    let flags: BTreeSet<String> = options.filter_map(|option| Some(format!("--{}", option.get_long()?))).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut named = Vec::new();
    for name in ["README.md", "BENCHMARKS.md", "CONTRIBUTING.md", "ARCHITECTURE.md"] {
        named.extend(flags_in(&root.join(name)));
    }
    for room in ["trainer", "runtime/src", "kernels/plan/src"] {
        visit(&root.join(room), &mut named);
    }
    named.retain(|(_, file)| !file.ends_with("cli/tests.rs"));
    assert!(named.len() > 200, "{named:?}");
    assert!(
        OF_OTHERS.iter().all(|flag| named.iter().any(|(one, _)| one == flag)),
        "a flag that nothing names is listed"
    );
    named.retain(|(flag, _)| !flags.contains(flag) && !OF_OTHERS.contains(&flag.as_str()));
    assert!(named.is_empty(), "{named:?}");
}

fn visit(directory: &Path, named: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            visit(&path, named);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            named.extend(flags_in(&path));
        }
    }
}

/// Words that begin with two dashes, and the file that they are in. Variables of CSS are in brackets or before a colon.
fn flags_in(path: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(path).unwrap();
    let is_part = |c: char| c.is_ascii_lowercase() || c == '-';
    let starts = text.match_indices("--").filter(|(at, _)| {
        let before = text[..*at].chars().next_back().unwrap_or(' ');
        let after = text[at + 2..].chars().next().unwrap_or(' ');
        after.is_ascii_lowercase() && (before.is_whitespace() || "`\"'".contains(before))
    });
    let words = starts.map(|(at, _)| text[at..].chars().take_while(|c| is_part(*c)).collect::<String>());
    let words = words.filter(|word| !text.contains(&format!("{word}: #")));
    words.map(|word| (word, path.display().to_string())).collect()
}

/// The page of options is made of their declarations: what is in it nobody writes, and no option is forgotten.
#[test]
fn the_page_of_options_says_of_each_how_it_is_given_compared_and_completed() {
    let program = shell::completed(Arguments::command());
    let distill = program.find_subcommand("distill").unwrap();
    let rows = crate::options::all().map(|option| {
        let name = option.get_id().as_str();
        let shown = distill.get_arguments().find(|one| one.get_id() == name).expect("distill takes every option");
        let values = shown.get_possible_values();
        let values = values.iter().map(|value| format!("`{}`", value.get_name())).collect::<Vec<_>>().join(", ");
        let completed = match shown.get_value_hint() {
            _ if !values.is_empty() => values,
            clap::ValueHint::Other => String::new(),
            _ => "files".to_owned(),
        };
        let (resume, ranks) = match change(name) {
            Change::Never => ("the same", "the same"),
            Change::AtResume => ("may change", "the same"),
            Change::OnAnyHost => ("may change", "may differ"),
        };
        format!("| `--{}` | `{name}` | {resume} | {ranks} | {completed} |", option.get_long().unwrap())
    });
    let page = format!("{}{}\n", include_str!("options_page.md"), rows.collect::<Vec<_>>().join("\n"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/options.md");
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        std::fs::write(&path, &page).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), page, "INSTA_UPDATE=always writes docs/options.md");
}
