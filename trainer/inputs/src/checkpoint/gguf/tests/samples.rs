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

/// How files have a tensor of Qwen3.5.
#[derive(Clone, Copy)]
pub(super) enum Stored {
    Same,
    /// With one added.
    Norm,
    /// `-exp(A_log)`, a value for each value head.
    Decay,
    /// Rows in the order of value heads, so many of each, behind rows of no value head.
    Rows {
        skipped: usize,
        of_head: usize,
    },
    /// 128 columns of each value head.
    Columns,
}

/// The values of a tensor of so many rows in the order and the form that files have: value head `order[i]` is their
/// i-th.
pub(super) fn as_stored(values: &[f32], rows: usize, stored: Stored, order: &[usize]) -> Vec<f32> {
    let columns = values.len() / rows;
    let ordered = |heads: &[f32], len: usize| -> Vec<f32> {
        order.iter().flat_map(|head| heads[head * len..][..len].to_vec()).collect()
    };
    match stored {
        Stored::Same => values.to_vec(),
        Stored::Norm => values.iter().map(|value| value + 1.0).collect(),
        Stored::Decay => ordered(values, 1).iter().map(|value| -f64::from(*value).exp() as f32).collect(),
        Stored::Rows { skipped, of_head } => {
            let (first, heads) = values.split_at(skipped * columns);
            [first.to_vec(), ordered(heads, of_head * columns)].concat()
        }
        Stored::Columns => values.chunks(columns).flat_map(|row| ordered(row, 128)).collect(),
    }
}

/// Keys of a Qwen3.5 of two layers, of which the second attends: hidden size 32, two query heads and one key head of
/// 32, of which 8 elements are rotated, intermediate size 48, two key heads and so many value heads of the delta rule.
pub(super) fn qwen35_shape(values: u32) -> Writer {
    qwen35_shape_of("qwen35", values)
}

/// Those keys of an architecture.
pub(super) fn qwen35_shape_of(architecture: &str, values: u32) -> Writer {
    let key = |rest: &str| format!("{architecture}.{rest}");
    shape_of(architecture, 2, [32, 32, 48])
        .integer(&key("rope.dimension_count"), 8)
        .integers(&key("rope.dimension_sections"), &[2, 1, 1, 0])
        .integer(&key("ssm.conv_kernel"), 4)
        .integer(&key("ssm.state_size"), 128)
        .integer(&key("ssm.group_count"), 2)
        .integer(&key("ssm.time_step_rank"), values)
        .integer(&key("ssm.inner_size"), 128 * values)
        .integer(&key("full_attention_interval"), 2)
}

/// The tensors of such a model, with so many tokens: names in files and in Hugging Face's, dimensions as files have
/// them, columns first, and form.
pub(super) fn qwen35_tensors(values: u64, tokens: u64) -> Vec<(String, String, Vec<u64>, Stored)> {
    let (width, channels) = (128 * values, 512 + 128 * values);
    let rows = |skipped, of_head| Stored::Rows { skipped, of_head };
    let delta_rule: [(&str, &str, &[u64], Stored); 9] = [
        ("attn_qkv.weight", "linear_attn.in_proj_qkv.weight", &[32, channels], rows(512, 128)),
        ("attn_gate.weight", "linear_attn.in_proj_z.weight", &[32, width], rows(0, 128)),
        ("ssm_beta.weight", "linear_attn.in_proj_b.weight", &[32, values], rows(0, 1)),
        ("ssm_alpha.weight", "linear_attn.in_proj_a.weight", &[32, values], rows(0, 1)),
        ("ssm_conv1d.weight", "linear_attn.conv1d.weight", &[4, channels], rows(512, 128)),
        ("ssm_a", "linear_attn.A_log", &[values], Stored::Decay),
        ("ssm_dt.bias", "linear_attn.dt_bias", &[values], rows(0, 1)),
        ("ssm_norm.weight", "linear_attn.norm.weight", &[128], Stored::Same),
        ("ssm_out.weight", "linear_attn.out_proj.weight", &[width, 32], Stored::Columns),
    ];
    // Each query with its gate.
    let attention: [(&str, &str, &[u64], Stored); 6] = [
        ("attn_q.weight", "self_attn.q_proj.weight", &[32, 128], Stored::Same),
        ("attn_k.weight", "self_attn.k_proj.weight", &[32, 32], Stored::Same),
        ("attn_v.weight", "self_attn.v_proj.weight", &[32, 32], Stored::Same),
        ("attn_q_norm.weight", "self_attn.q_norm.weight", &[32], Stored::Norm),
        ("attn_k_norm.weight", "self_attn.k_norm.weight", &[32], Stored::Norm),
        ("attn_output.weight", "self_attn.o_proj.weight", &[64, 32], Stored::Same),
    ];
    let both: [(&str, &str, &[u64], Stored); 5] = [
        ("attn_norm.weight", "input_layernorm.weight", &[32], Stored::Norm),
        ("post_attention_norm.weight", "post_attention_layernorm.weight", &[32], Stored::Norm),
        ("ffn_gate.weight", "mlp.gate_proj.weight", &[32, 48], Stored::Same),
        ("ffn_up.weight", "mlp.up_proj.weight", &[32, 48], Stored::Same),
        ("ffn_down.weight", "mlp.down_proj.weight", &[48, 32], Stored::Same),
    ];
    let ends: [(&str, &str, &[u64], Stored); 2] = [
        ("token_embd.weight", "model.embed_tokens.weight", &[32, tokens], Stored::Same),
        ("output_norm.weight", "model.norm.weight", &[32], Stored::Norm),
    ];
    let layer = |number: usize, rows: &[(&str, &str, &[u64], Stored)]| {
        let name = |(file, model, shape, stored): &(&str, &str, &[u64], Stored)| {
            (format!("blk.{number}.{file}"), format!("model.layers.{number}.{model}"), shape.to_vec(), *stored)
        };
        rows.iter().map(name).collect::<Vec<_>>()
    };
    let ends = ends.map(|(file, model, shape, stored)| (file.to_owned(), model.to_owned(), shape.to_vec(), stored));
    [ends.to_vec(), layer(0, &delta_rule), layer(0, &both), layer(1, &attention), layer(1, &both)].concat()
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
