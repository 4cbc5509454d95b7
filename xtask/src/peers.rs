//! `cargo xtask peers`: compares files of Precast with those of PEFT, transformers, llama.cpp and TensorBoard, rows
//! of data with what TRL and datasets make of them, and metrics with what trackers hold, on the CPU. It is no part of
//! `cargo xtask test`: torch alone takes 3 GB.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::run::{cargo, output, step};
use crate::setup;

/// Receives the environments of Python, llama.cpp's converter, and what the checks are given.
const DIR: &str = "target/peers";

/// Lists of packages: those of models, those of data, which are newer, and trackers.
const MODELS: &str = "xtask/peers/requirements.txt";
const DATA: &str = "xtask/peers/masks.txt";
const TRACKERS: &str = "xtask/peers/trackers.txt";

/// Names a Python that has the packages of the checks; nothing is installed for it.
const PYTHON: &str = "PRECAST_PEERS_PYTHON";

/// Source package that holds llama.cpp's `convert_hf_to_gguf.py`.
const LLAMA_CPP: [&str; 2] = ["llama-cpp-python", "0.3.36"];

/// Names a trainer in place of the one that is built here.
const PROGRAM: &str = "PRECAST_BIN";

const ENGLISH: &str = "xtask/demo/english-heldout.jsonl";

/// The Python and the trainer of the checks.
struct Peers {
    python: PathBuf,
    program: PathBuf,
}

type Check = fn(&Peers) -> Result<()>;
const CHECKS: [(&str, &str, Check); 7] = [
    ("tensorboard", MODELS, tensorboard),
    ("adapters", MODELS, adapters),
    ("export", MODELS, export),
    ("students", MODELS, students),
    ("masks", DATA, masks),
    ("tokens", DATA, tokens),
    ("trackers", TRACKERS, trackers),
];

/// Runs the named checks, or all.
pub fn peers(names: &[String]) -> Result<()> {
    let known = CHECKS.map(|(name, ..)| name);
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("no check `{name}`: there are {}", known.join(", "));
    }
    fs::create_dir_all(DIR)?;
    let program = program()?;
    for (name, packages, check) in CHECKS {
        if names.is_empty() || names.iter().any(|asked| asked == name) {
            let peers = Peers { python: python(packages)?, program: program.clone() };
            check(&peers).with_context(|| format!("the check `{name}`"))?;
        }
    }
    Ok(())
}

/// Returns the trainer: the environment's, else one of the simulated GPU.
fn program() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os(PROGRAM) {
        return Ok(program.into());
    }
    step("build the trainer, for the simulated GPU", &mut cargo(&["build", "--release"]))?;
    Ok("target/release/precast".into())
}

/// Returns a Python with the packages of a list, installed from PyPI below `target` unless the environment names one.
fn python(packages: &str) -> Result<PathBuf> {
    if let Some(python) = std::env::var_os(PYTHON) {
        println!("{PYTHON} is {}: nothing is installed", python.display());
        return Ok(python.into());
    }
    let environment = Path::new(DIR).join(match packages {
        MODELS => "python",
        DATA => "python-data",
        _ => "python-trackers",
    });
    let python = environment.join("bin/python");
    if !python.exists() {
        step("make an environment of Python", Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    }
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", packages]);
    step("install the peers from PyPI, 3 GB at first", &mut pip)?;
    Ok(python)
}

impl Peers {
    /// Runs a script of `tests/` on arguments.
    fn script(&self, script: &str, arguments: &[&Path]) -> Result<()> {
        step(script, Command::new(&self.python).arg(script).args(arguments).env("TQDM_DISABLE", "1"))
    }

    fn precast(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(line.split_whitespace());
        command
    }
}

fn masks(peers: &Peers) -> Result<()> {
    peers.script("tests/masks/check.py", &[&peers.program])
}

/// Compares a megabyte of text in four languages, of which three are Debian's manual pages, and words with combining
/// marks.
fn tokens(peers: &Peers) -> Result<()> {
    let mut texts = vec![PathBuf::from("xtask/demo/english-train.jsonl")];
    for (package, language) in [("manpages-zh", "zh_CN"), ("manpages-ja", "ja"), ("manpages-ru", "ru")] {
        let unpacked = Path::new(DIR).join(package);
        if !unpacked.exists() {
            step(&format!("fetch {package}"), Command::new("apt-get").args(["download", package]).current_dir(DIR))?;
            // What an interrupted one leaves is not taken for the whole.
            let unpack = format!("dpkg-deb --extract {package}_*.deb {package}.part && mv {package}.part {package}");
            step("unpack it", Command::new("sh").args(["-c", &unpack]).current_dir(DIR))?;
        }
        texts.push(unpacked.join("usr/share/man").join(language).join("man1"));
    }
    texts.extend(["hi", "ta", "th"].map(PathBuf::from));
    let arguments: Vec<&Path> = std::iter::once(&peers.program).chain(&texts).map(PathBuf::as_path).collect();
    peers.script("tests/tokens/check.py", &arguments)
}

fn trackers(peers: &Peers) -> Result<()> {
    peers.script("tests/trackers/check.py", &[&peers.program])
}

fn adapters(peers: &Peers) -> Result<()> {
    peers.script("tests/adapters/check.py", &[&peers.program])
}

fn tensorboard(peers: &Peers) -> Result<()> {
    fs::write(
        format!("{DIR}/tokens.bin"),
        (0..40 * 17u32).flat_map(|at| (at * at % 96).to_le_bytes()).collect::<Vec<u8>>(),
    )?;
    output(&mut peers.precast(&format!("init --config tests/models/tiny.json --overwrite --out {DIR}/tiny")))?;
    let inputs = format!("--model {DIR}/tiny --data {DIR}/tokens.bin --eval-data {DIR}/tokens.bin --eval-every 2");
    let shape = "--steps 6 --batch-size 2 --seq-len 16 --device sim --overwrite --tensorboard";
    output(&mut peers.precast(&format!("train {inputs} {shape} --out {DIR}/run")))?;
    peers.script("tests/tensorboard/check.py", &[Path::new(DIR).join("run").as_path()])
}

fn export(peers: &Peers) -> Result<()> {
    // Of a name with a space the converter guesses no family, version and size, which Precast does not write.
    let model = Path::new(DIR).join("three layers");
    let mut init = peers.precast("init --layers 0,1,2 --overwrite --from");
    output(init.arg(setup::smollm2()?).arg("--out").arg(&model))?;
    let converter = converter(&peers.python)?;
    peers.script("tests/students/export.py", &[&peers.program, &converter, ENGLISH.as_ref(), &model])
}

fn students(peers: &Peers) -> Result<()> {
    let rows = fs::read_to_string(ENGLISH)?;
    let row: serde_json::Value = serde_json::from_str(rows.lines().next().context("a first row")?)?;
    let text = Path::new(DIR).join("text.txt");
    fs::write(&text, row["text"].as_str().context("a text")?.chars().take(700).collect::<String>())?;
    let converter = converter(&peers.python)?;
    peers.script("tests/students/check.py", &[&peers.program, &converter, &text, &setup::smollm2()?])
}

/// Fetches llama.cpp's converter; returns the directory that holds it.
fn converter(python: &Path) -> Result<PathBuf> {
    let [package, version] = LLAMA_CPP;
    let name = format!("{}-{version}", package.replace('-', "_"));
    let converter = Path::new(DIR).join(&name).join("vendor/llama.cpp");
    if !converter.exists() {
        let mut pip = Command::new(python);
        // Of this package alone the sources: what builds it need not be built.
        pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", package, "--dest", DIR]);
        step("fetch llama.cpp's converter", pip.arg(format!("{package}=={version}")))?;
        step("unpack it", Command::new("tar").args(["-xzf", &format!("{DIR}/{name}.tar.gz"), "-C", DIR]))?;
    }
    ensure!(converter.join("convert_hf_to_gguf.py").exists(), "{package} {version} has no converter");
    Ok(converter)
}

#[cfg(test)]
mod tests {
    use super::{DATA, MODELS, TRACKERS, peers};
    use crate::run::root;

    #[test]
    fn every_package_of_the_peers_is_pinned() {
        for packages in [MODELS, DATA, TRACKERS] {
            let listed = std::fs::read_to_string(root().join(packages)).unwrap();
            assert!(listed.lines().count() > 2 && listed.lines().all(|line| line.contains("==")), "{listed}");
        }
    }

    #[test]
    fn an_unknown_check_is_refused_by_name() {
        let refused = peers(&["tensorbord".to_owned()]).unwrap_err().to_string();
        assert_eq!(
            refused,
            "no check `tensorbord`: there are tensorboard, adapters, export, students, masks, tokens, trackers"
        );
    }
}
