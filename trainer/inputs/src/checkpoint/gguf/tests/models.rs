//! Whole models: shape, names, values, order of rows.

use precast_kernels::{Block, Dtype};
use precast_plan::rope::Scaling;
use precast_plan::{LayerConfig, ModelConfig, Parameters};
use serde_json::json;

use super::samples::{model, shape, shape_of, with_biases, with_layer};
use super::writer::Writer;
use super::{Gguf, config, fault, has_no_config, open, read, try_read};
use crate::checkpoint::kind::Kind;
use crate::checkpoint::single_file::SingleFile;
use crate::checkpoint::{Checkpoint, CheckpointError, Scratch, Weights};

const QUERY: &str = "model.layers.0.self_attn.q_proj.weight";

/// Its configuration, and its tensors in the names and shapes of Hugging Face, all of whose values are read.
#[test]
fn a_file_is_a_model_of_its_family() {
    let qwen2 = model("qwen2").integer("tokenizer.ggml.eos_token_id", 5).without("qwen2.rope.freq_base");
    for (family, writer) in [("llama", model("llama")), ("qwen2", qwen2), ("qwen3", model("qwen3"))] {
        let gguf = open(&writer.bytes()).unwrap();
        let tensors = gguf.tensors.names().map(|name| {
            assert!(read(&gguf, name).iter().all(|value| value.is_finite()), "{name}");
            format!("{name} {:?}", gguf.tensors.shape(name).unwrap())
        });
        let tensors = tensors.collect::<Vec<_>>().join("\n");
        insta::assert_snapshot!(format!("gguf_{family}"), format!("{:#}\n{tensors}", gguf.config().unwrap()));
        assert_eq!(gguf.tensors.shape("model.layers.2.mlp.gate_proj.weight"), None);
    }
}

/// What llama.cpp's converter writes for a Llama 3: how its `generate_extra_tensors` computes it.
fn llama3_factors(theta: f64, head_dim: u32, factor: f64, original: f64) -> Vec<f32> {
    let (low, high) = (1.0, 4.0);
    let of = |i: u32| {
        let wavelength = std::f64::consts::TAU * theta.powf(f64::from(2 * i) / f64::from(head_dim));
        if wavelength < original / high {
            1.0
        } else if wavelength > original / low {
            factor as f32
        } else {
            let smooth = (original / wavelength - low) / (high - low);
            (1.0 / ((1.0 - smooth) / factor + smooth)) as f32
        }
    };
    (0..head_dim / 2).map(of).collect()
}

/// A Llama of so many elements a head, with these divisors of its frequencies.
fn scaled(head_dim: u32, theta: f32, factors: &[f32]) -> Writer {
    shape_of("llama", 2, [256, head_dim, 8])
        .float("llama.rope.freq_base", theta)
        .tensor("token_embd.weight", &[256, 6], Kind::F32)
        .tensor_f32("rope_freqs.weight", &[factors.len() as u64], factors)
}

#[test]
fn a_tensor_says_that_rotary_frequencies_are_scaled_as_llama3() {
    // Llama 3.1, 3.2, and another original length, which follows from the factors.
    for (head_dim, factor, original) in [(128, 8.0, 8192), (64, 32.0, 8192), (64, 8.0, 64)] {
        let factors = llama3_factors(5e5, head_dim, factor, f64::from(original));
        let gguf = open(&scaled(head_dim, 5e5, &factors).bytes()).unwrap();
        let expected = json!({"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": original});
        let config = gguf.config().unwrap();
        assert_eq!(config["rope_scaling"], expected);
        assert!(!gguf.tensors.names().any(|name| name.contains("rope")), "it is no weight");
        let rope = ModelConfig::from_json(&config.to_string()).unwrap().ropes[0];
        let Some(Scaling::Llama3(scaling)) = rope.scaling else { panic!("{rope:?}") };
        assert_eq!((scaling.factor, scaling.original_max_position_embeddings), (factor, original));
    }
    // Where no factor lies between, the original length is that of the key, or else Llama 3's.
    let few = scaled(4, 1e8, &[1.0, 8.0]);
    let original = |writer| config(&writer)["rope_scaling"]["original_max_position_embeddings"].clone();
    assert_eq!(original(few.clone()), 8192);
    assert_eq!(original(few.integer("llama.rope.scaling.original_context_length", 1024)), 1024);
    // Division by 1 is none.
    assert_eq!(config(&scaled(64, 5e5, &[1.0; 32])).get("rope_scaling"), None);
}

#[test]
fn factors_that_are_not_llama3s_are_refused() {
    let refused = |writer: Writer, part: &str| {
        has_no_config(&writer, "rope_freqs.weight at byte ");
        has_no_config(&writer, part);
    };
    let factors = llama3_factors(5e5, 64, 8.0, 8192.0);
    let changed = |index: usize, value: f32| {
        let mut factors = factors.clone();
        factors[index] = value;
        scaled(64, 5e5, &factors)
    };
    let not_llama3 = "are not those of rope type llama3, the only scaling that is supported";
    refused(changed(0, 1.01), not_llama3);
    refused(changed(20, 7.9), not_llama3);
    refused(changed(31, f32::NAN), not_llama3);
    refused(changed(31, 0.0), not_llama3);
    refused(scaled(64, 5e5, &[8.0; 32]), not_llama3);
    refused(scaled(64, 1e4, &factors), not_llama3);
    refused(scaled(64, 5e5, &factors[..16]), "a head of 64 elements has 32 frequencies");
    let other = scaled(64, 5e5, &factors).integer("llama.rope.scaling.original_context_length", 4096);
    refused(other, not_llama3);
}

#[test]
fn a_file_of_version_2_reads() {
    let mut writer = model("llama");
    writer.version = 2;
    config(&writer);
}

#[test]
fn what_the_metadata_leave_out_follows_from_the_tensors() {
    let writer = shape("llama").tensor("token_embd.weight", &[256, 6], Kind::F32);
    let writer = writer.tensor("blk.0.attn_q.bias", &[8], Kind::F32);
    let writer = ["attention.key_length", "attention.head_count_kv", "attention.value_length", "rope.dimension_count"]
        .iter()
        .fold(writer, |writer, key| writer.without(&format!("llama.{key}")));
    let config = config(&writer);
    assert_eq!((&config["head_dim"], &config["num_key_value_heads"]), (&json!(128), &json!(2)));
    assert_eq!((&config["tie_word_embeddings"], &config["attention_bias"]), (&json!(true), &json!(true)));
}

/// Rows of two query heads of 4 and one key head of 4, as Hugging Face has them: row r is filled with r.
fn rows(count: u64, columns: u64) -> Vec<f32> {
    (0..count).flat_map(|row| (0..columns).map(move |_| row as f32)).collect()
}

#[test]
fn rows_of_heads_that_llama_cpp_permutes_are_put_back_in_order() {
    // Row 2 i + j of a head is row 2 j + i, i and j from 0 to 1.
    let interleaved = |count: u64, columns: u64| -> Vec<f32> {
        let source = (0..count).map(|row| row / 4 * 4 + [0, 2, 1, 3][row as usize % 4]);
        source.flat_map(|row| (0..columns).map(move |_| row as f32)).collect()
    };
    let write = |architecture: &str, q: &[f32], k: &[f32], q_bias: &[f32], v: &[f32]| {
        let writer = shape(architecture)
            .tensor_f32("blk.0.attn_q.weight", &[3, 8], q)
            .tensor_f32("blk.0.attn_k.weight", &[3, 4], k)
            .tensor_f32("blk.0.attn_q.bias", &[8], q_bias)
            .tensor_f32("blk.0.attn_v.weight", &[3, 4], v);
        open(&writer.bytes()).unwrap()
    };
    let check = |gguf: &Gguf| {
        assert_eq!(read(gguf, QUERY), rows(8, 3));
        assert_eq!(read(gguf, "model.layers.0.self_attn.k_proj.weight"), rows(4, 3));
        assert_eq!(read(gguf, "model.layers.0.self_attn.q_proj.bias"), rows(8, 1));
        assert_eq!(read(gguf, "model.layers.0.self_attn.v_proj.weight"), rows(4, 3));
    };
    check(&write("llama", &interleaved(8, 3), &interleaved(4, 3), &interleaved(8, 1), &rows(4, 3)));
    check(&write("qwen3", &rows(8, 3), &rows(4, 3), &rows(8, 1), &rows(4, 3)));
    check(&write("qwen2", &rows(8, 3), &rows(4, 3), &rows(8, 1), &rows(4, 3)));
}

#[test]
fn rows_that_are_no_whole_heads_are_refused() {
    for (rows, heads) in [(8, 3), (6, 2)] {
        let writer = shape("llama").integer("llama.attention.head_count", heads);
        let gguf = open(&writer.tensor("blk.0.attn_q.weight", &[1, rows], Kind::F32).bytes()).unwrap();
        let error = try_read(&gguf, QUERY).unwrap_err().to_string();
        assert!(
            error.ends_with(&format!("the {rows} rows of tensor {QUERY} are not those of {heads} heads")),
            "{error}"
        );
    }
}

#[test]
fn an_unsupported_block_type_is_refused_where_it_is_read() {
    let writer = model("llama").tensor_raw("blk.2.ffn_down.weight", &[256, 1], 16, vec![0; 66]);
    let gguf = open(&writer.bytes()).unwrap();
    assert_eq!(gguf.tensors.shape("model.layers.2.mlp.down_proj.weight"), Some(&[1, 256][..]));
    let error = try_read(&gguf, "model.layers.2.mlp.down_proj.weight").unwrap_err().to_string();
    assert!(error.contains("tensor blk.2.ffn_down.weight at byte "), "{error}");
    let types = "is of type IQ2_XXS: supported are F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K";
    assert!(error.ends_with(types), "{error}");
}

#[test]
fn metadata_that_change_the_mathematics_are_refused_by_key() {
    let refused = |writer: Writer, part: &str| has_no_config(&writer, part);
    let llama = || model("llama");
    let ministral3 = "files of Ministral3ForCausalLM are not read. Give its Hugging Face directory";
    refused(llama().string("general.architecture", "mistral3"), ministral3);
    refused(llama().string("general.architecture", "gemma"), "is gemma: supported are qwen2, qwen3, llama");
    // Without it config.json and llama.cpp mean different factors.
    refused(model("granite"), "granite.attention.scale");
    refused(llama().string("general.type", "adapter"), "is adapter: only files of whole models are read");
    refused(llama().integer("split.count", 3), "metadata key split.count at byte ");
    refused(llama().string("llama.rope.scaling.type", "yarn"), "llama.rope.scaling.type at byte ");
    refused(llama().float("llama.rope.scaling.factor", 4.0), "llama.rope.scaling.factor at byte ");
    refused(llama().float("llama.rope.scale_linear", 0.5), "llama.rope.scale_linear at byte ");
    refused(llama().integer("llama.rope.dimension_count", 2), "less than a head (4) are not supported");
    refused(llama().integer("llama.attention.value_length", 8), "keys have 4 and values must have as many");
    refused(llama().integer("llama.attention.sliding_window", 4096), "sliding-window attention is not supported");
    refused(llama().float("llama.rope.freq_scale", 0.25), "scaled rotary embeddings are not supported");
    refused(llama().float("llama.rope.scaling.attn_factor", 0.8), "scaled rotary embeddings are not supported");
    refused(llama().float("llama.attn_logit_softcapping", 50.0), "capped logits are not supported");
    refused(llama().float("llama.attention.scale", 0.1), "llama.attention.scale at byte ");
    refused(llama().integer("llama.expert_count", 8), "of mixtures of experts those of Qwen3");
    refused(llama().flag("llama.attention.causal", false), "only causal attention is supported");
    refused(llama().float("llama.new_knob", 1.0), "is set: this program does not know what it changes in the model");
    refused(llama().integer("llama.attention.head_count", 0), "is 0: there must be a head");
    refused(llama().without("llama.block_count"), "no metadata key llama.block_count: convert the model again");
    refused(llama().string("llama.block_count", "2"), "is a string, expected an integer from 0 to 2^64 - 1");
    refused(llama().float("llama.rope.freq_base", f32::NAN), "expected a finite floating-point number");
    refused(shape("llama"), "no tensor model.embed_tokens.weight");
    let uneven = llama().without("llama.attention.key_length").integer("llama.attention.head_count", 3);
    refused(uneven, "is 3: 256 (embedding_length) must be a multiple of it");

    let plain = llama().string("llama.rope.scaling.type", "none").float("llama.rope.scaling.factor", 1.0);
    let plain = plain.integer("llama.attention.sliding_window", 0).integer("llama.vocab_size", 6).float("qwen2.x", 2.0);
    config(&plain.flag("llama.attention.causal", true));
}

/// Keys of a Gemma 3 of so many layers, with heads of 16.
fn gemma3(layers: u32) -> Writer {
    shape_of("gemma3", layers, [64, 16, 8]).tensor("token_embd.weight", &[64, 6], Kind::F32)
}

fn model_config(writer: &Writer) -> ModelConfig {
    ModelConfig::from_json(&config(writer).to_string()).unwrap()
}

#[test]
fn windows_bases_and_scales_are_those_that_llama_cpp_takes() {
    let window = |writer: Writer| writer.integer("gemma3.attention.sliding_window", 32);
    let slides = |config: &ModelConfig| config.layers.iter().map(LayerConfig::slides).collect::<Vec<_>>();
    let plain = model_config(&window(gemma3(7)));
    assert_eq!(plain.family.class, "Gemma3ForCausalLM");
    assert_eq!(slides(&plain), [true, true, true, true, true, false, true]);
    assert_eq!((plain.layers[0].window, plain.layers[5].window), (Some(32), None));
    assert_eq!((plain.ropes[0].theta, plain.ropes[1].theta), (1e6, 1e4));
    assert_eq!((plain.score_scale, plain.tied, plain.padding), (0.25, true, None));
    // A window that bounds nothing still makes layers of its kind; none makes none.
    let wide = model_config(&gemma3(7).integer("gemma3.attention.sliding_window", 64));
    assert_eq!((slides(&wide), wide.layers[0].window), (slides(&plain), None));
    for none in [gemma3(7), gemma3(7).integer("gemma3.attention.sliding_window", 0)] {
        assert_eq!(model_config(&none).layers, [LayerConfig::FULL; 7]);
    }
    let said = window(gemma3(4)).integer("gemma3.attention.sliding_window_pattern", 2);
    let said = said.float("gemma3.rope.freq_base_swa", 500.0).float("gemma3.rope.scaling.factor", 8.0);
    for said in [said.clone(), said.clone().string("gemma3.rope.scaling.type", "linear")] {
        let config = model_config(&said);
        assert_eq!(slides(&config), [true, false, true, false]);
        assert_eq!((config.ropes[1].theta, config.ropes[0].scaling), (500.0, Some(Scaling::Linear(8.0))));
        assert_eq!(config.ropes[1].scaling, None);
    }
    assert_eq!(model_config(&said.clone().string("gemma3.rope.scaling.type", "none")).ropes[0].scaling, None);
    // That of 27B: by the width of the model for each head.
    assert_eq!(model_config(&window(gemma3(62))).score_scale, 32f32.powf(-0.5));

    has_no_config(&said.string("gemma3.rope.scaling.type", "yarn"), "is yarn: supported are none and linear");
    let capped = window(gemma3(7)).float("gemma3.final_logit_softcapping", 30.0);
    has_no_config(&capped, "capped logits are not supported");
    let listed = window(gemma3(2)).integers("gemma3.attention.sliding_window_pattern", &[1, 0]);
    has_no_config(&listed, "sliding_window_pattern at byte ");
    let olmo2 = shape_of("olmo2", 2, [64, 16, 8]).tensor("token_embd.weight", &[64, 6], Kind::F32);
    assert_eq!(model_config(&olmo2).padding, None);
    let olmo3 = olmo2.integer("olmo2.attention.sliding_window", 4096);
    has_no_config(&olmo3, "olmo2.attention.sliding_window at byte ");
}

/// Reads norms in f32 and in blocks; other families keep the stored values.
#[test]
fn norms_are_read_without_the_one_that_files_add() {
    let norm = |architecture: &str| {
        shape_of(architecture, 1, [64, 16, 8])
            .tensor_f32("output_norm.weight", &[4], &[1.0, 1.5, 0.25, 1.0 + f32::EPSILON])
            .tensor("blk.0.attn_k_norm.weight", &[32], Kind::Block(Block::Q8_0))
            .tensor_f32("blk.0.attn_q.weight", &[2, 2], &[1.0; 4])
    };
    let [gemma3, olmo2] = ["gemma3", "olmo2"].map(|architecture| open(&norm(architecture).bytes()).unwrap());
    assert_eq!(read(&gemma3, "model.norm.weight"), [0.0, 0.5, -0.75, f32::EPSILON]);
    assert_eq!(read(&olmo2, "model.norm.weight"), [1.0, 1.5, 0.25, 1.0 + f32::EPSILON]);
    assert_eq!(read(&gemma3, QUERY), [1.0; 4]);
    let [keys, plain] = [&gemma3, &olmo2].map(|gguf| read(gguf, "model.layers.0.self_attn.k_norm.weight"));
    assert!(keys.iter().zip(&plain).all(|(key, plain)| *key == plain - 1.0));
    assert!(gemma3.tensors.blocks().is_dense() && !olmo2.tensors.blocks().is_dense());
    assert_eq!(gemma3.tensors.stored("model.norm.weight"), None);
}

#[test]
fn a_tensor_that_no_model_of_the_family_has_is_refused() {
    for family in ["qwen2", "qwen3"] {
        let scaled = fault(&model(family).tensor("rope_freqs.weight", &[2], Kind::F32).bytes()).to_string();
        assert!(scaled.contains("rope_freqs.weight at byte ") && scaled.contains("in llama only"), "{scaled}");
    }
    for name in ["blk.0.attn_q_norm.weight", "blk.01.ffn_up.weight", "blk.+1.ffn_up.weight", "blk.0.ffn_up.bias", "x"] {
        let fault = fault(&shape("llama").tensor(name, &[8], Kind::F32).bytes());
        assert!(fault.to_string().starts_with(&format!("tensor {name} at byte ")), "{fault}");
        assert!(fault.to_string().contains(" has no place in a llama model "), "{fault}");
    }
    for family in ["olmo2", "gemma3"] {
        let fault = fault(&shape(family).tensor("blk.0.attn_output.bias", &[8], Kind::F32).bytes());
        assert!(fault.to_string().contains(&format!(" has no place in a {family} model ")), "{fault}");
    }
}

/// A scale that is NaN makes a block of values that are: found after dequantizing, by the tensor's Hugging Face name.
#[test]
fn a_scale_that_is_not_finite_is_refused_where_it_is_read() {
    let writer = shape_of("qwen2", 1, [32, 16, 32]).tensor("token_embd.weight", &[32, 8], Kind::F32).tensor(
        "output_norm.weight",
        &[32],
        Kind::F32,
    );
    let kind = |name: &str| if name.ends_with("norm") { Kind::F32 } else { Kind::Block(Block::Q8_0) };
    let mut writer = with_biases(with_layer(writer, 0, [32, 16, 32], kind), 0, 16);
    // The scale of the fourth block.
    writer.values("blk.0.attn_k.weight")[3 * 34..][..2].copy_from_slice(&[0, 0x7E]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, writer.bytes()).unwrap();
    let model = Checkpoint::open(&path).unwrap();
    for parameter in &Parameters::new(model.config()).list {
        let mut scratch = Scratch::default();
        let read = model.read(parameter, Dtype::Bf16.into(), &mut scratch);
        if parameter.name != "model.layers.0.self_attn.k_proj.weight" {
            assert!(read.is_ok(), "{}", parameter.name);
            continue;
        }
        let Err(CheckpointError::NotFinite { what, .. }) = read else { panic!("{}", parameter.name) };
        assert_eq!((what.tensor, what.index, what.value.is_nan()), (parameter.name.clone(), 3 * 32, true));
    }
}
