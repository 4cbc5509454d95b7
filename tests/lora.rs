//! Low-rank adapters.

use half::{bf16, f16};
use precast::inputs::adapter::{Adapter, Layout, Lora, Target, fill_adapter};
use precast::inputs::checkpoint::{Checkpoint, CheckpointError, ModelSource, Scratch, Weights, write_model};
use precast::inputs::data::MicroBatch;
use precast_kernels::{Block, Dtype};
use precast_plan::{Factor, Formats, ModelConfig, Parameters};
use precast_system::files::{Aside, Existing};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use safetensors::SafeTensors;
use safetensors::tensor::Dtype as Stored;

use crate::gguf;
use crate::support::adapter_gradient;
use crate::support::prelude::*;

/// What `--lora-rank`, `--lora-alpha` and `--lora-targets` say.
pub fn lora(rank: u32, alpha: f64, targets: &str) -> Lora {
    let targets = targets.split(',').map(|target| target.parse::<Target>().unwrap()).collect();
    Lora { rank, alpha, targets, rslora: false }
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
    let student = ModelSource { config: &model.json, parameters: &parameters, dtype, tokenizer_from: &[] };
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

fn merge(case: &Case, model: &str, out: &str) -> Command {
    case.run(format!("merge --model {model} --adapter adapter --out {out}"))
}

/// |found - exact| <= u |exact| + (rank + 2) 2^-24 (|w| + scale |b| |a|), u being half a unit in the last place of the
/// dtype that is written: the sum is computed in f32 and rounded once. All else is as it was.
#[test]
fn a_merged_model_is_its_base_and_the_adapter_rounded_once() {
    let case = Case::empty();
    let base = case.model("base", 1, &[]);
    let blocks = shape(&model_config("blocks"));
    let in_blocks = gguf::write(case.dir.path(), "base.gguf", &blocks, &Formats::uniform(&blocks, Block::Q4_K), 3);
    let cases = [
        (base.clone(), Stored::F32, 24, "float32"),
        (in_dtype(&base, &case.path("f16"), Stored::F16), Stored::F16, 11, "float16"),
        (in_dtype(&base, &case.path("bf16"), Stored::BF16), Stored::BF16, 8, "bfloat16"),
        (in_blocks, Stored::BF16, 8, "bfloat16"),
    ];
    for (number, (base, dtype, bits, name)) in cases.into_iter().enumerate() {
        let model = Checkpoint::open(&base).unwrap();
        let of = lora(5, 2.5, "q_proj,k_proj,down_proj");
        let path = adapter(case.dir.path(), &format!("adapter-{number}"), model.config(), &of, 7);
        let (out, base_name) = (case.path(format!("merged-{number}")), base.display());
        let merge = format!("merge --model {base_name} --adapter adapter-{number} --out merged-{number}");
        case.run(merge).prints("rank 5 on q_proj, k_proj, down_proj");

        let adapter = Adapter::open(&path, (&base, model.config())).unwrap();
        let bytes = fs::read(out.join("model.safetensors")).unwrap();
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
        assert_eq!(changed, 3 * model.config().depth(), "projections");
        assert_eq!(case.json(out.join("config.json"))["torch_dtype"], name);
    }
}

#[test]
fn a_merge_into_another_base_of_its_shape_is_noted() {
    let case = Case::empty();
    ["base", "student"].iter().for_each(|name| _ = case.model(name, 1, &[]));
    adapter(case.dir.path(), "adapter", &shape(&tiny_config(&[])), &lora(4, 8.0, "all"), 1);
    assert_eq!(merge(&case, "base", "out").says()[1], "");
    // As the student of a run is.
    let [_, note] = merge(&case, "student", "of-student").says();
    assert!(note.contains("adapter_config.json: the adapter was trained on base, and is added to "), "{note}");
    case.model("other", 1, &[("intermediate_size", 64.into())]);
    merge(&case, "other", "none").fails(5, ["gate_proj.lora_B.weight is [", "of the model"]);
    assert!(!case.has("none"));
}

/// Ranks that are padded and ranks that are not, on one projection, on parts of GEMMs, and on all.
const SHAPES: [(&str, &str); 5] =
    [("1", "q_proj"), ("3", "all"), ("8", "q_proj,v_proj"), ("17", "gate_proj,up_proj"), ("16", "o_proj,down_proj")];

const QUICK: &str = "--lr 1e-2 --checkpoint-every 0";

/// An adapter learns, and a run of it that is stopped and continued ends with the same bits.
#[test]
fn an_adapter_of_any_shape_learns_and_resumes_to_the_same_bits() {
    let case = Case::new(17 * 4);
    case.distill("base", [QUICK, "--steps 1 --precision fp32"]).succeeds();
    for (shape, (rank, targets)) in SHAPES.into_iter().enumerate() {
        let run = |name: &str, arguments: &str| {
            let out = case.path(format!("{name}-{shape}"));
            // Passes over two batches.
            let how = "--lr 1e-2 --checkpoint-every 2 --lora-rslora --precision fp32";
            let lora = format!("--lora-rank {rank} --lora-targets {targets}");
            case.distill(&out, [how, &lora, arguments]).succeeds();
            out
        };
        let whole = run("whole", "--steps 8");
        let (stopped, resumed) = (run("resumed", "--steps 4"), run("resumed", "--steps 8 --resume"));
        assert_eq!(stopped, resumed);
        assert!(case.bits(&whole) == case.bits(&resumed), "{rank} {targets}");
        // B is zero at the start: the first step computes what the student without an adapter computes.
        assert_eq!(case.bits(&whole).0[0][..3], case.bits("base").0[0][..3], "{rank} {targets}");
        let losses = case.losses(&whole);
        let loss = |step: usize| losses[step] + losses[step + 1];
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
        let saved = fs::metadata(whole.join("checkpoint-8/master.safetensors")).unwrap().len();
        assert!(saved < 4 * model.config().hidden as u64 * 1000, "{saved} bytes");
    }
}

/// A run goes on from an adapter that another one wrote: what trains is what was written.
#[test]
fn a_run_goes_on_from_an_adapter() {
    let case = Case::new(17 * 2);
    let run = |name: &str, arguments: &str| {
        case.distill(name, [QUICK, "--precision fp32 --schedule constant", arguments]).succeeds();
    };
    // Every step is of the same two rows.
    run("first", "--steps 3 --lora-rank 5 --lora-targets q_proj,down_proj");
    run("whole", "--steps 4 --lora-rank 5 --lora-targets q_proj,down_proj");
    run("next", "--steps 1 --adapter first/adapter");
    assert_eq!(case.losses("whole")[3].to_bits(), case.losses("next")[0].to_bits());
    // It changes nothing of what it started from.
    assert_eq!(case.record("next")["config"]["adapter"], "first/adapter");
    assert_ne!(case.bits("next").1, case.bits("first").1);
}

/// A frozen base as its file stores it, and in the precision of the run: the same bits, whatever is recomputed. A run
/// may change from one to the other.
#[test]
fn a_stored_base_is_the_same_as_one_in_bf16() {
    let case = Case::new(17 * 4);
    // Some columns of the logits are no tokens.
    let config = ModelConfig { vocab: 997, ..shape(&model_config("blocks")) };
    for (name, formats) in [("q4_k_m", Formats::q4_k_m(&config)), ("q8_0", Formats::uniform(&config, Block::Q8_0))] {
        gguf::write(case.dir.path(), &format!("{name}.gguf"), &config, &formats, 3);
        for precision in ["fp32", "bf16"] {
            let run = |format: &str, more: &str| {
                let out = case.path(format!("{name}-{precision}-{format}"));
                let base = format!("--model {name}.gguf --precision {precision} --student-format {format}");
                case.train(&out, [&base, "--lr 1e-2 --checkpoint-every 1 --lora-rank 3", more]).succeeds();
                out
            };
            let [wide, stored] = ["bf16", "stored"].map(|format| run(format, "--steps 2"));
            assert!(case.bits(&wide) == case.bits(&stored), "{name} {precision}");
            assert_eq!(run_record(&stored)["config"]["student_format"], "stored");
            let planned =
                [&wide, &stored].map(|out| run_record(out)["memory"]["planned"]["total_bytes"].as_u64().unwrap());
            assert_ne!(planned[0], planned[1]);
            // One that is continued in the other form.
            let whole = run("stored", "--steps 3 --resume --recompute blocks");
            let other = run("bf16", "--steps 3 --resume --student-format stored");
            assert!(case.bits(&whole) == case.bits(&other), "{name} {precision}");
        }
    }
}

/// A teacher that is the student's base has its weights in memory once, and gives the bits of one that has its own.
#[test]
fn a_teacher_that_is_the_base_shares_its_weights() {
    let case = Case::new(17 * 4);
    let config = shape(&model_config("blocks"));
    let base = gguf::write(case.dir.path(), "base.gguf", &config, &Formats::q4_k_m(&config), 3);
    fs::copy(base, case.path("copy.gguf")).unwrap();
    let run = |name: &str, teacher: &str, forms: &str| {
        let models = format!("--teacher {teacher}.gguf --student base.gguf --lora-rank 4 {forms}");
        let [_, stderr] = case.distill(name, [QUICK, "--steps 2 --precision bf16", &models]).says();
        let planned = case.record(name)["memory"]["planned"]["total_bytes"].as_u64().unwrap();
        (case.bits(name), planned, stderr.contains("its weights are in memory once"))
    };
    let shared = run("shared", "base", "");
    assert!(shared.2);
    // The same bytes elsewhere are the same model.
    assert_eq!(run("copied", "copy", ""), shared);
    // In another form it has weights of its own.
    let own = run("own", "base", "--teacher-format stored");
    assert!(own.0 == shared.0 && !own.2 && own.1 > shared.1);
    let stored = run("stored", "base", "--teacher-format stored --student-format stored");
    assert!(stored.0 == shared.0 && stored.2 && stored.1 < own.1);
    skip_if!(!is_sim());
    // The run itself is planned so.
    let plan =
        "plan --json --device sim --batch-size 2 --seq-len 16 --lora-rank 4 --teacher base.gguf --student base.gguf";
    let plan = case.run(plan).json();
    assert_eq!((plan["memory"]["total_bytes"].as_u64(), &plan["teacher_is_base"]), (Some(shared.1), &true.into()));
}

/// A teacher that is the base, nothing but its predictions, and an adapter that adds nothing: every gradient is 0.
#[test]
fn a_run_whose_gradients_are_all_zero_is_refused() {
    let case = Case::new(17 * 4);
    let run = |out: &str, arguments: &str| case.distill(out, ["--teacher student --steps 1", QUICK, arguments]);
    for check in ["", "--dry-run"] {
        let zero = format!("--lora-rank 4 --alpha 1 {check}");
        run("none", &zero).fails(2, ["every gradient is exactly 0", "--alpha below 1"]);
    }
    // What it says is true: it is not the run itself that refuses.
    let config = config(&case.student, &case.student, |options| {
        options.adapting.lora_rank = Some(4);
        options.teaching.alpha = 1.0.into();
    });
    let mut session = session(&config);
    let rows: [&[u32]; 2] = [&[1; 17], &[2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18]];
    session.micro(&MicroBatch::new(&rows, 16), 1.0 / 32.0, 0).unwrap();
    for parameter in session.adapter_parameters() {
        let gradient = adapter_gradient(&mut session, &parameter);
        assert!(gradient.iter().all(|value| *value == 0.0), "{parameter:?}");
    }
    run("mixed", "--lora-rank 4 --alpha 0.9").succeeds();
    adapter(case.dir.path(), "trained", &shape(&tiny_config(&[])), &lora(4, 8.0, "all"), 1);
    run("on", "--adapter trained --alpha 1").succeeds();
}

#[test]
fn rank_0_is_no_option_at_all() {
    let case = Case::new(0);
    let plan = |lora: &str| {
        let models = "--teacher teacher --student student --batch-size 2 --seq-len 16";
        case.run(["plan --arch sm_90 --json", models, lora]).json()
    };
    assert_eq!(plan(""), plan("--lora-rank 0 --lora-targets q_proj"));
    let adapted = plan("--lora-rank 3 --lora-targets q_proj");
    assert_eq!(adapted["trained_parameters"], 2 * 3 * (32 + 64));
    assert_eq!(adapted["student_format"], "bf16");
}

fn nll(case: &Case, arguments: &str) -> f64 {
    let score = case.run(["eval --untrained --json --seq-len 16 --data data.bin --model", arguments]).json();
    score["nll"].as_f64().unwrap()
}

/// An adapter and the model that it was merged into score alike: fp32 within 2e-6 of the negative log likelihood, which
/// is rounding of sums in another order; a base in bf16 within 1e-3, which is one rounding of each weight to 8 bits.
#[test]
fn merged_and_unmerged_score_alike() {
    let case = Case::new(17 * 8);
    in_dtype(&case.student, &case.path("bf16"), Stored::BF16);
    // Large enough to be told from a rounding.
    adapter(case.dir.path(), "adapter", &shape(&tiny_config(&[])), &lora(7, 56.0, "all"), 1);
    for (base, bound) in [("student", 2e-6), ("bf16", 1e-3)] {
        merge(&case, base, &format!("merged-{base}")).succeeds();
        let adapted = nll(&case, &format!("{base} --adapter adapter"));
        let (merged, alone) = (nll(&case, &format!("merged-{base}")), nll(&case, base));
        assert!((adapted - merged).abs() <= bound * adapted, "{adapted} {merged}");
        let changed = (adapted - alone).abs();
        assert!(changed > 5.0 * (adapted - merged).abs() && changed > 1e-3, "{adapted} {merged} {alone}");
    }
    // In bf16 too, and in whatever form the base is.
    let in_bf16 = nll(&case, "student --adapter adapter --precision bf16");
    let in_fp32 = nll(&case, "student --adapter adapter");
    assert!((in_bf16 - in_fp32).abs() <= 2e-2 * in_fp32 && in_bf16 != in_fp32, "{in_bf16} {in_fp32}");
}

#[test]
fn a_benchmark_measures_an_adapter() {
    let case = Case::new(17);
    let shape = "bench step --json --batch-size 1 --seq-len 16 --steps 2 --teacher student.json --student student.json";
    let record = case.run([shape, "--lora-rank 3 --student-format stored"]).json();
    assert_eq!((&record["config"]["lora_rank"], &record["config"]["student_format"]), (&3.into(), &"stored".into()));
    assert!(record["kernels"].to_string().contains("lora"), "{record}");
}

/// Wherever it is killed, it continues to the same bits, and leaves the adapter and nothing else behind.
#[test]
fn a_run_of_an_adapter_continues_wherever_it_was_killed() {
    let case = Case::of_layers(1, 17 * 4);
    let run = |out: &str, more: &str| case.distill(out, ["--steps 1 --checkpoint-every 1 --lora-rank 3", more]);
    run("whole", "").succeeds();
    for at in (1..).step_by(each_of(5)) {
        let _ = fs::remove_dir_all(case.path("out"));
        if !is_killed_at(at, &mut run("out", "")) {
            return assert!(at > 40, "{at} changes");
        }
        goes_on(&mut run("out", continuation(&case.out())), &format!("change {at}"));
        assert!(case.bits("out") == case.bits("whole"), "change {at}");
        let left = ["adapter", "checkpoint-1", "metrics.jsonl", "report.html", "run.json", "run.log"];
        assert_eq!(case.names("out"), left, "change {at}");
    }
}
