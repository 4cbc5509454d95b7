//! Damaged files open or fail with an error, and never panic.

use proptest::prelude::*;

use super::samples::shape;
use super::writer::Writer;
use super::{Fault, open, try_read};
use crate::checkpoint::CheckpointError;
use crate::checkpoint::kind::Kind;
use crate::checkpoint::single_file::SingleFile;
use precast_kernels::Block;

/// Does all that can be done with a file.
fn exercise(bytes: &[u8]) -> Result<(), CheckpointError> {
    let at = |fault: Fault| fault.at("the file");
    let gguf = open(bytes).map_err(at)?;
    let config = gguf.config().map(drop).map_err(at);
    let mut reads = gguf.tensors.names().map(|name| {
        let elements = gguf.tensors.shape(name).expect("it is listed").iter().product::<u64>() as usize;
        assert!(elements <= 8 * bytes.len());
        try_read(&gguf, name).map(drop)
    });
    let reads = reads.try_for_each(|read| read);
    let tokenizer = gguf.tokenizer().map(|tokenizer| {
        let encoding = tokenizer.encode("hello  wórld<|im_start|>12 </s>", true).expect("it encodes");
        tokenizer.decode(encoding.get_ids(), true).expect("its own ids decode");
    });
    config?;
    reads?;
    tokenizer.map_err(at)
}

/// The last tensor fills its place, so that a file has no byte to spare.
fn tensors(writer: Writer) -> Writer {
    writer
        .tensor("token_embd.weight", &[32, 2], Kind::Block(Block::Q4_0))
        .tensor("blk.0.attn_k.weight", &[1, 4], Kind::F16)
        .tensor("blk.0.attn_q.bias", &[8], Kind::F32)
}

/// Small, so that every byte has its turn.
fn samples() -> [Vec<u8>; 2] {
    let llama = tensors(shape("llama"))
        .string("tokenizer.ggml.model", "llama")
        .strings("tokenizer.ggml.tokens", &["<unk>", "<s>", "▁", "h", "e", "he", "<0x6C>"])
        .integers("tokenizer.ggml.token_type", &[2, 3, 1, 1, 1, 1, 6])
        .floats("tokenizer.ggml.scores", &[0.0, 0.0, -3.0, -4.0, -5.0, -1.0, 0.0])
        .integer("tokenizer.ggml.bos_token_id", 1)
        .flag("tokenizer.ggml.add_bos_token", true);
    let qwen2 = tensors(shape("qwen2"))
        .string("tokenizer.ggml.model", "gpt2")
        .string("tokenizer.ggml.pre", "gpt-2")
        .strings("tokenizer.ggml.tokens", &["h", "e", "he", "Ġ", "<|im_start|>", "<tool>", "[PAD]"])
        .integers("tokenizer.ggml.token_type", &[1, 1, 1, 1, 3, 4, 5])
        .strings("tokenizer.ggml.merges", &["h e"]);
    [llama.bytes(), qwen2.bytes()]
}

#[test]
fn undamaged_files_work() {
    for file in samples() {
        exercise(&file).unwrap();
    }
}

#[test]
fn every_truncation_is_an_error() {
    for file in samples() {
        for len in 0..file.len() {
            assert!(exercise(&file[..len]).is_err(), "{len} bytes");
        }
    }
}

#[test]
fn no_single_byte_brings_a_panic() {
    for mut file in samples() {
        for at in 0..file.len() {
            let byte = file[at];
            for damaged in [0, 0xFF, byte ^ 1, byte ^ 0x80] {
                file[at] = damaged;
                // Either is right: a byte of a token's text or of a value damages nothing that can be told.
                let _ = exercise(&file);
            }
            file[at] = byte;
        }
    }
}

proptest! {
    #[test]
    fn no_damage_brings_a_panic(
        sample in 0..2_usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<[u8; 8]>(), 1..9_usize), 1..4),
    ) {
        let mut file = samples()[sample].clone();
        for (at, bytes, len) in damage {
            let at = at.index(file.len());
            let len = len.min(file.len() - at);
            file[at..at + len].copy_from_slice(&bytes[..len]);
        }
        let _ = exercise(&file);
    }
}
