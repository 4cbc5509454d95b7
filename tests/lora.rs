//! Low-rank adapters.

use std::path::{Path, PathBuf};

use half::{bf16, f16};
use precast::inputs::adapter::{Adapter, Layout, Lora, Target, fill_adapter};
use precast::inputs::checkpoint::{Checkpoint, CheckpointError, Scratch, Student, Weights, write_model};
use precast::inputs::data::MicroBatch;
use precast::run::step::StepRecord;
use precast_kernels::{Block, Dtype};
use precast_plan::{Factor, Formats, ModelConfig, Parameters};
use precast_system::files::{Aside, Existing};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use safetensors::SafeTensors;
use safetensors::tensor::Dtype as Stored;

use crate::gguf;
use crate::support::{
    self, Case, adapter_gradient, distill, fail, floats, is_sim, metrics_of, model_config, names_in, on_device,
    precast, random_model, run_record, succeed, texts, tiny_config, token_file, train,
};

/// What `--lora-rank`, `--lora-alpha` and `--lora-targets` say.
pub fn lora(rank: u32, alpha: f64, targets: &str) -> Lora {
    Lora {
        rank,
        alpha,
        targets: targets.split(',').map(|target| target.parse::<Target>().unwrap()).collect(),
        rslora: false,
    }
}

/// Writes an adapter of uniform values, A's and B's, below `dir`.
pub fn adapter(dir: &Path, name: &str, model: &ModelConfig, lora: &Lora, seed: u64) -> PathBuf {
    let path = dir.join(name);
    let layout = Layout::new(model, lora);
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut aside = Aside::new(&path).unwrap();
    fill_adapter(&mut aside, &layout, (Path::new("base"), model), |adapted, factor, write| {
        let bound = if factor == Factor::A { 0.2 } else { 0.05 };
        let count = adapted.shape(factor).iter().product::<u64>();
        let values: Vec<f32> = (0..count).map(|_| rng.random_range(-bound..bound)).collect();
        write(bytemuck::cast_slice(&values))
    })
    .unwrap();
    aside.publish(Existing::Keep).unwrap();
    path
}

/// A copy of a model in another dtype.
fn in_dtype(model: &Path, out: &Path, dtype: Stored) -> PathBuf {
    let model = Checkpoint::open(model).unwrap();
    let parameters = Parameters::new(model.config()).list;
    let student = Student { config: &model.json, parameters: &parameters, dtype, tokenizer_from: &[] };
    write_model(out, Existing::Keep, &student, |parameter, write| -> Result<(), CheckpointError> {
        let values = floats(model.read(parameter, Dtype::F32.into(), &mut Scratch::default())?);
        let halves = |narrow: fn(f32) -> [u8; 2]| values.iter().flat_map(|value| narrow(*value)).collect::<Vec<u8>>();
        match dtype {
            Stored::F16 => write(&halves(|value| f16::from_f32(value).to_le_bytes())),
            Stored::BF16 => write(&halves(|value| bf16::from_f32(value).to_le_bytes())),
            _ => write(bytemuck::cast_slice(&values)),
        }
    })
    .unwrap();
    out.to_owned()
}

fn merge(model: &Path, adapter: &Path, out: &Path) -> std::process::Command {
    let mut command = precast();
    command.arg("merge").arg("--model").arg(model).arg("--adapter").arg(adapter).arg("--out").arg(out);
    command
}

/// |found - exact| <= u |exact| + (rank + 2) 2^-24 (|w| + scale |b| |a|), u being half a unit in the last place of the dtype that
/// is written: the sum is computed in f32 and rounded once. All else is as it was.
#[test]
fn a_merged_model_is_its_base_and_the_adapter_rounded_once() {
    let dir = tempfile::tempdir().unwrap();
    let base = random_model(dir.path(), "base", 1, &tiny_config(&[]));
    let blocks = ModelConfig::from_json(&model_config("blocks").to_string()).unwrap();
    let in_blocks = gguf::write(dir.path(), "base.gguf", &blocks, &Formats::uniform(&blocks, Block::Q4_K), 3);
    let cases = [
        (base.clone(), Stored::F32, 24),
        (in_dtype(&base, &dir.path().join("f16"), Stored::F16), Stored::F16, 11),
        (in_dtype(&base, &dir.path().join("bf16"), Stored::BF16), Stored::BF16, 8),
        (in_blocks, Stored::BF16, 8),
    ];
    for (case, (base, dtype, bits)) in cases.into_iter().enumerate() {
        let model = Checkpoint::open(&base).unwrap();
        let of = lora(5, 2.5, "q_proj,k_proj,down_proj");
        let path = adapter(dir.path(), &format!("adapter-{case}"), model.config(), &of, 7);
        let out = dir.path().join(format!("merged-{case}"));
        let printed = succeed(&mut merge(&base, &path, &out));
        assert!(printed.contains("rank 5 on q_proj, k_proj, down_proj"), "{printed}");

        let adapter = Adapter::open(&path, (&base, model.config())).unwrap();
        let bytes = std::fs::read(out.join("model.safetensors")).unwrap();
        let merged = SafeTensors::deserialize(&bytes).unwrap();
        let found = Checkpoint::open(&out).unwrap();
        let mut changed = 0;
        for parameter in Parameters::new(model.config()).list {
            assert_eq!(merged.tensor(&parameter.name).unwrap().dtype(), dtype);
            let values =
                |of: &Checkpoint| floats(of.read(&parameter, Dtype::F32.into(), &mut Scratch::default()).unwrap());
            let (before, after) = (values(&model), values(&found));
            let adapted = adapter.layout.each.iter().find(|adapted| adapted.parameter() == parameter.name);
            let unit = 2f64.powi(-bits);
            let Some(adapted) = adapted else {
                let near =
                    before.iter().zip(&after).all(|(b, a)| f64::from((b - a).abs()) <= unit * f64::from(b.abs()));
                assert!(near && (base.is_file() || before == after), "{}", parameter.name);
                continue;
            };
            changed += 1;
            let factor = |of| floats(adapter.read(adapted, of, &mut Scratch::default()).unwrap());
            let (a, b, scale) = (factor(Factor::A), factor(Factor::B), f64::from(adapter.layout.scale(adapted)));
            let (columns, rank) = (adapted.projection.columns as usize, adapted.rank as usize);
            for (index, (before, after)) in before.iter().zip(&after).enumerate() {
                let (row, column) = (index / columns, index % columns);
                let term = |r: usize| f64::from(b[row * rank + r]) * f64::from(a[r * columns + column]);
                let (sum, size) = (0..rank).fold((0.0, 0.0), |(sum, size), r| (sum + term(r), size + term(r).abs()));
                let exact = f64::from(*before) + scale * sum;
                let in_f32 = (rank + 2) as f64 * 2f64.powi(-24) * (f64::from(before.abs()) + scale * size);
                // Below the smallest normal number f16 has a fixed spacing.
                let bound = unit * exact.abs() + in_f32 + if dtype == Stored::F16 { 2f64.powi(-25) } else { 0.0 };
                let distance = (f64::from(*after) - exact).abs();
                assert!(distance <= bound, "{} [{row}, {column}]: {distance:e} > {bound:e}", parameter.name);
            }
        }
        assert_eq!(changed, 3 * model.config().layers, "projections");
        let config: serde_json::Value =
            serde_json::from_slice(&std::fs::read(out.join("config.json")).unwrap()).unwrap();
        let name = if dtype == Stored::F16 {
            "float16"
        } else if dtype == Stored::F32 {
            "float32"
        } else {
            "bfloat16"
        };
        assert_eq!(config["torch_dtype"], name);
    }
}

#[test]
fn a_merged_model_takes_no_place_that_is_not_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let base = random_model(dir.path(), "base", 1, &tiny_config(&[]));
    let config = ModelConfig::from_json(&tiny_config(&[]).to_string()).unwrap();
    let path = adapter(dir.path(), "adapter", &config, &lora(4, 8.0, "all"), 1);
    let out = dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("mine.txt"), "mine").unwrap();
    for overwrite in [false, true] {
        fail(merge(&base, &path, &out).args(overwrite.then_some("--overwrite")), 2);
        assert_eq!(names_in(&out), ["mine.txt"]);
    }
    std::fs::remove_file(out.join("mine.txt")).unwrap();
    let said = |command: &mut std::process::Command| {
        let output = command.output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(said(&mut merge(&base, &path, &out)), "");
    // Of the same shape, as the student of a run is.
    let student = random_model(dir.path(), "student", 1, &tiny_config(&[]));
    let note = said(&mut merge(&student, &path, &dir.path().join("of-student")));
    assert!(note.contains("adapter_config.json: the adapter was trained on base, and is added to "), "{note}");
    fail(&mut merge(&base, &path, &out), 2);
    succeed(merge(&base, &path, &out).arg("--overwrite"));
    // Neither over what it reads.
    fail(merge(&base, &path, &path).arg("--overwrite"), 2);
    fail(merge(&base, &path, &base).arg("--overwrite"), 2);
    // Nor from an adapter of another model.
    let other = random_model(dir.path(), "other", 1, &tiny_config(&[("intermediate_size", 64.into())]));
    let message = fail(&mut merge(&other, &path, &dir.path().join("none")), 5);
    assert!(message.contains("gate_proj.lora_B.weight is [") && message.contains("of the model"), "{message}");
    assert!(!dir.path().join("none").exists());
}

/// Losses and norms of each step, and the adapter after the last one, to the bit.
fn bits(out: &Path) -> (Vec<[u64; 4]>, Vec<u8>) {
    let bits = |value: Option<f64>| value.expect("a finite number").to_bits();
    let of = |step: &StepRecord| [bits(step.loss), bits(step.kd_loss), bits(step.ce_loss), bits(step.grad_norm)];
    let tensors = std::fs::read(out.join("adapter/adapter_model.safetensors")).unwrap();
    (metrics_of(out).iter().map(of).collect(), tensors)
}

fn first_losses(out: &Path) -> [u64; 3] {
    let first = &metrics_of(out)[0];
    [first.loss, first.kd_loss, first.ce_loss].map(|loss| loss.unwrap().to_bits())
}

/// Ranks that are padded and ranks that are not, on one projection, on parts of GEMMs, and on all.
const SHAPES: [(&str, &str); 5] =
    [("1", "q_proj"), ("3", "all"), ("8", "q_proj,v_proj"), ("17", "gate_proj,up_proj"), ("16", "o_proj,down_proj")];

const QUICK: [&str; 4] = ["--lr", "1e-2", "--checkpoint-every", "0"];

/// B is zero at the start: the first step computes what the student without an adapter computes, bit for bit.
#[test]
fn a_new_adapter_begins_with_the_losses_of_its_base() {
    let case = Case::new(17 * 9);
    for precision in ["fp32", "bf16"] {
        let run = |name: &str, arguments: &[&str]| {
            let out = case.path(format!("{name}-{precision}"));
            let mut command = case.distill(&out, &QUICK);
            succeed(command.args(["--steps", "1", "--precision", precision]).args(arguments));
            out
        };
        let base = first_losses(&run("base", &[]));
        for (rank, targets) in SHAPES {
            let out = run(&format!("{rank}-{targets}"), &["--lora-rank", rank, "--lora-targets", targets]);
            assert_eq!(first_losses(&out), base, "{rank} {targets} {precision}");
        }
    }
}

/// An adapter learns, and a run of it that is stopped and continued ends with the same bits.
#[test]
fn an_adapter_of_any_shape_learns_and_resumes_to_the_same_bits() {
    let case = Case::new(17 * 4);
    for (shape, (rank, targets)) in SHAPES.into_iter().enumerate() {
        let run = |name: &str, arguments: &[&str]| {
            let out = case.path(format!("{name}-{shape}"));
            let mut command = case.distill(&out, &["--lr", "1e-2", "--checkpoint-every", "2", "--lora-rank", rank]);
            // Passes over two batches.
            command.args(["--lora-targets", targets, "--lora-rslora", "--precision", "fp32"]).args(arguments);
            succeed(&mut command);
            out
        };
        let whole = run("whole", &["--steps", "8"]);
        let (stopped, resumed) = (run("resumed", &["--steps", "4"]), run("resumed", &["--steps", "8", "--resume"]));
        assert_eq!(stopped, resumed);
        let (steps, tensors) = bits(&whole);
        assert!((steps, tensors) == bits(&resumed), "{rank} {targets}");
        let records = metrics_of(&whole);
        let loss = |step: usize| records[step].loss.unwrap() + records[step + 1].loss.unwrap();
        assert!(loss(6) < loss(0), "{rank} {targets}: {} {}", loss(0), loss(6));

        assert!(!whole.join("student").exists());
        assert_eq!(
            names_in(&whole.join("adapter")),
            ["adapter_config.json", "adapter_model.safetensors", "precast.sha256"]
        );
        let record = run_record(&whole);
        assert!(record["files"]["adapter/adapter_model.safetensors"].is_string(), "{record}");
        let rank: u32 = rank.parse().unwrap();
        let model = Checkpoint::open(&case.student).unwrap();
        let read = Adapter::open(&whole.join("adapter"), (&case.student, model.config())).unwrap();
        let expected = Lora { rslora: true, ..lora(rank, 2.0 * f64::from(rank), targets) };
        assert_eq!(read.layout, Layout::new(model.config(), &expected));
        assert_eq!(record["parameters"]["trained"], read.layout.count());
        // Of what trains and nothing else: three f32 of each element, and its padding.
        let saved = std::fs::metadata(whole.join("checkpoint-8/master.safetensors")).unwrap().len();
        assert!(saved < 4 * model.config().hidden as u64 * 1000, "{saved} bytes");
    }
}

/// A run goes on from an adapter that another one wrote: what trains is what was written.
#[test]
fn a_run_goes_on_from_an_adapter() {
    let case = Case::new(17 * 2);
    let run = |name: &str, arguments: &[&str]| {
        let out = case.path(name);
        succeed(case.distill(&out, &QUICK).args(["--precision", "fp32", "--schedule", "constant"]).args(arguments));
        out
    };
    // Every step is of the same two rows.
    let first = run("first", &["--steps", "3", "--lora-rank", "5", "--lora-targets", "q_proj,down_proj"]);
    let whole = run("whole", &["--steps", "4", "--lora-rank", "5", "--lora-targets", "q_proj,down_proj"]);
    let adapter = first.join("adapter");
    let next = run("next", &["--steps", "1", "--adapter", adapter.to_str().unwrap()]);
    let losses = metrics_of(&whole);
    assert_eq!(losses[3].loss.unwrap().to_bits(), metrics_of(&next)[0].loss.unwrap().to_bits());
    // It changes nothing of what it started from.
    assert_eq!(run_record(&next)["config"]["adapter"], adapter.display().to_string());
    assert_ne!(bits(&next).1, bits(&first).1);
}

/// What a run that continues has in common with the run so far.
#[test]
fn a_run_of_another_adapter_is_refused() {
    let case = Case::new(17 * 4);
    let command = |arguments: &[&str]| {
        let mut command = case.distill(&case.out(), &["--precision", "fp32", "--checkpoint-every", "1"]);
        command.args(arguments);
        command
    };
    let new = ["--lora-rank", "4", "--lora-alpha", "3", "--lora-targets", "q_proj"];
    succeed(command(&new).args(["--steps", "1"]));
    let resume = ["--steps", "2", "--resume"];
    for (arguments, difference) in [
        (&["--lora-rank", "5", "--lora-alpha", "3", "--lora-targets", "q_proj"][..], "lora_rank was 4, is 5"),
        (&["--lora-rank", "4", "--lora-alpha", "8", "--lora-targets", "q_proj"], "lora_alpha was 3, is 8"),
        (&["--lora-rank", "4", "--lora-alpha", "3", "--lora-targets", "v_proj"], "lora_targets was q_proj, is v_proj"),
        (&[&new[..], &["--lora-rslora"]].concat(), "lora_rslora was false, is true"),
        (&[], "lora_rank was 4, is none"),
    ] {
        let message = fail(command(arguments).args(resume), 2);
        assert!(message.contains(difference), "{message}");
    }
    succeed(command(&new).args(resume));

    // From an adapter that is there: its tensors and what they mean.
    let model = ModelConfig::from_json(&tiny_config(&[]).to_string()).unwrap();
    let adapters = [(1, 8.0), (2, 8.0), (1, 4.0)].map(|(seed, alpha)| {
        adapter(case.dir.path(), &format!("from-{seed}-{alpha}"), &model, &lora(4, alpha, "q_proj"), seed)
    });
    let [one, tensors, alpha] = adapters.each_ref().map(|path| path.to_str().unwrap());
    succeed(command(&["--overwrite", "--steps", "1", "--adapter", one]).arg("--seed=1"));
    let resumed = |path| command(&["--steps", "2", "--resume", "--adapter", path, "--seed=1"]);
    assert!(fail(&mut resumed(tensors), 2).contains("adapter was "));
    assert!(fail(&mut resumed(alpha), 2).contains("adapter config was "));
    // It may lie elsewhere.
    let moved = case.path("moved");
    std::fs::rename(one, &moved).unwrap();
    succeed(&mut resumed(moved.to_str().unwrap()));
}

/// A frozen base as its file stores it, and in the precision of the run: the same bits, whatever is recomputed. A run may change
/// from one to the other.
#[test]
fn a_stored_base_is_the_same_as_one_in_bf16() {
    let dir = tempfile::tempdir().unwrap();
    let config = ModelConfig::from_json(&model_config("blocks").to_string()).unwrap();
    let data = token_file(dir.path(), "data.bin", 17 * 4, 96);
    for (name, formats) in [("q4_k_m", Formats::q4_k_m(&config)), ("q8_0", Formats::uniform(&config, Block::Q8_0))] {
        let base = gguf::write(dir.path(), &format!("{name}.gguf"), &config, &formats, 3);
        for precision in ["fp32", "bf16"] {
            let run = |format: &str, more: &[&str]| {
                let out = dir.path().join(format!("{name}-{precision}-{format}"));
                let mut command = train(&base, &data, &out);
                command.args(["--batch-size", "2", "--seq-len", "16", "--lr", "1e-2", "--checkpoint-every", "1"]);
                command.args(["--precision", precision, "--lora-rank", "3", "--student-format", format]).args(more);
                succeed(&mut command);
                out
            };
            let [wide, stored] = ["bf16", "stored"].map(|format| run(format, &["--steps", "2"]));
            assert!(bits(&wide) == bits(&stored), "{name} {precision}");
            assert_eq!(run_record(&stored)["config"]["student_format"], "stored");
            let planned =
                [&wide, &stored].map(|out| run_record(out)["memory"]["planned"]["total_bytes"].as_u64().unwrap());
            assert_ne!(planned[0], planned[1]);
            // One that is continued in the other form.
            let whole = run("stored", &["--steps", "3", "--resume", "--recompute", "blocks"]);
            let other = run("bf16", &["--steps", "3", "--resume", "--student-format", "stored"]);
            assert!(bits(&whole) == bits(&other), "{name} {precision}");
        }
    }
}

/// A teacher that is the student's base has its weights in memory once, and gives the bits of one that has its own.
#[test]
fn a_teacher_that_is_the_base_shares_its_weights() {
    let dir = tempfile::tempdir().unwrap();
    let config = ModelConfig::from_json(&model_config("blocks").to_string()).unwrap();
    let base = gguf::write(dir.path(), "base.gguf", &config, &Formats::q4_k_m(&config), 3);
    let copy = dir.path().join("copy.gguf");
    std::fs::copy(&base, &copy).unwrap();
    let data = token_file(dir.path(), "data.bin", 17 * 4, 96);
    let run = |name: &str, teacher: &Path, arguments: &[&str]| {
        let out = dir.path().join(name);
        let mut command = distill(teacher, &base, &data, &out);
        command.args(["--batch-size", "2", "--seq-len", "16", "--steps", "2", "--precision", "bf16"]).args(QUICK);
        command.args(["--lora-rank", "4"]).args(arguments);
        let output = command.output().unwrap();
        let (stdout, stderr) = texts(&output);
        assert!(output.status.success(), "{stdout}{stderr}");
        let planned = run_record(&out)["memory"]["planned"]["total_bytes"].as_u64().unwrap();
        (bits(&out), planned, stderr.contains("its weights are in memory once"))
    };
    let shared = run("shared", &base, &[]);
    assert!(shared.2);
    // The same bytes elsewhere are the same model.
    assert_eq!(run("copied", &copy, &[]), shared);
    // In another form it has weights of its own.
    let own = run("own", &base, &["--teacher-format", "stored"]);
    assert!(own.0 == shared.0 && !own.2 && own.1 > shared.1);
    let stored = run("stored", &base, &["--teacher-format", "stored", "--student-format", "stored"]);
    assert!(stored.0 == shared.0 && stored.2 && stored.1 < own.1);
    if !is_sim() {
        return;
    }
    // The run itself is planned so.
    let mut plan = precast();
    plan.args(["plan", "--json", "--device", "sim", "--batch-size", "2", "--seq-len", "16", "--lora-rank", "4"]);
    plan.arg("--teacher").arg(&base).arg("--student").arg(&base);
    let plan: serde_json::Value = serde_json::from_str(&succeed(&mut plan)).unwrap();
    assert_eq!((plan["memory"]["total_bytes"].as_u64(), &plan["teacher_is_base"]), (Some(shared.1), &true.into()));
}

/// A teacher that is the base, nothing but its predictions, and an adapter that adds nothing: every gradient is 0.
#[test]
fn a_run_whose_gradients_are_all_zero_is_refused() {
    let case = Case::new(17 * 4);
    let run = |arguments: &[&str]| {
        let out = case.path(format!("out-{}", arguments.join("-").replace('/', "_")));
        let mut command = distill(&case.student, &case.student, &case.data, &out);
        command.args(["--batch-size", "2", "--seq-len", "16", "--steps", "1"]).args(QUICK).args(arguments);
        command
    };
    for check in [&[][..], &["--dry-run"]] {
        let message = fail(run(&["--lora-rank", "4", "--alpha", "1"]).args(check), 2);
        assert!(message.contains("every gradient is exactly 0") && message.contains("--alpha below 1"), "{message}");
    }
    // What it says is true: it is not the run itself that refuses.
    let config = support::config(&case.student, &case.student, |options| {
        options.adapting.lora_rank = Some(4);
        options.teaching.alpha = 1.0;
    });
    let mut session = support::session(&config);
    let rows: [&[u32]; 2] = [&[1; 17], &[2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18]];
    session.micro(&MicroBatch::new(&rows, 16), 1.0 / 32.0, 0).unwrap();
    for parameter in session.adapter_parameters() {
        let gradient = adapter_gradient(&mut session, &parameter);
        assert!(gradient.iter().all(|value| *value == 0.0), "{parameter:?}");
    }
    succeed(&mut run(&["--lora-rank", "4", "--alpha", "0.9"]));
    let model = ModelConfig::from_json(&tiny_config(&[]).to_string()).unwrap();
    let trained = adapter(case.dir.path(), "trained", &model, &lora(4, 8.0, "all"), 1);
    succeed(&mut run(&["--adapter", trained.to_str().unwrap(), "--alpha", "1"]));
    // Without an adapter it is the pair that is refused.
    assert!(fail(&mut run(&["--alpha", "0.5"]), 5).contains("hold the same weights"));
}

#[test]
fn rank_0_is_no_option_at_all() {
    let case = Case::new(17 * 4);
    let plan = |arguments: &[&str]| {
        let mut command = precast();
        command.args(["plan", "--arch", "sm_90", "--json", "--batch-size", "2", "--seq-len", "16"]).args(arguments);
        succeed(command.arg("--teacher").arg(&case.teacher).arg("--student").arg(&case.student))
    };
    assert_eq!(plan(&[]), plan(&["--lora-rank", "0", "--lora-targets", "q_proj"]));
    let adapted: serde_json::Value =
        serde_json::from_str(&plan(&["--lora-rank", "3", "--lora-targets", "q_proj"])).unwrap();
    assert_eq!(adapted["trained_parameters"], 2 * 3 * (32 + 64));
    assert_eq!(adapted["student_format"], "bf16");
    let run = |name: &str, arguments: &[&str]| {
        let mut command = case.distill(&case.path(name), &QUICK);
        succeed(command.args(["--steps", "2", "--precision", "fp32"]).args(arguments));
        std::fs::read(case.path(name).join("student/model.safetensors")).unwrap()
    };
    assert!(run("none", &[]) == run("zero", &["--lora-rank", "0"]));
}

fn nll(model: &Path, data: &Path, arguments: &[&str]) -> f64 {
    let mut command = precast();
    command.args(["eval", "--untrained", "--json", "--seq-len", "16"]).args(on_device()).args(arguments);
    let printed = succeed(command.arg("--model").arg(model).arg("--data").arg(data));
    serde_json::from_str::<serde_json::Value>(&printed).unwrap()["nll"].as_f64().unwrap()
}

/// An adapter and the model that it was merged into score alike: fp32 within 2e-6 of the negative log likelihood, which is
/// rounding of sums in another order; a base in bf16 within 1e-3, which is one rounding of each weight to 8 bits.
#[test]
fn merged_and_unmerged_score_alike() {
    let case = Case::new(17 * 8);
    let bf16 = in_dtype(&case.student, &case.path("bf16"), Stored::BF16);
    let model = ModelConfig::from_json(&tiny_config(&[]).to_string()).unwrap();
    // Large enough to be told from a rounding.
    let path = adapter(case.dir.path(), "adapter", &model, &lora(7, 56.0, "all"), 1);
    for (base, bound) in [(&case.student, 2e-6), (&bf16, 1e-3)] {
        let merged = case.path(format!("merged-{bound}"));
        succeed(&mut merge(base, &path, &merged));
        let adapted = nll(base, &case.data, &["--adapter", path.to_str().unwrap()]);
        let (merged, alone) = (nll(&merged, &case.data, &[]), nll(base, &case.data, &[]));
        assert!((adapted - merged).abs() <= bound * adapted, "{adapted} {merged}");
        let changed = (adapted - alone).abs();
        assert!(changed > 5.0 * (adapted - merged).abs() && changed > 1e-3, "{adapted} {merged} {alone}");
    }
    // In bf16 too, and in whatever form the base is.
    let in_bf16 = nll(&case.student, &case.data, &["--adapter", path.to_str().unwrap(), "--precision", "bf16"]);
    let in_fp32 = nll(&case.student, &case.data, &["--adapter", path.to_str().unwrap()]);
    assert!((in_bf16 - in_fp32).abs() <= 2e-2 * in_fp32 && in_bf16 != in_fp32, "{in_bf16} {in_fp32}");
}

/// The adapter that a run writes scores as the run's last state does: on the rows that it trains on, better than its base.
#[test]
fn what_a_run_writes_scores_and_merges() {
    let case = Case::new(17 * 2);
    let out = case.path("out");
    let mut command = train(&case.student, &case.data, &out);
    command.args(["--batch-size", "2", "--seq-len", "16", "--steps", "10", "--precision", "fp32"]).args(QUICK);
    succeed(command.args(["--lora-rank", "4"]));
    let adapter = out.join("adapter");
    let losses = metrics_of(&out);
    let [before, after] = [&losses[0], &losses[9]].map(|step| step.loss.unwrap());
    let alone = nll(&case.student, &case.data, &[]);
    let adapted = nll(&case.student, &case.data, &["--adapter", adapter.to_str().unwrap()]);
    assert!((alone - before).abs() < 1e-5 * before, "{alone} {before}");
    // The last loss is from before the last step.
    assert!(adapted < after && after < before, "{before} {after} {adapted}");
}

#[test]
fn adapters_that_are_none_of_the_model_are_refused_everywhere() {
    let case = Case::new(17 * 4);
    let other = ModelConfig::from_json(&tiny_config(&[("hidden_size", 48.into())]).to_string()).unwrap();
    let path = adapter(case.dir.path(), "adapter", &other, &lora(4, 8.0, "all"), 1);
    let adapter = ["--adapter", path.to_str().unwrap()];
    let eval = || {
        let mut command = precast();
        command.args(["eval", "--untrained"]).args(on_device()).arg("--model").arg(&case.student);
        command.arg("--data").arg(&case.data);
        command
    };
    let plan = || {
        let mut command = precast();
        command.args(["plan", "--device", "sim", "--seq-len", "16", "--model"]).arg(&case.student);
        command
    };
    for mut command in [case.distill(&case.out(), &[]), case.distill(&case.out(), &["--dry-run"]), eval(), plan()] {
        let message = fail(command.args(adapter), 5);
        assert!(message.contains("q_proj.lora_A.weight is [4, 48]"), "{message}");
        assert!(message.contains("Name the model that the adapter was trained on"), "{message}");
    }
    assert!(!case.out().exists());
    // An adapter is an input of its run.
    let message = fail(case.distill(&path, &["--overwrite"]).args(adapter), 2);
    assert!(message.contains("adapter"), "{message}");
}

#[test]
fn a_benchmark_measures_an_adapter() {
    let case = Case::new(17);
    let json = case.path("student.json");
    let mut command = precast();
    command.args(["bench", "--json", "--batch-size", "1", "--seq-len", "16", "--steps", "2", "--lora-rank", "3"]);
    command
        .args(on_device())
        .arg("--teacher")
        .arg(&json)
        .arg("--student")
        .arg(&json)
        .args(["--student-format", "stored"]);
    let record: serde_json::Value = serde_json::from_str(&succeed(&mut command)).unwrap();
    assert_eq!((&record["config"]["lora_rank"], &record["config"]["student_format"]), (&3.into(), &"stored".into()));
    let purposes = record["kernels"].to_string();
    assert!(purposes.contains("lora"), "{purposes}");
}

/// Wherever it is killed, it continues to the same bits, and leaves the adapter and nothing else behind.
#[test]
fn a_run_of_an_adapter_killed_at_any_change_to_the_disk_continues() {
    let config = tiny_config(&[("num_hidden_layers", 1.into())]);
    let case = Case::of([&config, &config], 17 * 4);
    let (whole, out) = (case.path("whole"), case.out());
    let run = |out: &Path, more: &[&str]| {
        let mut command = case.distill(out, &["--steps", "1", "--checkpoint-every", "1", "--lora-rank", "3"]);
        command.args(more);
        command
    };
    succeed(&mut run(&whole, &[]));
    for at in 1.. {
        let _ = std::fs::remove_dir_all(&out);
        let status = run(&out, &[]).env("PRECAST_KILL_AT", at.to_string()).output().unwrap().status;
        if status.success() {
            assert!(at > 40, "{at} changes");
            return;
        }
        let again: &[&str] = match (out.join("checkpoint-1").exists(), out.join("run.json").exists()) {
            (true, _) => &["--resume"],
            (false, true) => &["--overwrite"],
            (false, false) => &[],
        };
        let (_, message) = texts(&run(&out, again).output().unwrap());
        assert!(!message.contains("error: ") || message.contains("steps are done"), "change {at}: {message}");
        assert!(bits(&out) == bits(&whole), "change {at}");
        assert_eq!(
            names_in(&out),
            ["adapter", "checkpoint-1", "metrics.jsonl", "report.html", "run.json", "run.log"],
            "change {at}"
        );
    }
}
