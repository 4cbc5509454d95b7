//! `.github/workflows/release.yml`: secrets, commands, and the order of its steps. Its containers.

use yaml_rust2::{Yaml, YamlLoader};

use crate::run::root;

/// The command that takes the key, and its variables.
const KEY: &str = "cargo xtask release-key \"";
const SECRETS: &str = "PRECAST_RELEASE_KEY=${{ secrets.PRECAST_RELEASE_KEY }} \
                       PRECAST_KEY_PASSWORD=${{ secrets.PRECAST_KEY_PASSWORD }}";

/// Says of a secret whether there is one, and nothing else.
const IS_THERE: &str = "SIGNED=${{ secrets.PRECAST_RELEASE_KEY != '' }}";

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap()
}

fn text(yaml: &Yaml) -> String {
    let joined = |parts: Vec<String>| parts.join(" ");
    match yaml {
        Yaml::String(text) => text.clone(),
        Yaml::Integer(number) => number.to_string(),
        Yaml::Boolean(flag) => flag.to_string(),
        Yaml::Array(all) => joined(all.iter().map(text).collect()),
        Yaml::Hash(all) => joined(all.iter().map(|(name, value)| format!("{}={}", text(name), text(value))).collect()),
        _ => String::new(),
    }
}

/// The workflow: a line for its start and permissions, one a job and one a step, in their order; and what breaks a
/// rule.
fn listed(workflow: &str) -> (Vec<String>, Vec<String>) {
    let workflow = &YamlLoader::load_from_str(workflow).unwrap()[0];
    let line = |of: &Yaml, fields: &[&str]| -> String {
        let fields = fields.iter().filter(|field| !of[**field].is_badvalue());
        fields.map(|field| format!(" | {field}: {}", text(&of[*field]))).collect()
    };
    let (mut lines, mut faults) = (vec![line(workflow, &["on", "permissions"])], Vec::new());
    for (name, job) in workflow["jobs"].as_hash().unwrap() {
        let fields = ["needs", "if", "runs-on", "environment", "permissions", "env", "outputs"];
        lines.push(format!("{}{}", text(name), line(job, &fields)));
        let mut is_made_again = false;
        for step in job["steps"].as_vec().unwrap() {
            let (run, action, env) = (text(&step["run"]), text(&step["uses"]), text(&step["env"]));
            is_made_again |= run.starts_with("cargo xtask release --reproduce ");
            let commit = action.split_once('@').map_or("", |(_, commit)| commit);
            let is_pinned = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
            let is_command = ["cargo xtask ", "gh "].iter().any(|start| run.starts_with(start));
            let is_one = !run.contains(['\n', ';', '|', '&', '<', '>', '`', '(']) && !run.contains("${{");
            let hands_on =
                action.starts_with("actions/upload-artifact@") && text(&step["with"]).contains("name=wheels");
            for (fault, is_fault) in [
                ("no action by its commit", !action.is_empty() && !is_pinned),
                ("not one command of cargo xtask or gh", action.is_empty() && !(is_command && is_one)),
                ("the key's command has other variables", run.starts_with(KEY) && env != SECRETS),
                ("another command is given the key", !run.starts_with(KEY) && env.contains(SECRETS)),
                ("wheels that were not made again", hands_on && !is_made_again),
            ] {
                faults.extend(is_fault.then(|| format!("{fault}: {run}{action}")));
            }
            let action = action.split('@').next().unwrap_or_default();
            lines.push(format!("  {action}{run}{}", line(step, &["if", "with", "env"])));
        }
    }
    (lines, faults)
}

/// Lists the faults of a workflow by itself.
fn faults(workflow: &str) -> Vec<String> {
    let (lines, mut faults) = listed(workflow);
    // Each mention is one of the key's command, or of the job that asks whether there is a key.
    let known = lines.iter().filter(|line| line.contains(IS_THERE)).count() + 2;
    let mentions = workflow.to_lowercase().matches("secrets").count();
    faults.extend((mentions != known).then(|| format!("{mentions} mentions of secrets")));
    faults
}

/// A tag is built, signed, built again, drafted and published; without a key it ends as a draft; of what fails nothing
/// follows but that the key is removed. The snapshot says so: who changes it reads the steps once more.
#[test]
fn the_workflow_of_releases_is_what_was_reviewed() {
    let workflow = read(".github/workflows/release.yml");
    assert_eq!(faults(&workflow), [""; 0]);
    insta::assert_snapshot!(listed(&workflow).0.join("\n"));
}

#[test]
fn planted_faults_of_the_workflow_are_found() {
    let workflow = read(".github/workflows/release.yml");
    for (from, to, fault) in [
        ("@3d3c42e5aac5ba805825da76410c181273ba90b1", "@v7", "no action by its commit: actions/checkout@v7"),
        ("cargo xtask release --out target/unsigned", "make", "not one command of cargo xtask or gh: make"),
        ("--reproduce target/dist", "--reproduce dist || true", "not one command"),
        ("--check \"$GITHUB_REF_NAME\"", "--check ${{ github.ref_name }}", "not one command"),
        ("cargo xtask release-key", "cargo xtask release --key", "another command is given the key"),
        ("name: dist\n", "name: wheels\n", "wheels that were not made again"),
        ("packages-dir: dist", "password: ${{ SECRETS.X }}", "4 mentions of secrets"),
        ("name: release\n", "name: release ${{ secrets.TOKEN }}\n", "4 mentions of secrets"),
        // These differ from what was reviewed.
        ("tags: [\"v*\"]", "branches: [main]", ""),
        ("permissions: {}", "permissions:\n  contents: write", ""),
        ("id-token: write", "id-token: write\n      contents: write", ""),
        ("environment: pypi", "environment: test", ""),
        ("PRECAST_RELEASE_KEY != ''", "PRECAST_RELEASE_KEY", ""),
        ("NOTES: CHANGELOG.md", "NOTES: ${{ toJSON(github) }}", ""),
        ("if: needs.build.outputs.signed == 'true'", "if: always()", ""),
        ("if: always() && env.SIGNED", "if: env.SIGNED", ""),
        ("needs: [build, reproduce]", "needs: build", ""),
        ("fetch-depth: 0", "fetch-depth: 1", ""),
        ("path: target/dist\n", "path: dist\n", ""),
    ] {
        let changed = workflow.replacen(from, to, 1);
        assert!(changed != workflow && listed(&changed) != listed(&workflow) || from.starts_with("name: "), "{from}");
        let found = faults(&changed).concat();
        assert!(found.contains(fault), "{fault}: {found}");
    }
}

/// Images by digest, packages by version, this checkout's Rust.
#[test]
fn everything_of_an_image_is_pinned() {
    let (text, toolchain) = (read("Containerfile"), read("rust-toolchain.toml"));
    let rust = toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap().trim_matches('"');
    assert!(text.contains(&format!(" --default-toolchain {rust} ")), "rust-toolchain.toml says {rust}");

    let text = text.replace("\\\n", " ");
    let (mut stages, mut packages) = (Vec::new(), 0);
    for line in text.lines() {
        match &*line.split_whitespace().collect::<Vec<_>>() {
            ["ARG", image] if image.starts_with("DEBIAN=") => assert!(image.contains("@sha256:"), "{image}"),
            ["FROM", image, rest @ ..] => {
                assert!(*image == "$DEBIAN" || stages.contains(image), "{image} is no stage");
                stages.extend(rest.last());
            }
            ["RUN", "apt-get", "install", names @ ..] => {
                for name in names.iter().filter(|name| !name.starts_with('-')) {
                    packages += 1;
                    assert!(name.contains('='), "{name} has no version");
                }
            }
            ["ADD", ..] => panic!("{line}"),
            _ if line.contains("https://") => assert!(line.contains("| sha256sum --check"), "{line}"),
            _ => assert!(!line.contains("apt-get install"), "{line}"),
        }
    }
    assert!(stages == ["day", "root", "wheel"] && packages > 4, "{stages:?}, {packages} packages");
}
