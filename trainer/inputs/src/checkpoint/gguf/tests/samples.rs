//! Small GGUF models, written byte by byte.

use super::writer::Writer;
use crate::checkpoint::kind::Kind;
use precast_kernels::Block;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

/// Keys of a model of two layers: hidden size 256, two query heads and one key head of 4, intermediate size 8.
pub(super) fn shape(architecture: &str) -> Writer {
    shape_of(architecture, 2, [256, 4, 8])
}

/// Keys of a model of so many layers, of this hidden size, with heads so wide, and of this intermediate size.
pub(super) fn shape_of(architecture: &str, layers: u32, [hidden, head_dim, intermediate]: [u32; 3]) -> Writer {
    let key = |rest: &str| format!("{architecture}.{rest}");
    Writer::new()
        .string("general.architecture", architecture)
        .integer(&key("block_count"), layers)
        .integer(&key("context_length"), 64)
        .integer(&key("embedding_length"), hidden)
        .integer(&key("feed_forward_length"), intermediate)
        .integer(&key("attention.head_count"), 2)
        .integer(&key("attention.head_count_kv"), 1)
        .integer(&key("attention.key_length"), head_dim)
        .integer(&key("attention.value_length"), head_dim)
        .integer(&key("rope.dimension_count"), head_dim)
        .float(&key("rope.freq_base"), 1e6)
        .float(&key("attention.layer_norm_rms_epsilon"), 1e-6)
}

/// Adds the tensors of a layer of such a model, each of a kind of its own.
pub(super) fn with_layer(
    writer: Writer,
    layer: u32,
    [hidden, head_dim, intermediate]: [u64; 3],
    kind: impl Fn(&str) -> Kind,
) -> Writer {
    let tensors: [(&str, &[u64]); 9] = [
        ("attn_norm", &[hidden]),
        ("attn_q", &[hidden, 2 * head_dim]),
        ("attn_k", &[hidden, head_dim]),
        ("attn_v", &[hidden, head_dim]),
        ("attn_output", &[2 * head_dim, hidden]),
        ("ffn_norm", &[hidden]),
        ("ffn_gate", &[hidden, intermediate]),
        ("ffn_up", &[hidden, intermediate]),
        ("ffn_down", &[intermediate, hidden]),
    ];
    let add = |writer: Writer, (name, shape): (&str, &[u64])| {
        writer.tensor(&format!("blk.{layer}.{name}.weight"), shape, kind(name))
    };
    tensors.into_iter().fold(writer, add)
}

/// Adds the biases of a layer's queries, keys and values.
pub(super) fn with_biases(writer: Writer, layer: u32, head_dim: u64) -> Writer {
    let add = |writer: Writer, (name, width)| writer.tensor(&format!("blk.{layer}.{name}.bias"), &[width], Kind::F32);
    [("attn_q", 2 * head_dim), ("attn_k", head_dim), ("attn_v", head_dim)].into_iter().fold(writer, add)
}

/// A whole model, with tensors of every type.
pub(super) fn model(architecture: &str) -> Writer {
    let mut writer = shape(architecture)
        .tensor("token_embd.weight", &[256, 6], Kind::Block(Block::Q4_0))
        .tensor("output_norm.weight", &[256], Kind::F32)
        .tensor("output.weight", &[256, 6], Kind::Block(Block::Q4_1));
    for (layer, value) in [(0, Block::Q5_0), (1, Block::Q5_1)] {
        writer = with_layer(writer, layer, [256, 4, 8], |name| match name {
            "attn_q" => Kind::Block(Block::Q6_K),
            "attn_k" => Kind::Block(Block::Q8_0),
            "attn_v" => Kind::Block(value),
            "attn_output" => Kind::F16,
            "ffn_gate" => Kind::Block(Block::Q4_K),
            "ffn_up" => Kind::Block(Block::Q5_K),
            "ffn_down" => Kind::Bf16,
            _ => Kind::F32,
        });
        writer = match architecture {
            "qwen2" => with_biases(writer, layer, 4),
            "qwen3" => ["attn_q_norm", "attn_k_norm"]
                .into_iter()
                .fold(writer, |writer, name| writer.tensor(&format!("blk.{layer}.{name}.weight"), &[4], Kind::F32)),
            _ => writer,
        };
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
