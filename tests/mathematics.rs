//! Programs refuse by name each setting that would change the mathematics; they skip none.

use std::collections::BTreeMap;

use precast::inputs::checkpoint::{Checkpoint, CheckpointError, Scratch, Weights};
use precast_kernels::Dtype::F32;
use precast_plan::Parameters;
use precast_system::files::Existing;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::support::prelude::*;

type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

fn read(file: &Path) -> Tensors {
    let bytes = fs::read(file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = |(name, view): (&str, TensorView<'_>)| {
        (name.to_owned(), (view.shape().to_vec(), bytemuck::pod_collect_to_vec(view.data())))
    };
    tensors.iter().map(tensor).collect()
}

fn write(file: &Path, tensors: &Tensors) {
    let views = tensors.iter().map(|(name, (shape, values))| {
        (name, TensorView::new(Dtype::F32, shape.clone(), bytemuck::cast_slice(values)).unwrap())
    });
    safetensors::serialize_to_file(views, None, file).unwrap();
}

struct Model {
    dir: tempfile::TempDir,
    path: PathBuf,
}

impl Model {
    fn new(changes: &[(&str, Value)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = random_model(dir.path(), "model", 1, &tiny_config(changes));
        Self { dir, path }
    }

    fn with(self, change: impl FnOnce(&mut Tensors)) -> Self {
        let file = self.path.join("model.safetensors");
        let mut tensors = read(&file);
        change(&mut tensors);
        write(&file, &tensors);
        self
    }

    /// The weights in two files, and an index that is changed.
    fn sharded(self, change: impl FnOnce(&mut [Tensors; 2], &mut serde_json::Map<String, Value>)) -> Self {
        let file = self.path.join("model.safetensors");
        let tensors = read(&file);
        fs::remove_file(file).unwrap();
        let mut shards = [Tensors::new(), Tensors::new()];
        let mut map = serde_json::Map::new();
        for (index, (name, tensor)) in tensors.into_iter().enumerate() {
            map.insert(name.clone(), format!("part-{}.safetensors", index % 2).into());
            shards[index % 2].insert(name, tensor);
        }
        change(&mut shards, &mut map);
        for (index, shard) in shards.iter().enumerate() {
            write(&self.path.join(format!("part-{index}.safetensors")), shard);
        }
        let index = json!({ "weight_map": map }).to_string();
        fs::write(self.path.join("model.safetensors.index.json"), index).unwrap();
        self
    }

    fn open(&self) -> Result<(), CheckpointError> {
        Checkpoint::open(&self.path).map(drop)
    }

    /// Why it does not open, without the scratch directory's name.
    fn refused(&self) -> String {
        let message = self.open().expect_err("it must not open").to_string();
        message.replace(&self.dir.path().display().to_string(), "DIR")
    }
}

const EMBEDDING: &str = "model.embed_tokens.weight";

fn frequencies(theta: f64, head_dim: usize) -> Vec<f32> {
    (0..head_dim / 2).map(|i| theta.powf(-2.0 * i as f64 / head_dim as f64) as f32).collect()
}

#[test]
fn tensors_beyond_the_configuration() {
    let llama = || Model::new(&[]);
    let qwen2 = || Model::new(&[("architectures", json!(["Qwen2ForCausalLM"])), ("model_type", "qwen2".into())]);
    let add = |name: &'static str, shape: &[usize]| {
        let tensor = (shape.to_vec(), vec![0.5; shape.iter().product()]);
        move |tensors: &mut Tensors| drop(tensors.insert(name.to_owned(), tensor))
    };
    let head = 16;
    let inv_freq = "model.layers.1.self_attn.rotary_emb.inv_freq";
    let messages = [
        qwen2().with(add("model.layers.0.self_attn.o_proj.bias", &[32])),
        qwen2().with(add("model.layers.1.mlp.down_proj.bias", &[32])),
        llama().with(add("model.layers.0.self_attn.q_proj.bias", &[64])),
        llama().with(add("model.layers.0.mlp.up_proj.bias", &[48])),
        qwen2().with(add("model.layers.0.self_attn.q_norm.weight", &[head])),
        qwen2().with(add("model.layers.2.input_layernorm.weight", &[32])),
        qwen2().with(add("lm_head.weight", &[96, 32])),
        qwen2().with(add("lm_head.weight", &[96, 31])),
        qwen2().with(add(inv_freq, &[head / 2])),
        qwen2().with(add(inv_freq, &[head])),
        qwen2().with(|tensors| {
            for index in 0..100 {
                tensors.insert(format!("adapter.{index}"), (vec![1], vec![0.0]));
            }
        }),
    ]
    .map(|model| model.refused());
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn tensors_that_say_again_what_follows_from_others_are_skipped() {
    let config = tiny_config(&[]);
    let theta = config["rope_theta"].as_f64().unwrap_or(10_000.0);
    let head_dim = config["head_dim"].as_u64().unwrap() as usize;
    let model = Model::new(&[]).with(|tensors| {
        let embedding = tensors[EMBEDDING].clone();
        tensors.insert("lm_head.weight".to_owned(), embedding);
        for layer in 0..2 {
            let name = format!("model.layers.{layer}.self_attn.rotary_emb.inv_freq");
            tensors.insert(name, (vec![head_dim / 2], frequencies(theta, head_dim)));
        }
    });
    model.open().unwrap();
    // Either name of a tied embedding may stand alone.
    let embedding = read(&model.path.join("model.safetensors"))[EMBEDDING].clone();
    let head_alone = Model::new(&[]).with(|tensors| {
        let embedding = tensors.remove(EMBEDDING).unwrap();
        tensors.insert("lm_head.weight".to_owned(), embedding);
    });
    let out = head_alone.dir.path().join("out");
    precast::programs::init::from_layers(&head_alone.path, &[0], precast_plan::Precision::Fp32, &out, Existing::Keep)
        .unwrap();
    assert_eq!(read(&out.join("model.safetensors"))[EMBEDDING], embedding);
    // They have no part in what a student is written with.
    let out = model.dir.path().join("out");
    precast::programs::init::from_layers(&model.path, &[1], precast_plan::Precision::Fp32, &out, Existing::Keep)
        .unwrap();
    assert!(!read(&out.join("model.safetensors")).contains_key("lm_head.weight"));
    let other = Model::new(&[]).with(|tensors| {
        let name = "model.rotary_emb.inv_freq".to_owned();
        tensors.insert(name, (vec![head_dim / 2], frequencies(theta * 2.0, head_dim)));
    });
    let message = other.refused();
    assert!(message.contains("model.rotary_emb.inv_freq[1] is ") && message.contains("rope_theta"), "{message}");
}

#[test]
fn an_index_is_followed_to_the_letter() {
    let models = [Model::new(&[]), Model::new(&[]).sharded(|_, _| {})];
    let [whole, sharded] = models.each_ref().map(|model| Checkpoint::open(&model.path).unwrap());
    for parameter in Parameters::new(whole.config()).list {
        let read = |of: &Checkpoint| of.read(&parameter, F32.into(), &mut Scratch::default()).unwrap().to_vec();
        assert!(read(&whole) == read(&sharded), "{}", parameter.name);
    }
    let norm = "model.norm.weight";
    let of = |map: &serde_json::Map<String, Value>| usize::from(map[norm] == "part-1.safetensors");
    let messages = [
        // In another file than the index says.
        Model::new(&[]).sharded(|shards, map| {
            let tensor = shards[of(map)].remove(norm).unwrap();
            shards[1 - of(map)].insert(norm.to_owned(), tensor);
        }),
        // In both.
        Model::new(&[]).sharded(|shards, map| {
            let mut tensor = shards[of(map)][norm].clone();
            tensor.1[0] += 1.0;
            shards[1 - of(map)].insert(norm.to_owned(), tensor);
        }),
        // In none.
        Model::new(&[]).sharded(|shards, map| drop(shards[of(map)].remove(norm))),
        // Not in the index.
        Model::new(&[]).sharded(|_, map| drop(map.remove(norm))),
        Model::new(&[]).sharded(|_, map| drop(map.insert(norm.to_owned(), json!(1)))),
        Model::new(&[]).sharded(|_, map| drop(map.insert(norm.to_owned(), "../part-0.safetensors".into()))),
        Model::new(&[]).sharded(|_, map| drop(map.insert(norm.to_owned(), "part-2.safetensors".into()))),
    ]
    .map(|model| model.refused());
    insta::assert_snapshot!(messages.join("\n"));
}
