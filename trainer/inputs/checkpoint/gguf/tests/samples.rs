//! Small GGUF models, written byte by byte.

use super::writer::Writer;
use crate::inputs::checkpoint::kind::Kind;
use precast_kernels::Block;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

/// Keys of a model of two layers: hidden size 256, two query heads and one key head of 4, intermediate size 8.
pub(super) fn shape(architecture: &str) -> Writer {
    let key = |rest: &str| format!("{architecture}.{rest}");
    Writer::new()
        .string("general.architecture", architecture)
        .integer(&key("block_count"), 2)
        .integer(&key("context_length"), 64)
        .integer(&key("embedding_length"), 256)
        .integer(&key("feed_forward_length"), 8)
        .integer(&key("attention.head_count"), 2)
        .integer(&key("attention.head_count_kv"), 1)
        .integer(&key("attention.key_length"), 4)
        .integer(&key("attention.value_length"), 4)
        .integer(&key("rope.dimension_count"), 4)
        .float(&key("rope.freq_base"), 1e6)
        .float(&key("attention.layer_norm_rms_epsilon"), 1e-6)
}

/// A whole model, with tensors of every type.
pub(super) fn model(architecture: &str) -> Writer {
    use Kind::{Bf16, F16, F32};
    let [q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0] =
        [Block::Q4_0, Block::Q4_1, Block::Q4_K, Block::Q5_0, Block::Q5_1, Block::Q5_K, Block::Q6_K, Block::Q8_0]
            .map(Kind::Block);
    let mut writer = shape(architecture)
        .tensor("token_embd.weight", &[256, 6], q4_0)
        .tensor("output_norm.weight", &[256], F32)
        .tensor("output.weight", &[256, 6], q4_1);
    for (layer, value) in [(0, q5_0), (1, q5_1)] {
        let name = |rest: &str| format!("blk.{layer}.{rest}");
        writer = writer
            .tensor(&name("attn_norm.weight"), &[256], F32)
            .tensor(&name("attn_q.weight"), &[256, 8], q6_k)
            .tensor(&name("attn_k.weight"), &[256, 4], q8_0)
            .tensor(&name("attn_v.weight"), &[256, 4], value)
            .tensor(&name("attn_output.weight"), &[8, 256], F16)
            .tensor(&name("ffn_norm.weight"), &[256], F32)
            .tensor(&name("ffn_gate.weight"), &[256, 8], q4_k)
            .tensor(&name("ffn_up.weight"), &[256, 8], q5_k)
            .tensor(&name("ffn_down.weight"), &[8, 256], Bf16);
        if architecture == "qwen2" {
            writer = writer.tensor(&name("attn_q.bias"), &[8], F32).tensor(&name("attn_k.bias"), &[4], F32).tensor(
                &name("attn_v.bias"),
                &[4],
                F32,
            );
        }
        if architecture == "qwen3" {
            writer =
                writer.tensor(&name("attn_q_norm.weight"), &[4], F32).tensor(&name("attn_k_norm.weight"), &[4], F32);
        }
    }
    writer
}

/// Texts, types and merges of a byte-level vocabulary: all bytes, a few merges, then tokens of every other kind.
pub(super) struct ByteLevelVocabulary {
    pub(super) tokens: Vec<String>,
    pub(super) types: Vec<i32>,
    pub(super) merges: Vec<String>,
}

pub(super) fn byte_level_vocabulary() -> ByteLevelVocabulary {
    let mut tokens: Vec<String> = ByteLevel::alphabet().into_iter().map(String::from).collect();
    tokens.sort();
    let merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "1 2"].map(str::to_owned);
    tokens.extend(merges.iter().map(|merge| merge.replace(' ', "")));
    let mut types = vec![1; tokens.len()];
    for (text, kind) in [("<|im_start|>", 3), ("<|im_end|>", 3), ("<tool call>", 4), ("[PAD1]", 5), ("[PAD1]", 5)] {
        tokens.push(text.to_owned());
        types.push(kind);
    }
    ByteLevelVocabulary { tokens, types, merges: merges.to_vec() }
}

/// Adds a byte-level tokenizer that splits as `family` does.
pub(super) fn with_byte_level(writer: Writer, family: &str) -> Writer {
    let ByteLevelVocabulary { tokens, types, merges } = byte_level_vocabulary();
    writer
        .string("tokenizer.ggml.model", "gpt2")
        .string("tokenizer.ggml.pre", family)
        .strings("tokenizer.ggml.tokens", &tokens)
        .integers("tokenizer.ggml.token_type", &types)
        .strings("tokenizer.ggml.merges", &merges)
}

/// Adds a SentencePiece tokenizer. Ids 0 to 2 are `<unk>`, `<s>` and `</s>`, 3 to 258 bytes, then come pieces.
pub(super) fn with_sentencepiece(writer: Writer) -> Writer {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    let mut types = [vec![2, 3, 3], vec![6; 256]].concat();
    let mut scores = vec![0.0; tokens.len()];
    let pieces = "ll -1|he -2|hell -3|hello -4|▁hello -5|▁▁ -1e9|▁▁▁ -1e9|▁ -10|h -11|e -12|l -13|o -14";
    for (text, score) in pieces.split('|').map(|piece| piece.split_once(' ').unwrap()) {
        tokens.push(text.to_owned());
        types.push(1);
        scores.push(score.parse().unwrap());
    }
    writer
        .string("tokenizer.ggml.model", "llama")
        .strings("tokenizer.ggml.tokens", &tokens)
        .integers("tokenizer.ggml.token_type", &types)
        .floats("tokenizer.ggml.scores", &scores)
        .integer("tokenizer.ggml.bos_token_id", 1)
        .integer("tokenizer.ggml.eos_token_id", 2)
}
