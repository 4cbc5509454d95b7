use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::CommandFactory;

use super::command::Arguments;
use super::help::{self, Names};
use super::shell;
use crate::options::{Change, change};

/// Flags that messages and pages name and `precast` does not have: those of other programs, `precast-aot`, pip and
/// docker among them.
const OF_OTHERS: &str = "--args --build --code --dev --disable-warnings --env --example --executions --features \
    --file --from --generate --golden --gpus-per-node --gpus-per-task --help --ignore-missing --ignored --include \
    --instance --key --lib --list-elf --locked --manifest-path --merge --models --new-key --nnodes --no-deps \
    --no-index --no-mtp --no-python --nodes --nproc-per-node --ntasks-per-node --offline --open --outfile --output \
    --outtype --path --release --report --reproduce --revision --rm --security-opt --signal --stop-timeout --tag \
    --target --test --tests --to --tune --upgrade --user --userns --volume --workspace";

/// Returns the text of a command that is asked for help, at a terminal of this width.
fn help_of(command: &str, flag: &str, columns: usize) -> String {
    let line = ["precast"].into_iter().chain(command.split(' ')).chain([flag]);
    let asked = Arguments::command().term_width(columns).try_get_matches_from(line);
    asked.expect_err("help ends a command").to_string()
}

#[test]
fn what_every_command_says_of_its_options() {
    let program = Arguments::command();
    program.clone().debug_assert();
    for command in commands(&program, "") {
        insta::assert_snapshot!(format!("help_{}", command.replace(' ', "_")), help_of(&command, "--help", 100));
    }
}

/// Returns the names of the commands of a command, and of theirs.
fn commands(of: &clap::Command, before: &str) -> Vec<String> {
    let shown = of.get_subcommands().filter(|command| !command.is_hide_set());
    let names = shown.flat_map(|command| {
        let name = format!("{before}{}", command.get_name());
        let below = commands(command, &format!("{name} "));
        [name].into_iter().chain(below)
    });
    names.collect()
}

#[test]
fn an_old_spelling_hears_of_the_new_one() {
    let lines = "bench --generate --model m|bench --model m --tune t|bench --on-policy=0.5|bench --kernel k|\
        bench --model m|bench --tuned t --model m|eval --model m --against bf16|plan --generate --model m";
    let said = lines.split('|').map(|line| {
        let words = ["precast"].into_iter().chain(line.split(' '));
        assert!(Arguments::command().try_get_matches_from(words.clone()).is_err(), "{line}");
        super::renamed::renamed(words.map(Into::into)).expect("an old spelling").to_string()
    });
    insta::assert_snapshot!(said.collect::<Vec<_>>().join("\n"));
    let is_none = |line: &str| super::renamed::renamed(line.split(' ').map(Into::into)).is_none();
    let others = ["precast", "precast eval --model m", "precast bench tune --sweep", "precast bench --version"];
    assert!(others.into_iter().all(is_none));
}

/// `-h` is a page of the options that most people need, each on one line of 80 columns.
#[test]
fn short_help_has_one_line_an_option() {
    let lists: [Names; 7] =
        [help::CACHE, help::DISTILL, help::TRAIN, help::PLAN, help::BENCH_STEP, help::SMOKE, help::DOCTOR];
    for (name, first) in ["cache", "distill", "train", "plan", "bench step", "smoke", "doctor"].into_iter().zip(lists) {
        let help = help_of(name, "-h", 80);
        let (_, options) = help.split_once("Options:\n").expect("no heading stands before theirs");
        let shown: Vec<&str> = options.lines().filter_map(|line| line.split_once("--")?.1.split(' ').next()).collect();
        let mut expected: Vec<String> = first.split(' ').map(|option| option.replace('_', "-")).collect();
        expected.push("help".to_owned());
        insta::assert_snapshot!(format!("short_help_{}", name.replace(' ', "_")), &help);
        assert!(shown == expected && options.lines().count() == expected.len(), "{help}");
    }
}

/// A flag is spelled in one place, and where a message or a page names it, it is spelled so.
#[test]
fn every_flag_that_a_message_or_a_page_names_is_one() {
    let mut program = Arguments::command();
    program.build();
    let flags = flags_of(&program);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut named = Vec::new();
    pages(root).iter().for_each(|page| named.extend(flags_in(page)));
    let rooms = ["trainer", "runtime/src", "kernels/plan/src"].map(|room| files(&root.join(room), "rs"));
    rooms.iter().flatten().for_each(|file| named.extend(flags_in(file)));
    named.retain(|(_, file)| !file.ends_with("cli/tests.rs"));
    assert!(named.len() > 200, "{named:?}");
    let others: Vec<&str> = OF_OTHERS.split(' ').collect();
    assert!(others.iter().all(|flag| named.iter().any(|(one, _)| one == flag)), "a flag that nothing names is listed");
    named.retain(|(flag, _)| !flags.contains(flag) && !others.contains(&&**flag));
    assert!(named.is_empty(), "{named:?}");
}

/// Returns the flags of a command, and of those below it.
fn flags_of(command: &clap::Command) -> BTreeSet<String> {
    let own = command.get_arguments().filter_map(|option| Some(format!("--{}", option.get_long()?)));
    own.chain(command.get_subcommands().flat_map(flags_of)).collect()
}

/// The pages that people read.
fn pages(root: &Path) -> Vec<PathBuf> {
    let pages = "README.md BENCHMARKS.md CONTRIBUTING.md ARCHITECTURE.md fatbins/README.md kernels/simt/README.md";
    pages.split(' ').map(|name| root.join(name)).chain(files(&root.join("docs"), "md")).collect()
}

/// A link of a page names a file of the repository and, behind `#`, one of its headings.
#[test]
fn every_link_of_a_page_leads_somewhere() {
    let mut broken = Vec::new();
    let pages = pages(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(pages.len() > 20, "{pages:?}");
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://") && !link.contains(' ')) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let is_there = match heading {
                "" => target.exists(),
                _ => std::fs::read_to_string(&target).is_ok_and(|text| headings(&text).any(|one| one == heading)),
            };
            if !is_there {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join(", "));
}

/// Headings as links name them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let titles = text.lines().filter(|line| line.starts_with('#'));
    titles.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

/// A variable that a program reads is on the page of the environment; tests, processes of one run, and a build script
/// and its program have others among themselves.
#[test]
fn the_page_of_the_environment_names_every_variable() {
    const AMONG_THEMSELVES: &str = "FAIL_AT KILL_AT LOCKS PROC PROGRESS_S RANK RANKS RENDEZVOUS RUSTC TARGET";
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/reference/environment.md")).unwrap();
    let mut texts = vec![std::fs::read_to_string(root.join("build.rs")).unwrap()];
    let rooms = ["trainer", "runtime/src", "aot/src", "fatbins/src", "fatbins/system/src"];
    let files = rooms.map(|room| files(&root.join(room), "rs")).concat();
    texts.extend(files.iter().map(|file| std::fs::read_to_string(file).unwrap()));
    let quoted = texts.iter().flat_map(|text| text.split('"')).filter(|word| word.starts_with("PRECAST_"));
    let names: BTreeSet<&str> =
        quoted.filter(|word| word.chars().all(|c| c.is_ascii_uppercase() || c == '_')).collect();
    assert!(names.len() > 15, "{names:?}");
    let is_said =
        |name: &str| page.contains(&format!("`{name}")) || AMONG_THEMSELVES.split(' ').any(|own| own == &name[8..]);
    let unsaid: Vec<&&str> = names.iter().filter(|name| !is_said(name)).collect();
    assert!(unsaid.is_empty(), "{unsaid:?}");
}

/// Files of this kind in a directory and those in it.
fn files(directory: &Path, kind: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files = |path: PathBuf| match path.is_dir() {
        true => files(&path, kind),
        false => Vec::from_iter(path.extension().is_some_and(|of| of == kind).then_some(path)),
    };
    entries.flat_map(files).collect()
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
fn the_page_of_options_is_made_of_their_declarations() {
    let program = shell::completed(Arguments::command());
    let distill = program.find_subcommand("distill").unwrap();
    let of_distill = |option: &clap::Arg| distill.get_arguments().find(|one| one.get_id() == option.get_id()).unwrap();
    let options: Vec<&clap::Arg> = crate::options::all().map(of_distill).collect();
    let mut headings = Vec::new();
    for option in &options {
        if !headings.contains(&heading(option)) {
            headings.push(heading(option));
        }
    }
    let tables = headings.into_iter().map(|title| {
        let rows = options.iter().filter(|option| heading(option) == title).map(|option| help_row(option));
        format!("### {title}\n\n| option | by default | |\n| --- | --- | --- |\n{}", rows.collect::<String>())
    });
    let rows = options.iter().map(|option| comparison_row(option));
    let page = include_str!("options_page.md");
    let page = page
        .replace("{example}", &help::run_toml(help::PAIR))
        .replace("{tables}\n", &tables.collect::<Vec<_>>().join("\n"))
        .replace("{rows}\n", &rows.collect::<String>());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/options.md");
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, page, "INSTA_UPDATE=always writes docs/reference/options.md");
}

/// Other options of theirs stand in no file, and a message says that they are of the command line.
#[test]
fn options_are_of_a_file_or_of_the_command_line_alone() {
    let program = Arguments::command();
    let in_file: BTreeSet<&str> = crate::options::all().map(|option| option.get_id().as_str()).collect();
    for name in ["distill", "train"] {
        let options = program.find_subcommand(name).unwrap().get_arguments();
        let others: BTreeSet<&str> =
            options.map(|option| option.get_id().as_str()).filter(|option| !in_file.contains(option)).collect();
        assert_eq!(others, crate::options::OF_COMMAND_LINE.split(' ').collect(), "{name}");
    }
}

/// What `--help` and the page show is a run.toml, of ten lines for a pair.
#[test]
fn the_example_of_run_toml_is_one() {
    for models in [help::PAIR, help::MODEL] {
        let example = help::run_toml(models);
        let options = crate::options::FileOptions::from_toml(&example).unwrap().options().unwrap();
        options.resolve(crate::options::Purpose::Run, precast_plan::Share::ALONE, None).unwrap();
        assert!(example.lines().count() <= 10, "{example}");
    }
}

/// The heading of an option in `--help`; those that it shows first have none.
fn heading(option: &clap::Arg) -> &str {
    option.get_help_heading().unwrap_or("Of most runs")
}

/// How an option is given, its default, and its line of help.
fn help_row(option: &clap::Arg) -> String {
    let values = option.get_value_names().unwrap_or_default().iter().map(|name| format!(" {name}")).collect::<String>();
    let flag = format!("--{}{values}", option.get_long().unwrap());
    let declared = option.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy()));
    let help = option.get_help().expect("an option has help").to_string();
    // A default that is no value stands behind the help.
    let (help, default) = match help.split_once(" [default: ") {
        Some((help, default)) => (help.to_owned(), default.trim_end_matches(']').to_owned()),
        None => (help, declared.collect()),
    };
    format!("| `{flag}` | {default} | {help} |\n", flag = flag.replace('|', "\\|"), help = help.replace('|', "\\|"))
}

/// An option's name in run.toml, what compares it, and what a shell completes.
fn comparison_row(option: &clap::Arg) -> String {
    let name = option.get_id().as_str();
    let values = option.get_possible_values();
    let values = values.iter().map(|value| format!("`{}`", value.get_name())).collect::<Vec<_>>().join(", ");
    let completed = match option.get_value_hint() {
        _ if !values.is_empty() => values,
        clap::ValueHint::Other => String::new(),
        _ => "files".to_owned(),
    };
    let (resume, ranks) = match change(name) {
        Change::Never => ("the same", "the same"),
        Change::AtResume => ("may change", "the same"),
        Change::OnAnyHost => ("may change", "may differ"),
    };
    format!("| `--{}` | `{name}` | {resume} | {ranks} | {completed} |\n", option.get_long().unwrap())
}

/// The page's table gives each code the meaning that `--help` gives it.
#[test]
fn the_page_of_exit_codes_says_what_help_says() {
    let about = Arguments::command().get_long_about().unwrap().to_string();
    let (_, codes) = about.split_once("Exit codes: ").expect("help lists exit codes");
    let (codes, signals) = codes.trim_end_matches('.').split_once("; ").expect("signals come last");
    let mut said: Vec<(&str, &str)> = codes.split(", ").map(|code| code.split_once(' ').unwrap()).collect();
    said.push(signals.split_once(" stopped").map(|(codes, _)| (codes, &signals[codes.len() + 1..])).unwrap());
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/exit-codes.md");
    let page = std::fs::read_to_string(page).unwrap();
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows = page.lines().skip_while(|line| !line.starts_with("| 0")).take_while(|line| line.starts_with('|'));
    let rows: Vec<Vec<String>> = rows.map(cells).collect();
    let shown = rows.iter().map(|row| (row[0].replace(" and ", ", "), row[1].split(';').next().unwrap().to_owned()));
    let said = said.iter().map(|(code, meaning)| (code.replace(" and ", ", "), (*meaning).to_owned()));
    assert_eq!(shown.collect::<Vec<_>>(), said.collect::<Vec<_>>());
}
