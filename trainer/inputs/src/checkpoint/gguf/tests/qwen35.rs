//! Qwen3.5: value heads tiled, decays as `-exp(A_log)`, norms with one added but the gated one.

use std::path::{Path, PathBuf};

use precast_kernels::{Block, Dtype, Format};
use precast_plan::{LayerKind, ModelConfig, Parameters};
use precast_system::files::Existing;
use serde_json::{Value, json};

use super::samples::{as_stored, byte_level_vocabulary, qwen35_shape, qwen35_tensors, with_byte_level};
use super::writer::Writer;
use super::{config, has_no_config, open, read, try_read};
use crate::checkpoint::gguf::Encoding;
use crate::checkpoint::kind::Kind;
use crate::checkpoint::{Checkpoint, GgufFile, ModelSource, Scratch, Weights, stored, write_model};

/// Value heads in the order of a file, of two key heads: of four, and of six, where reading is no writing.
const ORDERS: [&[usize]; 2] = [&[0, 2, 1, 3], &[0, 3, 1, 4, 2, 5]];

const OUT: &str = "model.layers.0.linear_attn.out_proj.weight";

/// Values of a tensor that survive an addition of one, and the exponential.
fn values(name: &str, elements: u64) -> Vec<f32> {
    let seed = name.bytes().map(u64::from).sum::<u64>();
    let value = |index: u64| ((index * 7 + seed) % 1021) as f32 / 512.0;
    let least = if name.ends_with(".A_log") { 1.0 } else { -1.0 };
    (0..elements).map(|index| value(index) + least).collect()
}

/// A file of a model with these values.
fn file(order: &[usize]) -> Writer {
    let tokens = byte_level_vocabulary().tokens.len() as u64;
    let writer = with_byte_level(qwen35_shape(order.len() as u32), "qwen35");
    let heads = order.len() as u64;
    qwen35_tensors(heads, tokens).into_iter().fold(writer, |writer, (name, hugging_face, shape, stored)| {
        let rows = *shape.last().unwrap() as usize;
        let values = values(&hugging_face, shape.iter().product());
        writer.tensor_f32(&name, &shape, &as_stored(&values, rows, stored, order))
    })
}

fn write_file(directory: &Path, writer: &Writer) -> PathBuf {
    let path = directory.join("model.gguf");
    std::fs::write(&path, writer.bytes()).unwrap();
    path
}

/// Writes a Hugging Face directory of a model with these values.
fn write_directory(path: &Path, json: &Value, tokenizer: &Checkpoint) -> Checkpoint {
    let config = ModelConfig::from_json(&json.to_string()).unwrap();
    let parameters = Parameters::new(&config).list;
    let source =
        ModelSource { config: json, parameters: &parameters, dtype: stored(Dtype::F32), tokenizer_from: &[tokenizer] };
    write_model(path, Existing::Keep, &source, |parameter, write| {
        write(bytemuck::cast_slice(&values(&parameter.name, parameter.elems())))
    })
    .unwrap();
    Checkpoint::open(path).unwrap()
}

fn assert_same(one: &Checkpoint, other: &Checkpoint) {
    assert_eq!(one.config(), other.config());
    let (mut left, mut right) = (Scratch::default(), Scratch::default());
    for parameter in &Parameters::new(one.config()).list {
        let left = Weights::read(one, parameter, Dtype::F32.into(), &mut left).unwrap();
        let right = Weights::read(other, parameter, Dtype::F32.into(), &mut right).unwrap();
        assert!(left == right, "{}", parameter.name);
    }
}

/// Writes a model as one file in f32.
fn export(model: &Checkpoint, path: &Path) {
    let (file, mut scratch) = (GgufFile::new(model, Encoding::F32).unwrap(), Scratch::default());
    file.write::<crate::checkpoint::CheckpointError>(path, |parameter, values| {
        bytemuck::cast_slice_mut(values).copy_from_slice(Weights::read(
            model,
            parameter,
            Dtype::F32.into(),
            &mut scratch,
        )?);
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_file_and_a_directory_of_a_model_have_the_same_bits_and_so_has_what_is_exported() {
    for order in ORDERS {
        let dir = tempfile::tempdir().unwrap();
        let file = Checkpoint::open(&write_file(dir.path(), &file(order))).unwrap();
        let directory = write_directory(&dir.path().join("model"), &file.json, &file);
        assert_same(&file, &directory);
        let [first, second] = ["first.gguf", "second.gguf"].map(|name| dir.path().join(name));
        export(&directory, &first);
        let exported = Checkpoint::open(&first).unwrap();
        assert_same(&exported, &directory);
        assert_eq!(exported.tokenizer().unwrap().unwrap().id("hello"), file.tokenizer().unwrap().unwrap().id("hello"));
        export(&file, &second);
        assert!(std::fs::read(&first).unwrap() == std::fs::read(&second).unwrap());
    }
}

#[test]
fn a_decay_that_is_not_below_zero_is_refused() {
    for wrong in [0.0f32, 0.25, f32::NAN] {
        let mut writer = file(ORDERS[0]);
        writer.values("blk.0.ssm_a")[4..8].copy_from_slice(&wrong.to_le_bytes());
        let error = try_read(&open(&writer.bytes()).unwrap(), "model.layers.0.linear_attn.A_log").unwrap_err();
        // The second in the file is the third value head.
        let expected = format!("linear_attn.A_log is {wrong} at element 2, and decays are -exp(A_log), below 0");
        assert!(error.to_string().contains(&expected), "{error}");
    }
}

#[test]
fn what_a_file_cannot_say_is_refused_when_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let file = Checkpoint::open(&write_file(dir.path(), &file(ORDERS[0]))).unwrap();
    let refused = |name: &str, field: &str, value: Value| {
        let mut json = file.json.clone();
        json[field] = value;
        let directory = write_directory(&dir.path().join(name), &json, &file);
        GgufFile::new(&directory, Encoding::F32).err().unwrap().to_string()
    };
    let kinds = refused("kinds", "layer_types", json!(["full_attention", "linear_attention"]));
    let expected =
        "layer 1 is linear_attention (layer_types) and full_attention_interval = 1 would make it full_attention";
    assert!(kinds.contains(expected), "{kinds}");
    let mut rope = file.json["rope_parameters"].clone();
    rope["mrope_section"] = json!([4, 0, 0]);
    let sections = refused("sections", "rope_parameters", rope);
    assert!(sections.contains("rope_parameters.mrope_section is [4, 0, 0]: llama.cpp leaves a pair"), "{sections}");
    let biases = refused("biases", "attention_bias", json!(true));
    assert!(biases.contains("have no tensor for model.layers.1.self_attn.q_proj.bias"), "{biases}");
}

#[test]
fn a_configuration_has_what_keys_say() {
    let file = || file(ORDERS[0]);
    let read = |writer: &Writer| ModelConfig::from_json(&config(writer).to_string()).unwrap();
    let plain = read(&file());
    let attends = |config: &ModelConfig| config.layers.iter().map(|layer| layer.kind == LayerKind::Attention).collect();
    assert_eq!((plain.rotary, plain.head_dim, plain.tied), (8, 32, true));
    let kinds: Vec<bool> = attends(&plain);
    assert_eq!(kinds, [false, true]);
    // Each fourth layer where nothing is said, and what is listed before an interval.
    let kinds: Vec<bool> = attends(&read(&file().without("qwen35.full_attention_interval")));
    assert_eq!(kinds, [false, false]);
    let kinds: Vec<bool> = attends(&read(&file().flags("qwen35.attention.recurrent_layers", &[false, true])));
    assert_eq!(kinds, [true, false]);
    // Layers that predict further tokens are not read.
    let further = file().integer("qwen35.block_count", 3).integer("qwen35.nextn_predict_layers", 1);
    let further = further.tensor("blk.2.nextn.eh_proj.weight", &[64, 32], Kind::F32);
    assert_eq!(read(&further).layers, plain.layers);
    assert!(!open(&further.bytes()).unwrap().tensors.names().any(|name| name.contains("layers.2")));

    for (key, value, wanted) in [
        ("ssm.inner_size", 500, "is 500: 4 value heads of 128 are another width"),
        ("ssm.time_step_rank", 3, "is 3: 2 key heads (ssm.group_count) must share value heads evenly"),
        ("ssm.group_count", 0, "is 0: expected a number of heads"),
        ("rope.dimension_count", 34, "is 34: expected an even number of a head's 32 elements"),
        ("rope.dimension_count", 7, "is 7: expected an even number"),
        ("full_attention_interval", 0, "is 0: expected a number of layers"),
        ("nextn_predict_layers", 3, "is 3: the file has 2 layers in all"),
    ] {
        has_no_config(&file().integer(&format!("qwen35.{key}"), value), wanted);
    }
    has_no_config(&file().without("qwen35.ssm.conv_kernel"), "no metadata key qwen35.ssm.conv_kernel");
    has_no_config(&file().flags("qwen35.attention.recurrent_layers", &[true]), "is of 1 layers: there are 2");
    let sections = |list: &[i32]| file().integers("qwen35.rope.dimension_sections", list);
    has_no_config(&sections(&[4, 0, 0, 0]), "is [4, 0, 0, 0]: llama.cpp leaves a pair of these as it is in text");
    has_no_config(&sections(&[2, 1, 1]), "is [2, 1, 1]: expected three numbers of pairs, and a 0");
}

/// Shares of a head that give the number of its rotated elements again, whatever it is.
#[test]
fn every_number_of_rotated_elements_survives_its_share() {
    for head_dim in (16..=256u32).step_by(16) {
        for rotary in (2..=head_dim).step_by(2) {
            let writer = shape_of_head(head_dim, rotary);
            let factor = config(&writer)["rope_parameters"]["partial_rotary_factor"].as_f64().unwrap();
            assert_eq!((f64::from(head_dim) * factor) as u32, rotary, "{head_dim}");
        }
    }
}

fn shape_of_head(head_dim: u32, rotary: u32) -> Writer {
    let writer = qwen35_shape(2).tensor("token_embd.weight", &[32, 6], Kind::F32);
    let writer = writer.without("qwen35.rope.dimension_sections").integer("qwen35.attention.key_length", head_dim);
    let writer = writer.integer("qwen35.attention.value_length", head_dim);
    writer.integer("qwen35.rope.dimension_count", rotary)
}

/// Blocks of 32 move with the columns of a head; of blocks of 256 a head is a half, and they are dequantized.
#[test]
fn blocks_move_where_heads_are_whole_blocks() {
    const QKV: &str = "model.layers.0.linear_attn.in_proj_qkv.weight";
    let open_with = |block: Block| {
        let writer = qwen35_shape(4).tensor("blk.0.attn_qkv.weight", &[32, 1024], Kind::Block(Block::Q8_0)).tensor(
            "blk.0.ssm_out.weight",
            &[512, 4],
            Kind::Block(block),
        );
        open(&writer.bytes()).unwrap()
    };
    let [small, large] = [Block::Q8_0, Block::Q4_K].map(open_with);
    assert_eq!((small.tensors.blocks().of(OUT), large.tensors.blocks().of(OUT)), (Some(Block::Q8_0), None));
    assert_eq!(large.tensors.blocks().of(QKV), Some(Block::Q8_0));
    for (name, gguf) in [(QKV, "blk.0.attn_qkv.weight"), (OUT, "blk.0.ssm_out.weight")] {
        let elements = small.tensors.shape(name).unwrap().iter().product();
        let mut scratch = Scratch::default();
        let blocks = small.tensors.read(name, 0..elements, Format::Block(Block::Q8_0), &mut scratch).unwrap();
        let mut values = vec![0.0; elements as usize];
        precast_kernels::dequant::dequantize(Block::Q8_0, blocks, &mut values);
        assert!(values == read(&small, name), "{gguf}");
    }
    // The second head of the model is the third of the file: columns 256 to 383 of each row.
    let plain = {
        let writer = qwen35_shape(2).tensor("blk.0.ssm_out.weight", &[256, 8], Kind::Block(Block::Q4_K));
        read(&open(&writer.bytes()).unwrap(), OUT)
    };
    assert_eq!(read(&large, OUT)[128..256], plain[256..384]);
    // Of as many key heads nothing moves, and blocks stay.
    let even = qwen35_shape(2).tensor("blk.0.ssm_out.weight", &[256, 8], Kind::Block(Block::Q4_K));
    assert_eq!(open(&even.bytes()).unwrap().tensors.blocks().of(OUT), Some(Block::Q4_K));
}
