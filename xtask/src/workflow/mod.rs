//! `.github/workflows/release.yml`: read strictly, held to its rules, and run here with stand-ins. Its containers.

mod container;
mod rules;
mod run;

use yaml_rust2::yaml::Hash;
use yaml_rust2::{Yaml, YamlLoader};

/// Text of a field by its name.
type Texts = Vec<(String, String)>;

struct Workflow {
    text: String,
    /// Events that start it, as written.
    on: Yaml,
    permissions: Texts,
    jobs: Vec<Job>,
}

struct Job {
    name: String,
    needs: Vec<String>,
    condition: Option<String>,
    environment: Option<String>,
    permissions: Texts,
    env: Texts,
    outputs: Texts,
    steps: Vec<Step>,
}

struct Step {
    condition: Option<String>,
    action: Option<String>,
    run: Option<String>,
    with: Texts,
    env: Texts,
}

/// Returns the workflow of this checkout.
fn release() -> String {
    std::fs::read_to_string(crate::run::root().join(".github/workflows/release.yml")).unwrap()
}

impl Workflow {
    /// Reads a workflow of the few fields that this one has; panics at any other.
    fn read(text: &str) -> Self {
        let documents = YamlLoader::load_from_str(text).unwrap();
        let [document] = &*documents else { panic!("{} documents", documents.len()) };
        let fields = fields(document, &["name", "on", "permissions", "jobs"]);
        let jobs = hash(&fields["jobs"]).iter().map(|(name, job)| Job::read(&word(name), job)).collect();
        let (on, permissions) = (fields["on"].clone(), texts(&fields["permissions"]));
        Self { text: text.to_owned(), on, permissions, jobs }
    }
}

impl Job {
    fn read(name: &str, job: &Yaml) -> Self {
        const FIELDS: [&str; 9] =
            ["needs", "if", "runs-on", "timeout-minutes", "environment", "permissions", "env", "outputs", "steps"];
        let fields = fields(job, &FIELDS);
        let needs = match &fields["needs"] {
            Yaml::Array(names) => names.iter().map(word).collect(),
            Yaml::BadValue => Vec::new(),
            name => vec![word(name)],
        };
        assert!(matches!(fields["runs-on"], Yaml::String(_)) && matches!(fields["timeout-minutes"], Yaml::Integer(_)));
        // A job without them has those of the repository's settings.
        assert!(matches!(fields["permissions"], Yaml::Hash(_)), "{name} has no permissions");
        Self {
            name: name.to_owned(),
            needs,
            condition: optional(&fields["if"]),
            environment: optional(&fields["environment"]),
            permissions: texts(&fields["permissions"]),
            env: texts(&fields["env"]),
            outputs: texts(&fields["outputs"]),
            steps: fields["steps"].as_vec().unwrap().iter().map(Step::read).collect(),
        }
    }
}

impl Step {
    fn read(step: &Yaml) -> Self {
        let fields = fields(step, &["if", "uses", "run", "with", "env"]);
        let (action, run) = (optional(&fields["uses"]), optional(&fields["run"]));
        assert!(action.is_some() != run.is_some(), "a step is an action or a command: {step:?}");
        let condition = optional(&fields["if"]);
        Self { condition, action, run, with: texts(&fields["with"]), env: texts(&fields["env"]) }
    }
}

fn hash(yaml: &Yaml) -> &Hash {
    yaml.as_hash().unwrap_or_else(|| panic!("{yaml:?} has no fields"))
}

/// Returns a value, once all of its fields are known ones; absent ones are [`Yaml::BadValue`].
fn fields<'y>(yaml: &'y Yaml, known: &[&str]) -> &'y Yaml {
    for name in hash(yaml).keys() {
        assert!(known.contains(&&*word(name)), "unknown field {name:?}");
    }
    yaml
}

fn word(yaml: &Yaml) -> String {
    match yaml {
        Yaml::String(text) => text.clone(),
        Yaml::Boolean(value) => value.to_string(),
        Yaml::Integer(value) => value.to_string(),
        other => panic!("{other:?} is no text"),
    }
}

fn optional(yaml: &Yaml) -> Option<String> {
    (!yaml.is_badvalue()).then(|| word(yaml))
}

fn texts(yaml: &Yaml) -> Texts {
    match yaml {
        Yaml::BadValue => Vec::new(),
        fields => hash(fields).iter().map(|(name, value)| (word(name), word(value))).collect(),
    }
}
