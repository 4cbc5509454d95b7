//! A row that is decoded has the bits of the forward pass: what `kv.store` put into a pool, `attention.decode` reads as
//! `attention.fwd` reads a sequence, and sums in its order. By each instruction, and by host references, which are the
//! simulated GPU.

use bytemuck::Pod;
use precast_kernels::abi::{IDLE_SLOT, attention_decode_params, attention_fwd_params, kv_store_params};
use precast_kernels::check::{Case, POISON};
use precast_kernels::{Arch, Dtype, KERNELS, KeyVariant, host::Buffer};
use precast_simt::execute;
use rayon::prelude::*;

use crate::SIMT;

const BATCH: u32 = 2;
const SEQ_LEN: u32 = 97;
const HEADS: u32 = 6;
const KV_HEADS: u32 = 2;
/// Positions of each that are stored: the last tile has more.
const STORED: u32 = 81;
const SLOTS: u32 = 3;
/// Slot of each sequence.
const SLOT_OF: [u32; 2] = [2, 0];

/// Launches a kernel of an operation on these operands, by name; others are as checks draw them, or poison. Returns one
/// of them.
fn launch<P: Pod>(key: &str, arch: Arch, params: &P, operands: &[(&str, Buffer)], out: &[&str]) -> Vec<Buffer> {
    let key = KERNELS.parse(key).unwrap();
    let mut case = Case::new(&key, bytemuck::bytes_of(params), 1);
    let index = |case: &Case, name: &str| case.operands.iter().position(|operand| operand.name == name).unwrap();
    for (name, buffer) in operands {
        let index = index(&case, name);
        assert_eq!(case.before[index].len(), buffer.len(), "{key}: {name}");
        case.before[index].clone_from(buffer);
    }
    let after = if arch == Arch::Sim {
        case.reference()
    } else {
        let pair = KeyVariant { variant: KERNELS.select(&key, &case.params, arch), key: key.clone() };
        let program = SIMT.compile(&pair.source(), &pair.defines(arch), arch).unwrap();
        let geometry = key.kernel().geometry(pair.variant, &case.params);
        let mut memory = case.before.clone();
        let launched = execute(&program, &geometry, &case.params, &case.operands, &[], &mut memory, 1);
        launched.unwrap_or_else(|report| panic!("{key}: {report}"));
        memory
    };
    out.iter().map(|name| after[index(&case, name)].clone()).collect()
}

/// The slot and the position of a token that is decoded or stored; of none, idle.
fn places(tokens: &[Option<u32>]) -> [Buffer; 2] {
    let place = |token: &Option<u32>| match token {
        Some(token) => (SLOT_OF[(token / SEQ_LEN) as usize], token % SEQ_LEN),
        None => (IDLE_SLOT, 0),
    };
    let (slots, positions): (Vec<u32>, Vec<u32>) = tokens.iter().map(place).unzip();
    [slots, positions].map(|all| Buffer::from(bytemuck::cast_slice(&all)))
}

/// Stores the keys and values of both sequences, as far as they are. The rest of the pool stays poison, which is NaN.
fn stored(d: u32, x: Dtype, arch: Arch, qkv: &Buffer) -> Vec<Buffer> {
    let params = kv_store_params {
        rows: BATCH * SEQ_LEN,
        slots: SLOTS,
        seq_len: SEQ_LEN,
        heads: HEADS,
        kv_heads: KV_HEADS,
        ..Default::default()
    };
    let tokens: Vec<Option<u32>> =
        (0..BATCH * SEQ_LEN).map(|token| (token % SEQ_LEN < STORED).then_some(token)).collect();
    let [slot, position] = places(&tokens);
    let pool = Buffer::filled((SLOTS * KV_HEADS * SEQ_LEN * d) as usize * x.bytes() as usize, POISON);
    let operands =
        [("qkv", qkv.clone()), ("slot", slot), ("position", position), ("keys", pool.clone()), ("values", pool)];
    launch(&format!("kv.store{{d={d},x={x}}}"), arch, &params, &operands, &["keys", "values"])
}

/// Returns the rows of these tokens by the forward pass, and of others poison.
fn gathered(tokens: &[Option<u32>], from: &Buffer, columns: u32, heads: u32, bytes: usize) -> Buffer {
    let (row_bytes, kept) = (columns as usize * bytes, heads as usize * bytes);
    let row = |token: &Option<u32>| {
        let mut row = vec![POISON; row_bytes];
        if let Some(token) = token {
            row[..kept].copy_from_slice(&from[*token as usize * row_bytes..][..kept]);
        }
        row
    };
    Buffer::from(&tokens.iter().flat_map(row).collect::<Vec<u8>>()[..])
}

/// Compares rows of both sequences, in another order and with idle ones among them.
fn decodes(d: u32, window: Option<u32>, x: Dtype, arch: Arch) {
    let window = window.map_or(String::new(), |window| format!("window={window},"));
    let bytes = d as usize * x.bytes() as usize;
    let (heads, kv_heads, seq_len, scale) = (HEADS, KV_HEADS, SEQ_LEN, 0.8 / (d as f32).sqrt());
    let (tokens, count) = (BATCH * SEQ_LEN, BATCH);
    let forward = attention_fwd_params { tokens, count, seq_len, heads, kv_heads, scale, ..Default::default() };
    let forward = launch(&format!("attention.fwd{{d={d},{window}x={x}}}"), arch, &forward, &[], &["qkv", "o"]);
    let pools = stored(d, x, arch, &forward[0]);

    let tokens = (0..BATCH * SEQ_LEN).rev().step_by(5).filter(|token| token % SEQ_LEN < STORED);
    let tokens: Vec<Option<u32>> = tokens.map(|token| (token % 3 > 0).then_some(token)).collect();
    let [slot, position] = places(&tokens);
    let params = attention_decode_params {
        rows: tokens.len() as u32,
        slots: SLOTS,
        seq_len,
        heads,
        kv_heads,
        scale,
        ..Default::default()
    };
    let operands = [
        ("qkv", gathered(&tokens, &forward[0], HEADS + 2 * KV_HEADS, HEADS, bytes)),
        ("slot", slot),
        ("position", position),
        ("keys", pools[0].clone()),
        ("values", pools[1].clone()),
    ];
    let o = launch(&format!("attention.decode{{d={d},{window}x={x}}}"), arch, &params, &operands, &["o"]).remove(0);
    let expected = gathered(&tokens, &forward[1], HEADS, HEADS, bytes);
    let rows = o.chunks(HEADS as usize * bytes).zip(expected.chunks(HEADS as usize * bytes));
    for ((row, expected), token) in rows.zip(&tokens) {
        let is_right = if token.is_some() { row == expected } else { row.iter().all(|byte| *byte == 0) };
        assert!(is_right, "d={d},{window} x={x} on {arch}: token {token:?} has other bits");
    }
}

#[test]
fn a_decoded_row_has_the_bits_of_the_forward_pass() {
    let whole =
        [(64, Dtype::Bf16), (128, Dtype::Bf16), (256, Dtype::Bf16), (32, Dtype::F32)].map(|(d, x)| (d, None, x));
    let windows = [(64, Some(1), Dtype::Bf16), (64, Some(50), Dtype::Bf16), (32, Some(20), Dtype::F32)];
    let archs = [Arch::Sm89, Arch::Sm90a, Arch::Sim];
    let cases = whole.into_iter().chain(windows).flat_map(|of_heads| archs.map(|arch| (of_heads, arch)));
    let cases: Vec<_> = cases.collect();
    cases.par_iter().with_max_len(1).for_each(|((d, window, x), arch)| decodes(*d, *window, *x, *arch));
}
