//! Programs: how they are started, and how they end.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::root;

/// The `precast` program.
pub fn precast() -> Command {
    let mut command = Command::new(program());
    command.envs(NO_PROGRESS);
    command
}

fn program() -> PathBuf {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_precast"));
    std::env::var_os("PRECAST_BIN").map_or(built, |program| root().join(program))
}

/// The `precast-aot` program, built beside the other.
pub fn precast_aot() -> Command {
    let path = program().with_file_name("precast-aot");
    assert!(path.exists(), "{} is not built: run the tests with `cargo xtask test`", path.display());
    let mut command = Command::new(path);
    command.envs(NO_PROGRESS);
    command
}

/// A slow machine adds no line of progress to what tests read.
const NO_PROGRESS: [(&str, &str); 1] = [("PRECAST_PROGRESS_S", "86400")];

/// A command that another program starts: its arguments, variables and directory are the command's.
pub fn under(mut outer: Command, command: &Command) -> Command {
    outer.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        outer.current_dir(directory);
    }
    outer
}

/// The command, whose program heeds the signals that whoever started the tests ignores.
pub fn heeding(command: &Command) -> Command {
    let mut heeding = Command::new("env");
    heeding.arg("--default-signal=HUP,INT,QUIT,TERM");
    under(heeding, command)
}

/// A text or several, by whatever type a call has at hand.
pub trait Texts {
    fn each(&self) -> Vec<&str>;

    /// The words of all, which spaces part.
    fn words(&self) -> Vec<&str> {
        self.each().into_iter().flat_map(str::split_whitespace).collect()
    }
}

impl Texts for str {
    fn each(&self) -> Vec<&str> {
        vec![self]
    }
}

impl Texts for String {
    fn each(&self) -> Vec<&str> {
        vec![self]
    }
}

impl<T: Texts + ?Sized> Texts for &T {
    fn each(&self) -> Vec<&str> {
        (**self).each()
    }
}

impl<T: Texts> Texts for [T] {
    fn each(&self) -> Vec<&str> {
        self.iter().flat_map(Texts::each).collect()
    }
}

impl<T: Texts, const N: usize> Texts for [T; N] {
    fn each(&self) -> Vec<&str> {
        self[..].each()
    }
}

impl<T: Texts> Texts for Vec<T> {
    fn each(&self) -> Vec<&str> {
        self[..].each()
    }
}

/// How a command is completed, run and judged.
pub trait Process {
    /// Adds the words of a command line.
    fn with(&mut self, line: impl Texts) -> &mut Self;

    /// Runs a program. Returns its exit code, and what it wrote to standard output and standard error.
    fn ends(&mut self) -> (Option<i32>, String, String);

    /// Runs a program that must succeed. Returns what it wrote to standard output and standard error.
    fn says(&mut self) -> [String; 2];

    /// Runs a program that must succeed. Returns what it prints.
    fn succeeds(&mut self) -> String {
        let [stdout, _] = self.says();
        stdout
    }

    /// Runs a program that must succeed and print each of the texts. Returns what it prints.
    fn prints(&mut self, said: impl Texts) -> String {
        let stdout = self.succeeds();
        said.each().iter().for_each(|text| assert!(stdout.contains(text), "no `{text}` in {stdout}"));
        stdout
    }

    /// Runs a program that must succeed. Returns the JSON that it prints.
    fn json(&mut self) -> Value {
        serde_json::from_str(&self.succeeds()).expect("it prints JSON")
    }

    /// Runs a program that must fail with an exit code and say each of the texts. Returns its error message.
    fn fails(&mut self, exit_code: i32, said: impl Texts) -> String;
}

impl Process for Command {
    fn with(&mut self, line: impl Texts) -> &mut Self {
        self.args(line.words())
    }

    fn ends(&mut self) -> (Option<i32>, String, String) {
        let output = self.output().expect("the program starts");
        let (stdout, stderr) = texts(&output);
        (output.status.code(), stdout, stderr)
    }

    fn says(&mut self) -> [String; 2] {
        let (code, stdout, stderr) = self.ends();
        assert_eq!(code, Some(0), "{self:?}\n{stdout}\n{stderr}");
        [stdout, stderr]
    }

    fn fails(&mut self, exit_code: i32, said: impl Texts) -> String {
        let (code, stdout, stderr) = self.ends();
        assert_eq!(code, Some(exit_code), "{self:?}\n{stdout}\n{stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
        // Notes may come first, and a heading.
        let error = stderr.lines().find(|line| !is_note(line) && !is_heading(line));
        assert!(error.is_some_and(|line| line.starts_with("error: ")), "{stderr}");
        for text in said.each() {
            assert!(stderr.contains(text), "no `{text}` in {stderr}");
        }
        stderr
    }
}

/// Runs a program that must succeed and returns what it prints.
pub fn succeed(command: &mut Command) -> String {
    command.succeeds()
}

/// True for a line that ends nothing: it may come before an error.
pub fn is_note(line: &str) -> bool {
    line.starts_with("note: ") || line.starts_with("warning: ")
}

/// True for a line of the heading that `eval`, `generate` and `cache` begin with.
pub fn is_heading(line: &str) -> bool {
    const NAMES: [&str; 7] = ["device", "arch", "bundle", "GEMMs", "model", "teacher", "adapter"];
    line.is_empty() || NAMES.iter().any(|name| line.starts_with(&format!("{name:<8} ")))
}

/// The number that follows some text in a message.
pub fn number_after(text: &str, message: &str) -> u64 {
    let (_, rest) = message.split_once(text).unwrap_or_else(|| panic!("no {text} in {message}"));
    rest.split(' ').next().unwrap().parse().unwrap()
}

/// What a program wrote to standard output and standard error.
pub fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// A line of a shell in a directory, with the programs on the path.
pub fn shell(line: &str, directory: &Path) -> Command {
    let programs = program().parent().expect("a directory of programs").display().to_string();
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(directory).envs(NO_PROGRESS);
    shell.env("PATH", format!("{programs}:{}", std::env::var("PATH").expect("a path")));
    shell
}
