//! A row that is decoded has the bits of the forward pass: what `kv.store` put into a pool, `attention.decode` reads as
//! `attention.fwd` reads a sequence, and sums in its order; so do convolutions and the gated delta rule of runs of rows
//! with what their slots keep. By each instruction, and by host references, which are the simulated GPU.

use bytemuck::Pod;
use precast_kernels::abi::{
    IDLE_SLOT, attention_decode_params, attention_fwd_params, conv_decode_params, conv_fwd_params,
    delta_rule_decode_params, delta_rule_fwd_params, delta_rule_solve_params, kv_store_params, rope_params,
    rope_store_params,
};
use precast_kernels::check::{Case, POISON};
use precast_kernels::{Arch, Dtype, KERNELS, KeyVariant, host::Buffer, sequences};
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

/// Compares `rope.store` of both sequences, some tokens idle, with `rope.fwd` and then `kv.store`.
fn rotates(d: u32, x: Dtype, arch: Arch) {
    let (rows, heads, kv_heads, seq_len, slots) = (BATCH * SEQ_LEN, HEADS, KV_HEADS, SEQ_LEN, SLOTS);
    let tokens: Vec<Option<u32>> = (0..rows).map(|token| (token % SEQ_LEN < STORED).then_some(token)).collect();
    let [slot, position] = places(&tokens);
    let turn = rope_params {
        tokens: rows,
        seq_len,
        heads: heads + kv_heads,
        row_stride: (heads + 2 * kv_heads) * d,
        ..Default::default()
    };
    let store = rope_store_params { rows, slots, seq_len, heads, kv_heads, ..Default::default() };
    let pool = Buffer::filled((SLOTS * KV_HEADS * SEQ_LEN * d) as usize * x.bytes() as usize, POISON);
    let drawn = kv_store_params { rows, slots, seq_len, heads, kv_heads, ..Default::default() };
    let qkv = launch(&format!("kv.store{{d={d},x={x}}}"), arch, &drawn, &[], &["qkv"]).remove(0);
    let [turned, cos, sin] = launch(
        &format!("rope.fwd{{d={d},x={x}}}"),
        arch,
        &turn,
        &[("x", qkv.clone()), ("position", position.clone())],
        &["x", "cos", "sin"],
    )
    .try_into()
    .unwrap();
    let operands = [
        ("qkv", qkv.clone()),
        ("slot", slot),
        ("position", position),
        ("cos", cos),
        ("sin", sin),
        ("keys", pool.clone()),
        ("values", pool),
    ];
    let found = launch(&format!("rope.store{{d={d},x={x}}}"), arch, &store, &operands, &["qkv", "keys", "values"]);
    let pools = stored(d, x, arch, &turned);
    assert!(found[1..].iter().zip(&pools).all(|(found, pool)| found[..] == pool[..]), "{d} {x} on {arch}: the pool");
    let [row, queries] = [turn.row_stride, heads * d].map(|elems| elems as usize * x.bytes() as usize);
    for ((token, found), (turned, given)) in
        tokens.iter().zip(found[0].chunks(row)).zip(turned.chunks(row).zip(qkv.chunks(row)))
    {
        let expected = if token.is_some() { turned } else { given };
        assert_eq!(found[..queries], expected[..queries], "{d} {x} on {arch}: queries of {token:?}");
        assert_eq!(found[queries..], given[queries..], "{d} {x} on {arch}: the rest of {token:?}");
    }
}

#[test]
fn heads_that_are_stored_as_they_rotate_have_the_bits_of_the_forward_pass() {
    for (d, x) in [(64, Dtype::Bf16), (128, Dtype::Bf16), (48, Dtype::F32)] {
        [Arch::Sm90a, Arch::Sm89, Arch::Sim].into_iter().for_each(|arch| rotates(d, x, arch));
    }
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
        is_step: 1, // the pool is complete
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

/// Tokens of two sequences that lie end to end.
const LENGTHS: [u32; 2] = [196, 70];

/// Rows of launches, as first tokens and numbers of them, of each sequence: whole chunks, a prompt that ends within
/// one, runs within chunks and to the end of one, single rows up to the end of a chunk and behind.
fn launches() -> Vec<[(u32, u32); 2]> {
    let steps = (0..9).map(|step| [(192 + step.min(4), u32::from(step < 4)), (61 + step, 1)]);
    let runs = [[(0, 128), (0, 10)], [(128, 10), (10, 51)], [(138, 54), (61, 0)]];
    let all: Vec<_> = runs.into_iter().chain(steps).collect();
    let tokens = [0, 1].map(|sequence| all.iter().map(|launch| launch[sequence].1).sum::<u32>());
    assert_eq!(tokens, LENGTHS);
    all
}

/// Slots and positions of the rows of a launch, with an idle one in front and behind, and their tokens.
fn runs(launch: [(u32, u32); 2]) -> ([Buffer; 2], Vec<Option<u32>>) {
    let (mut slots, mut positions, mut tokens) = (vec![IDLE_SLOT], vec![0], vec![None]);
    for (sequence, (first, count)) in launch.into_iter().enumerate() {
        for position in first..first + count {
            slots.push(SLOT_OF[sequence]);
            positions.push(position);
            tokens.push(Some(LENGTHS[..sequence].iter().sum::<u32>() + position));
        }
    }
    slots.push(IDLE_SLOT);
    positions.push(0);
    tokens.push(None);
    ([slots, positions].map(|all| Buffer::from(bytemuck::cast_slice(&all))), tokens)
}

/// Launches rows of sequences until each is at its end, and compares them with those of the forward pass. `inputs` have
/// a row a token, `kept` is what slots keep, `same` what all launches read.
fn follows<P: Pod>(
    (key, arch): (&str, Arch),
    params: impl Fn(u32) -> P,
    [inputs, same]: [&[(&str, &Buffer)]; 2],
    kept: &[&str],
    (out, expected): (&str, &Buffer),
) {
    let tokens = LENGTHS.iter().sum::<u32>() as usize;
    let mut pool: Option<Vec<Buffer>> = None;
    for rows in launches() {
        let ([slot, position], rows) = runs(rows);
        let mut operands = vec![("slot", slot), ("position", position)];
        operands.extend(same.iter().map(|(name, of)| (*name, (*of).clone())));
        operands.extend(inputs.iter().map(|(name, of)| (*name, gathered(&rows, of, 1, 1, of.len() / tokens))));
        let params = params(rows.len() as u32);
        let pooled = pool.unwrap_or_else(|| {
            let case = Case::new(&KERNELS.parse(key).unwrap(), bytemuck::bytes_of(&params), 1);
            let bytes = |name: &&str| case.operands.iter().find(|operand| operand.name == *name).unwrap().bytes();
            kept.iter().map(|name| Buffer::filled(bytes(name) as usize, POISON)).collect()
        });
        operands.extend(kept.iter().copied().zip(pooled));
        let mut after = launch(key, arch, &params, &operands, &[kept, &[out]].concat());
        let found = after.pop().unwrap();
        pool = Some(after);
        let bytes = expected.len() / tokens;
        for (row, token) in found.chunks(bytes).zip(&rows) {
            let is_right = match token {
                Some(token) => *row == expected[*token as usize * bytes..][..bytes],
                None => row.iter().all(|byte| *byte == 0),
            };
            assert!(is_right, "{key} on {arch}: token {token:?} has other bits");
        }
    }
}

/// Compares a convolution, and the gated delta rule of what it gives, by rows of slots.
fn follows_delta_rule(x: Dtype, arch: Arch) {
    let (tokens, count, seq_len) = (LENGTHS.iter().sum::<u32>(), LENGTHS.len() as u32, LENGTHS[0]);
    let (key_heads, value_heads, slots) = (1, 2, SLOTS);
    let (channels, gate_columns) = ((2 * key_heads + value_heads) * 128, 2 * value_heads);
    let list = Buffer::from(bytemuck::cast_slice(&sequences(&LENGTHS, count as usize)));
    let position: Vec<u32> = LENGTHS.iter().flat_map(|length| 0..*length).collect();
    let position = Buffer::from(bytemuck::cast_slice(&position));

    let params = conv_fwd_params { tokens, seq_len, channels, row_columns: channels + 1, ..Default::default() };
    let [given, weight, convolved] =
        launch(&format!("conv.fwd{{x={x}}}"), arch, &params, &[("position", position)], &["x", "weight", "y"])
            .try_into()
            .unwrap();
    let row_columns = channels + 1;
    follows(
        (&format!("conv.decode{{x={x}}}"), arch),
        |rows| conv_decode_params { rows, slots, seq_len, channels, row_columns, ..Default::default() },
        [&[("x", &given)], &[("weight", &weight)]],
        &["history"],
        ("y", &convolved),
    );

    let params =
        delta_rule_solve_params { tokens, count, seq_len, key_heads, value_heads, gate_columns, ..Default::default() };
    let names = ["gates", "rates", "decay", "beta", "scale", "inverse", "scores"];
    let operands = [("qkv", convolved.clone()), ("sequences", list.clone())];
    let solved = launch(&format!("delta_rule.solve{{x={x}}}"), arch, &params, &operands, &names);
    let params = delta_rule_fwd_params { tokens, count, seq_len, key_heads, value_heads, ..Default::default() };
    let operands: Vec<(&str, Buffer)> =
        operands.into_iter().chain(names.into_iter().zip(solved.clone()).skip(2)).collect();
    let o = launch(&format!("delta_rule.fwd{{keep=false,x={x}}}"), arch, &params, &operands, &["o"]).remove(0);
    follows(
        (&format!("delta_rule.decode{{x={x}}}"), arch),
        |rows| delta_rule_decode_params {
            rows,
            slots,
            seq_len,
            key_heads,
            value_heads,
            gate_columns,
            ..Default::default()
        },
        [&[("qkv", &convolved), ("gates", &solved[0])], &[("rates", &solved[1])]],
        &["states", "rounded", "keys", "scale", "decay", "inverse", "change"],
        ("o", &o),
    );
}

#[test]
fn rows_of_the_gated_delta_rule_have_the_bits_of_the_forward_pass() {
    let cases = [Dtype::Bf16, Dtype::F32].into_iter().flat_map(|x| [Arch::Sm90a, Arch::Sim].map(|arch| (x, arch)));
    let cases: Vec<_> = cases.collect();
    cases.par_iter().with_max_len(1).for_each(|(x, arch)| follows_delta_rule(*x, *arch));
}
