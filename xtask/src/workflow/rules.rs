//! Rules of the workflow of releases: commands, permissions, pins, secrets.

use super::run::expressions;
use super::{Job, Step, Workflow, release};

/// A job, its permissions, and its protected environment.
type JobRule = (&'static str, &'static [(&'static str, &'static str)], Option<&'static str>);

const JOBS: [JobRule; 5] = [
    ("build", &[("contents", "read")], Some("release")),
    ("reproduce", &[("contents", "read")], None),
    ("draft", &[("contents", "write")], None),
    ("pypi", &[("id-token", "write")], Some("pypi")),
    ("publish", &[("contents", "write")], None),
];

/// The command that takes the key, and its variables.
const KEY: &str = "cargo xtask release-key \"";
const SECRETS: [(&str, &str); 2] = [
    ("PRECAST_RELEASE_KEY", "${{ secrets.PRECAST_RELEASE_KEY }}"),
    ("PRECAST_KEY_PASSWORD", "${{ secrets.PRECAST_KEY_PASSWORD }}"),
];

/// Says of a secret whether there is one, and nothing else.
const IS_THERE: (&str, &str) = ("SIGNED", "${{ secrets.PRECAST_RELEASE_KEY != '' }}");

fn is_pinned(action: &str) -> bool {
    let is_commit = |commit: &str| commit.len() == 40 && commit.chars().all(|c| "0123456789abcdef".contains(c));
    action.split_once('@').is_some_and(|(name, commit)| name.split('/').count() == 2 && is_commit(commit))
}

/// True if a text names a secret: of the repository, or the job's own token. Case does not matter to GitHub.
fn names_secret(text: &str) -> bool {
    let text = text.to_lowercase();
    ["secrets", "github.token", "tojson"].iter().any(|name| text.contains(name))
}

/// Returns the expressions of a workflow that the simulated one does not know.
fn unknown(workflow: &Workflow) -> Vec<String> {
    let known = expressions("");
    let written = workflow.text.split("${{").skip(1).map(|part| part.split("}}").next().unwrap_or_default().trim());
    let conditions = workflow.jobs.iter().flat_map(|job| {
        job.condition.iter().chain(job.steps.iter().filter_map(|step| step.condition.as_ref())).map(String::as_str)
    });
    let unknown = written.chain(conditions).filter(|expression| !known.contains_key(*expression));
    unknown.map(|expression| format!("unknown expression {expression}")).collect()
}

/// True if a step hands the wheels to PyPI's job.
fn uploads_wheels(step: &Step) -> bool {
    let is_upload = step.action.as_ref().is_some_and(|action| action.starts_with("actions/upload-artifact@"));
    is_upload && pairs(&step.with).contains(&("name", "wheels"))
}

fn pairs(texts: &[(String, String)]) -> Vec<(&str, &str)> {
    texts.iter().map(|(name, value)| (&**name, &**value)).collect()
}

/// Returns what breaks a rule.
fn faults(text: &str) -> Vec<String> {
    let workflow = Workflow::read(text);
    let mut faults = Vec::new();
    if workflow.on != yaml_rust2::YamlLoader::load_from_str("push: {tags: [\"v*\"]}").unwrap()[0] {
        faults.push("it starts by something else than a tag".to_owned());
    }
    if !workflow.permissions.is_empty() {
        faults.push("every job has permissions".to_owned());
    }
    let found = workflow.jobs.iter().map(|job| (&*job.name, pairs(&job.permissions), job.environment.as_deref()));
    let expected = JOBS.iter().map(|(name, permissions, environment)| (*name, permissions.to_vec(), *environment));
    faults.extend(found.zip(expected).filter(|(a, b)| a != b).map(|(job, _)| format!("permissions of {}", job.0)));
    if workflow.jobs.len() != JOBS.len() {
        faults.push("other jobs".to_owned());
    }
    // Comments name no secret either, so each mention is one that is looked at.
    let mentions = workflow.jobs.iter().map(|job| of_job(job, &mut faults)).sum::<usize>();
    if workflow.text.to_lowercase().matches("secrets").count() != mentions {
        faults.push("a secret outside of steps".to_owned());
    }
    faults.extend(unknown(&workflow));
    faults
}

/// Adds the faults of a job; returns how often it may name a secret.
fn of_job(job: &Job, faults: &mut Vec<String>) -> usize {
    let allowed = job.env.iter().filter(|(name, value)| (&**name, &**value) == IS_THERE).count();
    if job.env.iter().chain(&job.outputs).filter(|(_, value)| names_secret(value)).count() != allowed {
        faults.push(format!("{} gives every step a secret", job.name));
    }
    let made_again = |before: &[Step]| {
        let mut commands = before.iter().filter_map(|step| step.run.as_ref());
        commands.any(|command| command.starts_with("cargo xtask release --reproduce "))
    };
    let mut uploads = job.steps.iter().enumerate().filter(|(_, step)| uploads_wheels(step));
    if uploads.any(|(at, _)| !made_again(&job.steps[..at])) {
        faults.push(format!("{} uploads wheels that were not made again", job.name));
    }
    job.steps.iter().map(|step| of_step(step, faults)).sum::<usize>() + allowed
}

fn of_step(step: &Step, faults: &mut Vec<String>) -> usize {
    if let Some(action) = step.action.as_ref().filter(|action| !is_pinned(action)) {
        faults.push(format!("{action} is not pinned by its commit"));
    }
    let command = step.run.as_deref().unwrap_or_default();
    if step.run.is_some() && !["cargo xtask ", "gh "].iter().any(|start| command.starts_with(start))
        || command.contains(['\n', ';', '|', '&', '<', '>', '`', '('])
    {
        faults.push(format!("`{command}` is not one command of cargo xtask or gh"));
    }
    if command.contains("${{") || names_secret(command) {
        faults.push(format!("`{command}` is put together from outside"));
    }
    let takes_key = command.starts_with(KEY) && pairs(&step.env) == SECRETS;
    for (name, value) in step.env.iter().chain(&step.with).filter(|(_, value)| names_secret(value)) {
        let is_token = command.starts_with("gh ") && (&**name, &**value) == ("GH_TOKEN", "${{ github.token }}");
        if !takes_key && !is_token {
            faults.push(format!("a step is given {name}"));
        }
    }
    if takes_key { SECRETS.len() } else { 0 }
}

#[test]
fn the_workflow_of_releases_keeps_its_rules() {
    assert_eq!(faults(&release()), [""; 0]);
}

#[test]
fn planted_faults_of_the_workflow_are_found() {
    let text = release();
    for (from, to, fault) in [
        ("tags: [\"v*\"]", "branches: [main]", "it starts by something else"),
        ("permissions: {}", "permissions:\n  contents: write", "every job has permissions"),
        ("id-token: write", "id-token: write\n      contents: write", "permissions of pypi"),
        ("environment: pypi", "environment: test", "permissions of pypi"),
        ("@3d3c42e5aac5ba805825da76410c181273ba90b1", "@v7", "actions/checkout@v7 is not pinned"),
        ("cargo xtask release --out target/unsigned", "make", "`make` is not one command"),
        (
            "--reproduce target/dist",
            "--reproduce dist || true",
            "`cargo xtask release --reproduce dist || true` is not one",
        ),
        ("--check \"$GITHUB_REF_NAME\"", "--check ${{ github.ref_name }}", "`cargo xtask release --check ${{"),
        ("PRECAST_RELEASE_KEY != ''", "PRECAST_RELEASE_KEY", "build gives every step a secret"),
        ("cargo xtask release-key", "cargo xtask release --key", "a step is given PRECAST_RELEASE_KEY"),
        ("packages-dir: dist", "password: ${{ secrets.TOKEN }}", "a step is given password"),
        ("packages-dir: dist", "password: ${{ SECRETS.X }}", "a step is given password"),
        ("NOTES: CHANGELOG.md", "NOTES: ${{ toJSON(github) }}", "a step is given NOTES"),
        ("NOTES: CHANGELOG.md", "NOTES: ${{ github.event.head_commit.message }}", "unknown expression github.event"),
        ("if: needs.build.outputs.signed == 'true'", "if: always()", "unknown expression always()"),
        ("name: dist\n", "name: wheels\n", "build uploads wheels that were not made again"),
        ("name: release\n", "name: release ${{ secrets.TOKEN }}\n", "a secret outside of steps"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        let found = faults(&changed);
        assert!(found.first().is_some_and(|first| first.starts_with(fault)), "{fault}: {found:?}");
    }
}
