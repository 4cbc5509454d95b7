use std::path::{Path, PathBuf};

use precast_plan::ModelConfig;
use precast_system::files::{Aside, Existing};
use safetensors::tensor::{Dtype as Stored, TensorView};
use serde_json::{Value, json};

use super::write::TENSORS;
use super::*;
use crate::checkpoint::{CheckpointError, Scratch};

fn model() -> ModelConfig {
    let json = json!({
        "model_type": "qwen2", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 64, "hidden_act": "silu",
            "rms_norm_eps": 1e-6,
        "max_position_embeddings": 64, "rope_theta": 10000.0, "tie_word_embeddings": true,
    });
    ModelConfig::from_json(&json.to_string()).unwrap()
}

fn lora(rank: u32, targets: &str) -> Lora {
    Lora {
        rank,
        alpha: 2.0 * f64::from(rank),
        targets: targets.split(',').map(|target| target.parse::<Target>().unwrap()).collect(),
        rslora: false,
    }
}

/// Name, dtype, shape and bytes.
type NamedTensor = (String, Stored, Vec<usize>, Vec<u8>);

/// An adapter on disk, of values that count from 1, and what changes its files.
struct Written {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

fn values(count: u64) -> Vec<f32> {
    (0..count).map(|i| (i + 1) as f32 / 64.0).collect()
}

/// An adapter of rank 4 on queries.
fn of_queries() -> Written {
    write(&Layout::new(&model(), &lora(4, "q_proj")))
}

fn write(layout: &Layout) -> Written {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("adapter");
    let mut aside = Aside::new(&path).unwrap();
    let base = (Path::new("the/base"), &model());
    fill_adapter(&mut aside, layout, base, |adapted, factor, write| -> Result<(), CheckpointError> {
        write(bytemuck::cast_slice(&values(adapted.shape(factor).iter().product())))
    })
    .unwrap();
    aside.publish(Existing::Keep).unwrap();
    Written { _dir: dir, path }
}

impl Written {
    fn open(&self) -> Result<Adapter, CheckpointError> {
        Adapter::open(&self.path, (Path::new("the/model"), &model()))
    }

    /// Why it does not open, without the path that it is at.
    fn refusal(&self) -> String {
        let Err(error) = self.open() else { panic!("it opens") };
        error.to_string().replace(&self.path.display().to_string(), "DIR")
    }

    /// Sets fields of its configuration.
    fn set(&self, fields: &Value) {
        let path = self.path.join("adapter_config.json");
        let mut json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        for (name, value) in fields.as_object().unwrap() {
            json[name] = value.clone();
        }
        std::fs::write(path, json.to_string()).unwrap();
    }

    /// Writes its tensors again, after a change.
    fn tensors(&self, change: impl FnOnce(&mut Vec<NamedTensor>)) {
        let path = self.path.join(TENSORS);
        let bytes = std::fs::read(&path).unwrap();
        let read = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let owned = |(name, view): (&str, TensorView<'_>)| {
            (name.to_owned(), view.dtype(), view.shape().to_vec(), view.data().to_vec())
        };
        let mut all: Vec<NamedTensor> = read.iter().map(owned).collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        change(&mut all);
        let views = all
            .iter()
            .map(|(name, dtype, shape, bytes)| (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
        std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
    }
}

#[test]
fn what_is_written_reads_back() {
    let uniform = Layout::new(&model(), &lora(8, "v_proj,q_proj"));
    let mut ragged = Layout { rslora: true, ..Layout::new(&model(), &lora(3, "all")) };
    // Not on every layer, and of several ranks and scales.
    ragged.each.remove(9);
    ragged.each[4].rank = 17;
    ragged.each[5].alpha = 2.5;
    for layout in [uniform, ragged] {
        let read = write(&layout).open().unwrap();
        assert_eq!(read.layout, layout);
        for (adapted, factor) in layout.tensors() {
            let expected = values(adapted.shape(factor).iter().product());
            let mut scratch = Scratch::default();
            let found: Vec<f32> = bytemuck::pod_collect_to_vec(read.read(adapted, factor, &mut scratch).unwrap());
            assert_eq!(found, expected);
        }
        assert!(!read.adds_nothing().unwrap());
    }
    let uniform = Layout::new(&model(), &lora(8, "v_proj,q_proj")).to_string();
    assert_eq!(uniform, "rank 8 on q_proj, v_proj: 2688 parameters train");
}

/// The scale is PEFT's: alpha / r, or alpha / sqrt(r).
#[test]
fn scales_are_those_of_peft() {
    let scale = |rank, alpha, rslora| {
        let layout = Layout::new(&model(), &Lora { alpha, rslora, ..lora(rank, "q_proj") });
        layout.scale(&layout.each[0])
    };
    assert_eq!([scale(8, 16.0, false), scale(3, 1.0, false)], [2.0, 1.0 / 3.0]);
    assert_eq!([scale(16, 32.0, true), scale(3, 1.0, true)], [8.0, (1.0 / 3f64.sqrt()) as f32]);
}

/// Modules, ranks and alphas as PEFT finds them.
#[test]
fn a_configuration_is_followed_as_peft_follows_it() {
    let of = |fields: &Value| {
        let written = of_queries();
        written.set(fields);
        let read = config::read(&written.path, &model()).unwrap();
        let each = read.layout.each.into_iter();
        let text = |adapted: Adapted| {
            let module = adapted.projection.module.replace("model.layers.", "");
            format!("{module} {} {}", adapted.rank, adapted.alpha)
        };
        each.map(text).collect::<Vec<_>>()
    };
    assert_eq!(of(&json!({})).len(), 3);
    assert_eq!(of(&json!({"target_modules": "all-linear"})).len(), 21);
    assert_eq!(of(&json!({"target_modules": ["mlp.up_proj"], "layers_to_transform": 2})), ["2.mlp.up_proj 4 8"]);
    let chosen = of(&json!({"layers_to_transform": [0, 2], "layers_pattern": "layers", "r": 5, "lora_alpha": 2.5}));
    assert_eq!(chosen, ["0.self_attn.q_proj 5 2.5", "2.self_attn.q_proj 5 2.5"]);
    // What an empty list means.
    assert_eq!(of(&json!({"layers_to_transform": []})).len(), 3);
    let matched = of(&json!({
        "target_modules": r"model\.layers\.(?!1)\d+\.self_attn\.(q|v)_proj", "exclude_modules": ["layers.0.self_attn.v_proj"],
        "rank_pattern": {r"^model\.layers\.2\..*": 7, "v_proj": 6}, "alpha_pattern": {"v_proj": 3},
    }));
    assert_eq!(matched, ["0.self_attn.q_proj 4 8", "2.self_attn.q_proj 7 8", "2.self_attn.v_proj 7 3"]);
    // What newer versions of PEFT say and means nothing.
    let said =
        json!({"task_type": null, "eva_config": {"rho": 2.0}, "init_lora_weights": "gaussian", "peft_version": "9"});
    assert_eq!(of(&said).len(), 3);
}

#[test]
fn what_is_not_followed_is_refused_by_name() {
    let cases = [
        json!({"peft_type": "IA3"}),
        json!({"modules_to_save": ["lm_head"]}),
        json!({"use_dora": true}),
        json!({"bias": "all"}),
        json!({"lora_bias": true}),
        json!({"fan_in_fan_out": true}),
        json!({"init_lora_weights": "pissa_niter_4"}),
        json!({"init_lora_weights": "loftq"}),
        json!({"init_lora_weights": "olora"}),
        json!({"layer_replication": [[0, 2], [1, 3]]}),
        json!({"trainable_token_indices": [1]}),
        json!({"task_type": "SEQ_CLS"}),
        json!({"use_something_new": true}),
        json!({"target_modules": null}),
        json!({"target_modules": ["q_proj", "lm_head"]}),
        json!({"target_modules": ["embed_tokens"]}),
        json!({"target_modules": ".*"}),
        json!({"target_modules": ["query_key_value"]}),
        json!({"target_modules": "("}),
        json!({"target_modules": "q_proj"}),
        json!({"target_modules": ".*q_proj", "layers_to_transform": [0]}),
        json!({"layers_to_transform": [3]}),
        json!({"layers_to_transform": [1], "layers_pattern": "h"}),
        json!({"r": 0}),
        json!({"rank_pattern": {"q_proj": 257}}),
        json!({"lora_alpha": 0}),
        json!({"r": "eight"}),
    ];
    let refusals = cases.iter().map(|fields| {
        let written = of_queries();
        written.set(fields);
        written.refusal()
    });
    insta::assert_snapshot!(refusals.collect::<Vec<_>>().join("\n\n"));
}

#[test]
fn dropout_is_said_and_not_applied() {
    let written = of_queries();
    assert_eq!(written.open().unwrap().notes(), [""; 0]);
    written.set(&json!({"lora_dropout": 0.05}));
    assert!(written.open().unwrap().notes()[0].contains("lora_dropout 0.05 is not applied"));
}

#[test]
fn tensors_that_are_not_the_adapter_s_are_refused() {
    let cases: [fn(&mut Vec<NamedTensor>); 8] = [
        // Half of a pair, another rank, another base.
        |all| drop(all.remove(1)),
        |all| all[0].2 = vec![8, 16],
        |all| all[1].2 = vec![16, 8],
        // What nobody asked for.
        |all| all.push(("base_model.model.lm_head.lora_A.weight".into(), Stored::F32, vec![1], vec![0; 4])),
        |all| all[0].0 = all[0].0.replace("base_model.model.", ""),
        |all| all[2].3[..4].copy_from_slice(&f32::NAN.to_le_bytes()),
        |all| all[3].3[8..12].copy_from_slice(&f32::INFINITY.to_le_bytes()),
        |all| all[0].1 = Stored::I32,
    ];
    let refusals = cases.into_iter().map(|change| {
        let written = of_queries();
        written.tensors(change);
        written.refusal()
    });
    let refusals: Vec<String> = refusals.collect();
    let damaged = of_queries();
    std::fs::write(damaged.path.join(TENSORS), [0; 100]).unwrap();
    insta::assert_snapshot!(format!("{}\n\n{}", refusals.join("\n\n"), damaged.refusal()));
}

#[test]
fn f16_and_bf16_read_as_the_same_numbers() {
    let layout = Layout::new(&model(), &lora(4, "q_proj"));
    for (dtype, narrow) in [
        (Stored::F16, (|value| half::f16::from_f32(value).to_le_bytes()) as fn(f32) -> [u8; 2]),
        (Stored::BF16, |value| half::bf16::from_f32(value).to_le_bytes()),
    ] {
        let written = write(&layout);
        // Numbers that both hold.
        written.tensors(|all| {
            for (_, of, _, bytes) in all {
                let count = bytes.len() / 4;
                (*of, *bytes) = (dtype, (0..count).flat_map(|i| narrow(i as f32 % 128.0 / 64.0)).collect());
            }
        });
        let adapter = written.open().unwrap();
        for (adapted, factor) in layout.tensors() {
            let mut scratch = Scratch::default();
            let found: Vec<f32> = bytemuck::pod_collect_to_vec(adapter.read(adapted, factor, &mut scratch).unwrap());
            assert!(found.iter().enumerate().all(|(i, value)| *value == i as f32 % 128.0 / 64.0), "{dtype:?}");
        }
    }
}

#[test]
fn what_stands_in_the_place_of_an_adapter_is_named() {
    let written = of_queries();
    let remove = |name: &str| std::fs::remove_file(written.path.join(name)).unwrap();
    remove(TENSORS);
    assert!(written.refusal().contains("there is no adapter_model.safetensors in it"));
    std::fs::write(written.path.join("adapter_model.bin"), "PK").unwrap();
    assert!(written.refusal().contains("PyTorch files are not read"));
    remove("adapter_config.json");
    assert!(written.refusal().contains("there is no adapter_config.json in it"));
    std::fs::write(written.path.join("config.json"), "{}").unwrap();
    assert!(written.refusal().contains("it is a model"));
    std::fs::remove_dir_all(&written.path).unwrap();
    assert!(written.refusal().contains("there is nothing"));
}

#[test]
fn a_new_adapter_adds_nothing() {
    let adapter = Adapter::new(&model(), &lora(5, "all"), 3).unwrap();
    assert!(adapter.adds_nothing().unwrap() && adapter.digest().is_none());
    assert_eq!(adapter.layout.each.len(), 21);
}
