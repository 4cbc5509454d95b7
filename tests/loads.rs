//! What was loaded is on record, in order, and said as it happens; and a run first says what it runs on.

use std::collections::BTreeSet;
use std::process::Command;

use precast::inputs::checkpoint::{Checkpoint, Weights};
use precast_system::files::Existing;

use crate::copies::Host;
use crate::driver::{machine, sm_121};
use crate::support::{
    bundle, device, distill, has_driver, is_note, lacks_compiler, precast, random_model, smollm2, succeed, texts,
    tiny_config, token_file,
};

/// (key and variant, digest, bytes) of each line that --verbose prints.
fn said(stderr: &str) -> Vec<(String, String, u64)> {
    let field = |line: &str, name: &str| -> String {
        let (_, rest) = line.split_once(&format!(" {name}=")).unwrap_or_else(|| panic!("no {name} in {line}"));
        rest.split(' ').next().unwrap().to_owned()
    };
    let lines = stderr.lines().filter(|line| line.trim_start().starts_with("load "));
    let of_line = |line: &str| {
        assert!(field(line, "microseconds").parse::<u64>().is_ok(), "{line}");
        (field(line, "kernel"), field(line, "sha256").replace('"', ""), field(line, "bytes").parse().unwrap())
    };
    lines.map(of_line).collect()
}

fn small(command: &mut Command) -> &mut Command {
    command.args([
        "--steps",
        "1",
        "--batch-size",
        "2",
        "--seq-len",
        "16",
        "--precision",
        "bf16",
        "--checkpoint-every",
        "0",
    ])
}

#[test]
fn every_load_is_in_the_record_and_said_as_it_happens() {
    if has_driver() {
        return;
    }
    let gb10 = machine(&[]);
    let dir = gb10.path();
    let student = random_model(dir, "student", 1, &tiny_config(&[]));
    let data = token_file(dir, "data.bin", 17 * 4, 96);
    let (kernels, out, log) = (sm_121(dir), dir.join("out"), dir.join("log"));
    let mut run = precast();
    run.args(["distill", "--allow-identical", "--device", "cuda:0", "--verbose", "--teacher"])
        .arg(&student)
        .arg("--student")
        .arg(&student);
    run.arg("--data").arg(&data).arg("--out").arg(&out).arg("--bundle").arg(&kernels);
    run.env("PRECAST_LIBCUDA_LOG", &log);
    let output = gb10.run(small(&mut run)).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");

    let record: serde_json::Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
    let loads = record["loads"].as_array().unwrap();
    let text = |load: &serde_json::Value, field: &str| load[field].as_str().unwrap().to_owned();
    let recorded: Vec<(String, String, u64)> = loads
        .iter()
        .map(|load| {
            assert!(load["microseconds"].is_u64());
            let pair = format!("{}[{}]", text(load, "key"), text(load, "variant"));
            (pair, text(load, "sha256"), load["bytes"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(recorded, said(&stderr));
    // As the driver saw it.
    let calls = std::fs::read_to_string(log).unwrap();
    assert_eq!(calls.lines().filter(|call| *call == "load").count(), recorded.len());
    // And with the digests that the bundle has for them.
    let listed: serde_json::Value =
        serde_json::from_str(&succeed(precast().args(["kernels", "--json", "--bundle"]).arg(&kernels))).unwrap();
    let in_bundle = listed["kernels"].as_array().unwrap().iter().map(|kernel| {
        let pair = format!("{}[{}]", text(kernel, "key"), text(kernel, "variant"));
        (pair, text(kernel, "sha256"), kernel["bytes"].as_u64().unwrap())
    });
    let in_bundle: BTreeSet<(String, String, u64)> = in_bundle.collect();
    assert!(recorded.len() > 10 && recorded.iter().all(|load| in_bundle.contains(load)));
}

#[test]
fn a_run_first_says_what_it_runs_on() {
    let dir = tempfile::tempdir().unwrap();
    let model = random_model(dir.path(), "model", 1, &tiny_config(&[]));
    let narrow = dir.path().join("narrow");
    precast::programs::init::random(
        &dir.path().join("model.json"),
        None,
        1,
        precast_plan::Precision::Bf16,
        &narrow,
        Existing::Keep,
    )
    .unwrap();
    let data = token_file(dir.path(), "data.bin", 17 * 4, 96);
    let out = dir.path().join("out");
    let printed = succeed(small(&mut distill(&model, &narrow, &data, &out)));
    let record: serde_json::Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
    let (arch, digest) = (record["device"]["arch"].as_str().unwrap(), record["bundle"].as_str().unwrap());
    let name = record["device"]["name"].as_str().unwrap();
    let expect = |printed: &str, model_lines: &[String]| {
        // How warm a GPU is comes after that of which it runs, and not everywhere.
        let lines: Vec<&str> = printed.lines().filter(|line| !line.starts_with("gpu ") && !is_note(line)).collect();
        assert!(lines[0].starts_with(&format!("device   {name} (")), "{printed}");
        // People read the name that --arch takes.
        assert_eq!(lines[1], format!("arch     {}", arch.replace("sm_90a", "sm_90")), "{printed}");
        assert!(lines[2].starts_with("bundle   ") && lines[2].ends_with(" kernels"), "{printed}");
        assert_eq!(lines[3..3 + model_lines.len()], *model_lines, "{printed}");
        lines[2].to_owned()
    };
    let tensors = [(&model, "F32, 20 tensors"), (&narrow, "BF16, 20 tensors")];
    let [wide, narrow] = tensors.map(|(model, formats)| format!("{}: {formats}", model.display()));
    let bundle_line = expect(&printed, &[format!("teacher  {wide}"), format!("student  {narrow}")]);
    assert_eq!(bundle_line, format!("bundle   {digest}, {} kernels", record["loads"].as_array().unwrap().len()));

    let with_bundle = |command: &mut Command| {
        command.args(["--device", &device()]);
        if let Some(bundle) = bundle() {
            command.arg("--bundle").arg(bundle);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        texts(&output)
    };
    let mut eval = precast();
    eval.args(["eval", "--untrained", "--seq-len", "16", "--model"]).arg(&model).arg("--data").arg(&data);
    // Where a program reads the result, the heading is not beside it.
    expect(&with_bundle(&mut eval).1, &[format!("model    {wide}")]);
    let (json, stderr) = with_bundle(eval.arg("--json"));
    assert!(
        serde_json::from_str::<serde_json::Value>(&json).is_ok() && !stderr.contains("device "),
        "{json}\n{stderr}"
    );
    let mut bench = precast();
    bench.args(["bench", "--steps", "1", "--batch-size", "2", "--seq-len", "16", "--student"]).arg(&model);
    bench.arg("--teacher").arg(dir.path().join("model.json"));
    let teacher = format!("teacher  {}: random weights", dir.path().join("model.json").display());
    expect(&with_bundle(&mut bench).0, &[teacher, format!("student  {wide}")]);
}

#[test]
fn a_quantized_model_says_its_formats() {
    let Some(model) = smollm2() else { return };
    let formats = Weights::stored(&Checkpoint::open(model.as_ref()).unwrap());
    assert_eq!(formats, "Q4_1+F32+Q8_0, 272 tensors");
}

/// Completions in fewer slots than there are, and whole, half and quarter micro-batches of them, as the driver sees it.
#[test]
fn nothing_is_loaded_or_taken_while_a_student_writes_and_learns() {
    if has_driver() || lacks_compiler() {
        return;
    }
    let host = Host::new(&[("PRECAST_FAKE_LOG_MEMORY", "1"), ("PRECAST_FAKE_INTEGRATED", "0")]);
    for (prompt, completion) in [("3", "12"), ("3", "5"), ("2", "3")] {
        let log = host.out(&format!("log-{completion}"));
        let shape = ["--on-policy", "--prompt-tokens", prompt, "--max-tokens", completion, "--rollout-slots", "3"];
        let mut run =
            host.distill(completion, &[&shape[..], &["--grad-accum", "8", "--steps", "2"]].concat().join(" "));
        succeed(run.args(["--checkpoint-every", "0"]).env("PRECAST_LIBCUDA_LOG", &log));
        let calls = std::fs::read_to_string(log).unwrap();
        let calls: Vec<&str> = calls.lines().collect();
        let first = calls.iter().position(|call| *call == "launch").unwrap();
        let taken = |calls: &[&str]| {
            let takes = |call: &&&str| ["load", "alloc", "pin"].iter().any(|of| call.starts_with(of));
            calls.iter().filter(takes).count()
        };
        assert!(taken(&calls[..first]) > 10 && taken(&calls[first..]) == 0, "{completion}: {calls:?}");
        // A decode a token of each of the three turns at the slots.
        let launches = calls[first..].iter().filter(|call| **call == "launch").count();
        assert!(launches > 2 * 3 * completion.parse::<usize>().unwrap(), "{completion}: {launches}");
    }
}
