//! `precast log`, with stand-ins for the packages of trackers: `cargo xtask peers trackers` runs it with the real ones.

use crate::support::prelude::*;

/// A tracker with a file in the current directory, which kills its process before a step.
const TRACKIO: &str = r#"
import json, os, pathlib, signal

class Run:
    def __init__(self, name):
        self.path = pathlib.Path(name)
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self._next_step = json.loads(lines[-1])["step"] + 1 if lines else 0

    def log(self, line, step):
        if os.environ.get("KILL_AT") == str(step):
            os.kill(os.getpid(), signal.SIGKILL)
        with self.path.open("a") as file:
            file.write(json.dumps({"step": step, **line}) + "\n")

    def finish(self):
        pass

def init(project, name, config, **_):
    assert config["seq_len"] == 16
    run, id = name.rsplit("-", 1)
    assert len(id) == 8
    return Run(project + "." + run)
"#;

const NOT_INSTALLED: &str = "raise ModuleNotFoundError(\"No module named 'wandb'\", name='wandb')";

/// A run that trains, by its record, and stand-ins of packages.
fn case() -> Case {
    let case = Case::new(17 * 4);
    case.distill("out", "--steps 2").succeeds();
    case.change("out/run.json", |record| record["outcome"] = Value::Null);
    fs::create_dir(case.path("packages")).unwrap();
    case.write("packages/trackio.py", TRACKIO);
    case.write("packages/wandb.py", NOT_INSTALLED);
    case
}

fn log(case: &Case, line: &str) -> Command {
    let path = format!("{}:{}", root().join("trainer/log").display(), std::env::var("PATH").unwrap());
    let mut command = precast();
    command.current_dir(case.dir.path()).env("PATH", path).env("PYTHONPATH", case.path("packages"));
    command.args(["log", "--to"]).with(line);
    command
}

/// A line of `metrics.jsonl` of a step that took a time.
fn line(step: u64, step_ms: f64) -> Value {
    json!({"step": step, "loss": 1.0 / step as f64, "step_ms": step_ms})
}

fn write(case: &Case, lines: &[Value]) {
    case.write("out/metrics.jsonl", lines.iter().map(|line| format!("{line}\n")).collect::<String>());
}

fn logged(case: &Case, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(case.path(name)).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_tracker_has_each_step_once_whatever_is_killed() {
    skip_if!(skipped(Command::new("python3").arg("--version").output().is_err(), "there is no python3"));
    let case = case();
    let mut lines: Vec<Value> = (1..=4).map(|step| line(step, 0.125)).collect();
    write(&case, &lines);
    let before = contents(&case.out());
    let (code, ..) = log(&case, "trackio out").env("KILL_AT", "3").ends();
    assert_eq!((code, logged(&case, "precast.out")), (None, lines[..2].to_vec()));
    log(&case, "trackio --once out").prints("trackio: 4 steps of ");
    assert_eq!(logged(&case, "precast.out"), lines);
    assert!(contents(&case.out()) == before, "the directory is the run's");

    // The run was killed, too, and goes on from step 2: lines behind it are truncated and written again, in other
    // times.
    let mut follows = log(&case, "trackio out").stdout(Stdio::null()).spawn().unwrap();
    lines.push(line(5, 0.125));
    write(&case, &lines);
    wait_while(&mut follows, || logged(&case, "precast.out").len() < 5);
    let again: Vec<Value> = [lines[..2].to_vec(), (3..=6).map(|step| line(step, 0.1875)).collect()].concat();
    write(&case, &again);
    wait_while(&mut follows, || logged(&case, "precast.out").len() < 6);
    // As a run writes it: whole, while somebody reads.
    let mut record = case.json("out/run.json");
    record["outcome"] = json!({"status": "done"});
    case.write("ended.json", record.to_string());
    fs::rename(case.path("ended.json"), case.path("out/run.json")).unwrap();
    assert!(follows.wait().unwrap().success());
    lines.extend_from_slice(&again[5..]);
    assert_eq!(logged(&case, "precast.out"), lines);
}

#[test]
fn what_is_no_number_is_logged_as_one_or_is_absent() {
    skip_if!(skipped(Command::new("python3").arg("--version").output().is_err(), "there is no python3"));
    let case = case();
    let guard = json!([{"cosine": 0.5, "norm": null}, {"cosine": 1.0, "norm": 2.0}]);
    write(&case, &[json!({"step": 1, "loss": null, "skipped": true, "throttle": ["gpu_idle"], "guard": guard})]);
    log(&case, "trackio --once --project p --name n out").succeeds();
    let flat = json!({
        "step": 1, "skipped": 1, "throttle/gpu_idle": 1,
        "guard/0/cosine": 0.5, "guard/1/cosine": 1.0, "guard/1/norm": 2.0
    });
    assert_eq!(logged(&case, "p.n"), [flat]);
}

#[test]
fn what_cannot_be_logged_is_refused_with_a_remedy() {
    skip_if!(skipped(Command::new("python3").arg("--version").output().is_err(), "there is no python3"));
    let case = case();
    log(&case, "wandb out").fails(2, ["wandb is not installed for ", "pip install 'precast[wandb]'"]);
    log(&case, "trackio nothing").fails(5, ["no run at ", "run.json and metrics.jsonl"]);
    log(&case, "trackio .").current_dir(case.out()).fails(2, "start this command outside of it");
    log(&case, "trackio out").env("PATH", "nothing").fails(2, "pip install 'precast[trackio]'");
    write(&case, &[line(1, 0.5), line(3, 0.5)]);
    log(&case, "trackio out").fails(5, "metrics.jsonl: the line of step 2 is missing");
    write(&case, &[]);
    log(&case, "trackio --once out").fails(1, "has no step to log");
    assert!(!case.has("precast.out"));
}
