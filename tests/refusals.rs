//! What programs refuse, and in which words: each command of the transcripts in tests/refusals, run in a directory of
//! its block. `INSTA_UPDATE=always` writes what they say now. docs/reference/errors.md explains the messages that
//! people meet.

use crate::support::device_for;
use crate::support::prelude::*;

const TRANSCRIPTS: &str = "tests/refusals";

/// What is in a block's directory before its first command.
fn recipe(name: &str) -> Case {
    let case = match name {
        "models" => Case::new(17 * 4),
        "words" => case_of_words(),
        _ => panic!("no recipe `{name}`"),
    };
    let shape = "data = 'data.bin'\nout = 'out'\nbatch_size = 2\nseq_len = 16\nsteps = 2\nprecision = 'fp32'\n";
    case.write("train.toml", format!("model = 'student'\n{shape}"));
    case.write("distill.toml", format!("teacher = 'teacher'\nstudent = 'student'\n{shape}"));
    case
}

/// How lines begin that follow every error of usage, and name arguments that this test adds.
const OF_CLAP: [&str; 2] = ["Usage: ", "For more information, try"];

/// A text whose digests are dots: numbers that say nothing to a reader.
fn without_digests(text: &str) -> String {
    let words = text.split_inclusive(|c: char| !c.is_ascii_hexdigit());
    words.map(|word| if word.len() >= 64 { format!("...{}", &word[64..]) } else { word.to_owned() }).collect()
}

/// Runs a line in a shell. Returns what it says and its exit code, where it fails: then, as in a dry run, it has
/// written nothing.
fn said(case: &Case, line: &str) -> String {
    let before = contents(case.dir.path());
    let words: Vec<&str> = line.split_whitespace().collect();
    let device = if words[0] == "precast" { device_for(&words[1..]) } else { Vec::new() };
    let line = device.iter().fold(line.to_owned(), |line, argument| format!("{line} {}", argument.display()));
    let (code, _, stderr) = shell(&line, case.dir.path()).ends();
    let code = code.expect("no signal ends it");
    let has_written = contents(case.dir.path()) != before;
    assert!(!has_written || code == 0 && !line.contains("--dry-run"), "{line} wrote something: {stderr}");
    if code == 0 {
        return String::new();
    }
    assert!(!stderr.contains("panicked"), "{line}: {stderr}");
    let stderr = without_digests(&case.anonymous(&stderr));
    let of_others =
        |line: &str| is_note(line) || is_heading(line) || OF_CLAP.iter().any(|start| line.starts_with(start));
    let lines: Vec<&str> = stderr.lines().filter(|line| !of_others(line)).collect();
    assert!(lines[0].starts_with("error: "), "{line}: {stderr}");
    format!("{}\n[exit code {code}]\n", lines.join("\n"))
}

/// A transcript with what its commands say now.
fn now(transcript: &str) -> String {
    let mut case = None;
    let (mut now, mut lines) = (String::new(), transcript.lines().peekable());
    while let Some(line) = lines.next() {
        now += &format!("{line}\n");
        if let Some(name) = line.strip_prefix("```console ") {
            case = Some(recipe(name));
        } else if line == "```" {
            case = None;
        } else if let (Some(case), Some(command)) = (&case, line.strip_prefix("$ ")) {
            now += &said(case, command);
            while lines.next_if(|line| !line.starts_with("$ ") && *line != "```").is_some() {}
        }
    }
    now
}

/// Two blanks in a row in a message are of a line of source that lost its end. Lines that follow may be indented.
#[test]
fn no_message_has_two_blanks_in_a_row() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for folder in [TRANSCRIPTS, "kernels", "fatbins", "aot", "runtime", "trainer"] {
        for (path, bytes) in contents(&root().join(folder)) {
            let text = String::from_utf8_lossy(&bytes);
            let attributes = text.split("#[error(").skip(1).filter_map(|rest| Some(rest.split_once(")]")?.0.lines()));
            let said = text.lines().filter(|line| line.starts_with("error: "));
            let messages = said.chain(attributes.flatten()).inspect(|_| seen += 1);
            let has_two = |line: &&str| line.replace("\\n  ", "").replace("\"  ", "").trim().contains("  ");
            wrong.extend(messages.filter(has_two).map(|line| format!("{}: {line}", path.display())));
        }
    }
    assert!(seen > 700, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn check(name: &str) {
    skip_if!(is_on_gpu());
    let path = root().join(TRANSCRIPTS).join(format!("{name}.txt"));
    let transcript = fs::read_to_string(&path).unwrap();
    let now = now(&transcript);
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        fs::write(path, now).unwrap();
        return;
    }
    let at = transcript.lines().zip(now.lines()).position(|(before, now)| before != now);
    let line = |text: &str| at.map(|at| text.lines().skip(at).take(3).collect::<Vec<_>>().join("\n"));
    assert!(transcript == now, "{name}.txt has\n{:?}\nand they say\n{:?}", line(&transcript), line(&now));
}

/// A test for each transcript.
macro_rules! transcripts {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        #[test]
        fn every_transcript_has_a_test() {
            assert_eq!(names_in(&root().join(TRANSCRIPTS)), [$(concat!(stringify!($name), ".txt")),*]);
        }
    };
}

transcripts!(data generation models options runs);

/// The first cell of each row is a part of a message, which is the same whatever files and numbers it names.
#[test]
fn the_page_of_errors_quotes_the_transcripts() {
    let transcripts = contents(&root().join(TRANSCRIPTS)).into_iter();
    let said: String = transcripts.map(|(_, text)| String::from_utf8(text).unwrap()).collect();
    let page = fs::read_to_string(root().join("docs/reference/errors.md")).unwrap();
    let quoted = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let quoted: Vec<&str> = quoted.map(|(message, _)| message).collect();
    let unsaid: Vec<&&str> = quoted.iter().filter(|message| !said.contains(**message)).collect();
    assert!(quoted.len() >= 50 && unsaid.is_empty(), "of {} messages no program says {unsaid:#?}", quoted.len());
}
