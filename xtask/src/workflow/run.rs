//! Runs the steps of the workflow one after the other, with stand-ins for `cargo`, `gh` and actions.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Step, Texts, Workflow, release};

/// Makes what a release makes, under the names that it has with and without a key, and writes down each call.
const CARGO: &str = r#"#!/bin/bash
echo "cargo $*" >> "$LOG"
[[ "cargo $*" == "$FAILS" ]] && exit 1
[[ "$2" != release-key && -n "$PRECAST_RELEASE_KEY$PRECAST_KEY_PASSWORD" ]] && echo "it is given a secret" >> "$LOG"
case "$*" in
"xtask release-key --remove "*) rm -f "$4" ;;
"xtask release-key "*)
    [[ "$PRECAST_RELEASE_KEY" == "the key" ]] && (umask 077 && echo "$PRECAST_RELEASE_KEY" > "$3") ;;
"xtask release --out "*)
    mkdir -p "$4" && cd "$4" || exit 1
    [[ "$5" == --key ]] || touch precast-0.1.0+unsigned-py3-none-manylinux_2_28_x86_64.whl SHA256SUMS-unsigned
    [[ "$5" != --key ]] || { [[ -s "$6" ]] && touch precast-0.1.0-py3-none-manylinux_2_28_x86_64.whl SHA256SUMS && echo signature > SHA256SUMS.minisig; } ;;
"xtask release --reproduce "*) ls "$4"/SHA256SUMS* > /dev/null ;;
"xtask release --check v0.1.0") [[ -e "$RUNNER_TEMP/tags" ]] ;;
"xtask release --check v0.1.0 --out "*) [[ -s "$6/SHA256SUMS.minisig" && ! -e "$RUNNER_TEMP/release.key" ]] ;;
*) exit 1 ;;
esac
"#;

const GH: &str = r#"#!/bin/bash
echo "gh $*" >> "$LOG"
[[ "gh $*" == "$FAILS" ]] && exit 1
[[ -n "$GH_TOKEN" && "$GH_REPO" == example/precast ]]
"#;

/// Returns the expressions that the file may have, and their values with a key or, where it is empty, without.
pub(super) fn expressions(key: &str) -> BTreeMap<String, String> {
    let is_signed = (!key.is_empty()).to_string();
    let expressions = [
        ("secrets.PRECAST_RELEASE_KEY", key),
        ("secrets.PRECAST_RELEASE_KEY != ''", &is_signed),
        ("secrets.PRECAST_KEY_PASSWORD", if key.is_empty() { "" } else { "a password" }),
        ("env.SIGNED", &is_signed),
        ("env.SIGNED == 'true'", &is_signed),
        ("always() && env.SIGNED == 'true'", &is_signed),
        ("env.SIGNED == 'true' && 'signed' || 'unsigned'", if key.is_empty() { "unsigned" } else { "signed" }),
        ("needs.build.outputs.signed == 'true'", &is_signed),
        ("github.token", "a token"),
        ("github.repository", "example/precast"),
    ];
    expressions.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// A run of the workflow.
struct Simulation {
    dir: tempfile::TempDir,
    /// Their values; any other panics.
    expressions: BTreeMap<String, String>,
    /// The line of the log that fails.
    fails: String,
}

impl Simulation {
    fn new(key: &str, fails: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, script) in [("cargo", CARGO), ("gh", GH)] {
            let path = dir.path().join(name);
            fs::write(&path, script).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { dir, expressions: expressions(key), fails: fails.to_owned() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn value(&self, expression: &str) -> &str {
        self.expressions.get(expression).unwrap_or_else(|| panic!("unknown expression {expression}"))
    }

    /// Returns a text with its expressions evaluated.
    fn text(&self, text: &str) -> String {
        let mut parts = text.split("${{");
        let mut whole = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (expression, rest) = part.split_once("}}").expect("an expression ends");
            whole += self.value(expression.trim());
            whole += rest;
        }
        whole
    }

    fn is_true(&self, condition: Option<&String>) -> bool {
        condition.is_none_or(|condition| self.value(condition) == "true")
    }

    fn write(&self, line: &str) -> bool {
        let log = self.log() + line + "\n";
        fs::write(self.path("log"), log).unwrap();
        line != self.fails
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Runs the jobs in their order, each after those that it needs; returns what was called.
    fn run(self) -> Vec<String> {
        let workflow = Workflow::read(&release());
        let mut succeeded: Vec<&str> = Vec::new();
        for job in &workflow.jobs {
            let is_due = job.needs.iter().all(|name| succeeded.contains(&&**name));
            if !is_due || !self.is_true(job.condition.as_ref()) {
                continue;
            }
            assert!(job.outputs.iter().all(|(_, value)| value == "${{ env.SIGNED }}"));
            let here = self.path(&job.name);
            fs::create_dir(&here).unwrap();
            let mut succeeds = true;
            for step in job.steps.iter().filter(|step| self.is_true(step.condition.as_ref())) {
                let is_due = succeeds || step.condition.as_ref().is_some_and(|text| text.starts_with("always()"));
                succeeds &= !is_due || self.step(step, &job.env, &here);
            }
            if succeeds {
                succeeded.push(&job.name);
            }
        }
        let log = self.log();
        assert!(!log.contains("the key") && !log.contains("a password") && !log.contains("a token"), "{log}");
        log.lines().map(|line| line.replace(&*self.dir.path().to_string_lossy(), "TEMP")).collect()
    }

    fn step(&self, step: &Step, env: &Texts, here: &Path) -> bool {
        let Some(command) = &step.run else { return self.action(step, here) };
        let env = env.iter().chain(&step.env).map(|(name, value)| (name, self.text(value)));
        let path = format!("{}:/usr/bin:/bin", self.dir.path().display());
        let mut shell = Command::new("bash");
        shell.args(["-e", "-c", command]).current_dir(here).env_clear().envs(env).env("PATH", path);
        shell.env("LOG", self.path("log")).env("FAILS", &self.fails);
        shell.env("GITHUB_REF_NAME", "v0.1.0").env("RUNNER_TEMP", here).status().unwrap().success()
    }

    /// Stands in for an action.
    fn action(&self, step: &Step, here: &Path) -> bool {
        let given = |name: &str| {
            let value = step.with.iter().find(|(own, _)| own == name).map(|(_, value)| self.text(value));
            value.unwrap_or_else(|| panic!("{:?} has no {name}", step.action))
        };
        let kept = |name: String| self.path(&format!("artifact {name}"));
        let action = step.action.as_deref().unwrap_or_default().split('@').next().unwrap_or_default();
        match action {
            "actions/checkout" => {
                // All of the history, and with it the tags.
                if step.with.contains(&("fetch-depth".to_owned(), "0".to_owned())) {
                    fs::write(here.join("tags"), "").unwrap();
                }
                given("persist-credentials") == "false"
            }
            "actions/upload-artifact" => {
                let path = given("path");
                let (from, end) = path.split_once("/*").unwrap_or((&path, ""));
                copy(&here.join(from), end, &kept(given("name")))
            }
            "actions/download-artifact" => copy(&kept(given("name")), "", &here.join(given("path"))),
            "pypa/gh-action-pypi-publish" => {
                self.write(&format!("pypi {}", names(&here.join(given("packages-dir"))).join(" ")))
            }
            other => panic!("{other} has no stand-in"),
        }
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Copies the files whose names have an end; false if there is none.
fn copy(from: &Path, end: &str, to: &Path) -> bool {
    let names: Vec<String> = names(from).into_iter().filter(|name| name.ends_with(end)).collect();
    fs::create_dir_all(to).unwrap();
    for name in &names {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
    !names.is_empty()
}

const NOTES: &str =
    "CHANGELOG.md says what changed, and docs/guides/installing.md how to verify these files and to make them again.";

/// Returns what the workflow calls with a key, in this order.
fn signed() -> Vec<String> {
    let create = format!("gh release create v0.1.0 --draft --verify-tag --title v0.1.0 --notes {NOTES}");
    vec![
        "cargo xtask release --check v0.1.0".to_owned(),
        "cargo xtask release --out target/unsigned".to_owned(),
        "cargo xtask release-key TEMP/build/release.key".to_owned(),
        "cargo xtask release --out target/signed --key TEMP/build/release.key".to_owned(),
        "cargo xtask release-key --remove TEMP/build/release.key".to_owned(),
        "cargo xtask release --check v0.1.0 --out target/signed".to_owned(),
        "cargo xtask release --reproduce target/dist".to_owned(),
        format!(
            "{create} dist/SHA256SUMS dist/SHA256SUMS.minisig dist/precast-0.1.0-py3-none-manylinux_2_28_x86_64.whl"
        ),
        "pypi precast-0.1.0-py3-none-manylinux_2_28_x86_64.whl".to_owned(),
        "gh release edit v0.1.0 --draft=false".to_owned(),
    ]
}

#[test]
fn a_tag_is_built_signed_built_again_and_published() {
    assert_eq!(Simulation::new("the key", "").run(), signed());
}

#[test]
fn without_a_key_a_tag_ends_as_a_draft() {
    let mut expected = signed();
    let create = expected[7].split(" dist/").next().unwrap().to_owned();
    expected.truncate(7);
    expected.retain(|line| !line.contains("key") && !line.contains("signed") || line.contains("unsigned"));
    expected.push(create + " dist/SHA256SUMS-unsigned dist/precast-0.1.0+unsigned-py3-none-manylinux_2_28_x86_64.whl");
    assert_eq!(Simulation::new("", "").run(), expected);
}

#[test]
fn a_failure_in_the_middle_publishes_nothing() {
    let expected = signed();
    let removes = expected.iter().position(|line| line.contains("--remove")).unwrap();
    for (at, line) in expected.iter().enumerate() {
        let simulation = Simulation::new("the key", "");
        let fails = line.replace("TEMP", &simulation.dir.path().to_string_lossy());
        let log = Simulation { fails, ..simulation }.run();
        let mut called = expected[..=at].to_vec();
        called.extend((at < removes).then(|| expected[removes].clone()));
        assert_eq!(log, called, "nothing follows what fails, but that the key is removed");
    }
}
