//! Mixtures of experts: one tensor of all experts, read as one of each.

use precast_kernels::Block;
use precast_plan::{ExpertsConfig, ModelConfig, Parameters};

use super::samples::{qwen35_shape_of, shape_of};
use super::writer::Writer;
use super::{config, has_no_config, open, read};
use crate::checkpoint::Checkpoint;
use crate::checkpoint::kind::Kind;

/// Experts, width of the model, of a head and of an expert.
const SHAPE: [u64; 4] = [4, 64, 16, 32];

/// A Qwen3 with experts, of one layer.
fn file() -> Writer {
    let [experts, hidden, head, width] = SHAPE;
    let keys = shape_of("qwen3moe", 1, [hidden as u32, head as u32, 6144])
        .integer("qwen3moe.expert_count", experts as u32)
        .integer("qwen3moe.expert_used_count", 2)
        .integer("qwen3moe.expert_feed_forward_length", width as u32);
    let dense: [(&str, &[u64]); 9] = [
        ("token_embd", &[hidden, 8]),
        ("output_norm", &[hidden]),
        ("blk.0.attn_norm", &[hidden]),
        ("blk.0.attn_q", &[hidden, 2 * head]),
        ("blk.0.attn_k", &[hidden, head]),
        ("blk.0.attn_v", &[hidden, head]),
        ("blk.0.attn_output", &[2 * head, hidden]),
        ("blk.0.ffn_norm", &[hidden]),
        ("blk.0.ffn_gate_inp", &[hidden, experts]),
    ];
    let add =
        |writer: Writer, (name, shape): (&str, &[u64])| writer.tensor(&format!("{name}.weight"), shape, Kind::F32);
    let writer = ["attn_q_norm", "attn_k_norm"].into_iter().fold(dense.into_iter().fold(keys, add), |writer, name| {
        writer.tensor(&format!("blk.0.{name}.weight"), &[head], Kind::F32)
    });
    writer
        .tensor("blk.0.ffn_gate_exps.weight", &[hidden, width, experts], Kind::Block(Block::Q4_0))
        .tensor("blk.0.ffn_up_exps.weight", &[hidden, width, experts], Kind::Block(Block::Q8_0))
        .tensor_f32("blk.0.ffn_down_exps.weight", &[width, hidden, experts], &down())
}

/// The values of all down projections.
fn down() -> Vec<f32> {
    let [experts, hidden, _, width] = SHAPE;
    (0..experts * hidden * width).map(|index| index as f32).collect()
}

#[test]
fn a_file_has_one_tensor_of_all_experts() {
    let [_, hidden, _, width] = SHAPE;
    let read_config = ModelConfig::from_json(&config(&file()).to_string()).unwrap();
    let experts = ExpertsConfig { count: 4, chosen: 2, normalizes: true, has_shared: false };
    assert_eq!((read_config.experts, read_config.intermediate), (Some(experts), 32));
    let gguf = open(&file().bytes()).unwrap();
    let of_expert = (hidden * width) as usize;
    for (expert, expected) in down().chunks(of_expert).enumerate() {
        assert_eq!(read(&gguf, &format!("model.layers.0.mlp.experts.{expert}.down_proj.weight")), expected);
    }
    let blocks = gguf.tensors.blocks();
    for (part, block) in [("gate", Some(Block::Q4_0)), ("up", Some(Block::Q8_0)), ("down", None)] {
        assert_eq!(blocks.of(&format!("model.layers.0.mlp.experts.3.{part}_proj.weight")), block, "{part}");
    }
    // It is the whole model.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, file().bytes()).unwrap();
    let model = Checkpoint::open(&path).unwrap();
    assert_eq!(Parameters::new(model.config()).list.len(), 11 + 3 * 4);
}

#[test]
fn keys_of_experts_are_needed_and_followed_in_families_with_experts_alone() {
    let keys = || shape_of("qwen3moe", 1, [64, 16, 6144]).tensor("token_embd.weight", &[64, 6], Kind::F32);
    has_no_config(&keys(), "expert_feed_forward_length");
    has_no_config(&keys().integer("qwen3moe.expert_feed_forward_length", 8), "expert_count");
    let dense = shape_of("qwen3", 1, [64, 16, 8]).tensor("token_embd.weight", &[64, 6], Kind::F32);
    has_no_config(&dense.integer("qwen3.expert_count", 4), "of mixtures of experts those of Qwen3 and Qwen3.5");
    let scaled = keys().float("qwen3moe.expert_weights_scale", 2.5);
    has_no_config(&scaled, "of mixtures of experts those of Qwen3 and Qwen3.5");
}

#[test]
fn a_shared_expert_has_keys_and_tensors_of_its_own() {
    let keys = |writer: Writer| {
        let writer = writer.integer("qwen35moe.expert_count", 4).integer("qwen35moe.expert_used_count", 2);
        let writer = writer.integer("qwen35moe.expert_feed_forward_length", 8);
        writer.integer("qwen35moe.expert_shared_feed_forward_length", 8)
    };
    let writer = keys(qwen35_shape_of("qwen35moe", 4)).tensor("token_embd.weight", &[32, 6], Kind::F32);
    let writer = writer.tensor("blk.0.ffn_gate_inp_shexp.weight", &[32], Kind::F32);
    let read_config = ModelConfig::from_json(&config(&writer).to_string()).unwrap();
    let experts = ExpertsConfig { count: 4, chosen: 2, normalizes: true, has_shared: true };
    assert_eq!(read_config.experts, Some(experts));
    let gguf = open(&writer.bytes()).unwrap();
    assert_eq!(gguf.tensors.shape("model.layers.0.mlp.shared_expert_gate.weight"), Some(&[1, 32][..]));
}
