//! Low-rank adapters.

use std::path::{Path, PathBuf};

use half::{bf16, f16};
use precast::adapter::{Adapter, Layout, Lora, fill_adapter};
use precast::checkpoint::{Checkpoint, CheckpointError, Scratch, Student, write_model};
use precast_fatbins::files::{Aside, Existing};
use precast_kernels::{Block, Dtype};
use precast_plan::{Factor, Formats, ModelConfig, Parameters};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use safetensors::SafeTensors;
use safetensors::tensor::Dtype as Stored;

use crate::gguf;
use crate::support::{fail, floats, model_config, names_in, precast, random_model, succeed, tiny_config};

/// What `--lora-rank`, `--lora-alpha` and `--lora-targets` say.
pub fn lora(rank: u32, alpha: f64, targets: &str) -> Lora {
    Lora { rank, alpha, targets: targets.parse().unwrap(), rslora: false }
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
    let student = Student { config: model.json(), parameters: &parameters, dtype, tokenizer_from: &[] };
    write_model(out, Existing::Keep, &student, |parameter, write| -> Result<(), CheckpointError> {
        let values = floats(model.read(parameter, Dtype::F32, &mut Scratch::new())?);
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
            let values = |of: &Checkpoint| floats(of.read(&parameter, Dtype::F32, &mut Scratch::new()).unwrap());
            let (before, after) = (values(&model), values(&found));
            let adapted = adapter.layout().each.iter().find(|adapted| adapted.parameter() == parameter.name);
            let unit = 2f64.powi(-bits);
            let Some(adapted) = adapted else {
                let near =
                    before.iter().zip(&after).all(|(b, a)| f64::from((b - a).abs()) <= unit * f64::from(b.abs()));
                assert!(near && (base.is_file() || before == after), "{}", parameter.name);
                continue;
            };
            changed += 1;
            let factor = |of| floats(adapter.read(adapted, of, &mut Scratch::new()).unwrap());
            let (a, b, scale) = (factor(Factor::A), factor(Factor::B), f64::from(adapter.layout().scale(adapted)));
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
    succeed(&mut merge(&base, &path, &out));
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
