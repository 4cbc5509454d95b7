//! Inputs of checks tell functions that are not linear from the identity.

use precast_kernels::{Content, Dtype, Format, KERNELS, Key, Operand, check::Case, host::Buffer};

use super::ELSEWHERE;

/// Operations without a function that could be taken for the identity: GEMMs, sums, copies, what takes nothing normal,
/// and norms of heads, whose large samples have an eps that does not show.
const LINEAR: &str = "add attention.delta cast column_sum.finish column_sum.partial embedding.bwd embedding.fwd \
    fill gemm.dgrad gemm.fwd gemm.wgrad grad_distance.partial grad_norm.finish grad_norm.partial kv.store \
    lora.dgrad_a lora.dgrad_b lora.fwd_a lora.fwd_b lora.wgrad moe.combine moe.permute qk_norm.bwd \
    qk_norm.dgrad qk_norm.fwd rope.bwd rope.fwd rope.store sample.advance scale";

fn is_linear(key: &Key) -> bool {
    LINEAR.split(' ').any(|op| op == key.op())
}

/// `x sigmoid(x)`, GELU, `tanh` and `exp` are told apart from a straight line only where inputs are large.
#[test]
fn inputs_are_large_enough_to_show_what_is_not_linear() {
    for key in KERNELS.examples().into_iter().filter(|key| !is_linear(key) && !ELSEWHERE.contains(&key.op())) {
        let samples = key.kernel().samples();
        let most = samples.iter().map(|params| drawn(&key, params)).max().unwrap_or(0);
        // What is in int8 has a scale for each row: `tests/int8.rs` has its formula.
        if most == 0 {
            continue;
        }
        assert!(most >= LEAST, "{key} has no sample of {LEAST} elements");
        let large = samples.iter().filter(|params| drawn(&key, params) >= most / SHARE);
        for params in large {
            let sample = samples.iter().position(|one| one == params).expect("one of them");
            assert!(
                !is_homogeneous(&key, params),
                "{key}, sample {sample}: doubled inputs give outputs that are a power of two as large, within its \
                tolerance"
            );
        }
    }
}

/// Among fewer elements a single large one decides.
const LEAST: u64 = 256;
/// A sample is large that has this part of the largest one's elements. Smaller ones are of one token or one row, whose
/// softmax is 1 and whose norm keeps the scale.
const SHARE: u64 = 4;

/// Elements of the longest operand that holds numbers that a check draws.
fn drawn(key: &Key, params: &[u8]) -> u64 {
    let operands = key.kernel().operands(params);
    operands.iter().filter(|operand| is_doubled(operand)).map(|operand| operand.elems).max().unwrap_or(0)
}

/// True if an operand holds numbers that a check draws, of any size.
fn is_doubled(operand: &Operand) -> bool {
    let is_drawn = matches!(operand.content, Content::Normal(_) | Content::Uniform(..));
    operand.access.reads() && is_drawn && operand.format != Dtype::U32
}

/// True if doubled inputs give outputs that are one power of two times as large, within the kernel's tolerance.
fn is_homogeneous(key: &Key, params: &[u8]) -> bool {
    let single = Case::new(key, params, 3);
    let mut double = Case::new(key, params, 3);
    let inputs = single.operands.iter().zip(&mut double.before);
    for (operand, buffer) in inputs.filter(|(operand, _)| is_doubled(operand)) {
        *buffer = scaled(operand.format, buffer, 2.0);
    }
    let (single_out, double_out) = (single.reference(), double.reference());
    let outputs = single.operands.iter().zip(single_out.iter().zip(&double_out));
    let mut outputs = outputs.filter(|(operand, _)| operand.access.is_output() && operand.format != Dtype::U32);
    outputs.all(|(operand, (single_out, double_out))| {
        [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
            .into_iter()
            .any(|power| double.compare(operand, double_out, &scaled(operand.format, single_out, power)).is_ok())
    })
}

/// A power of two times each value: exact.
fn scaled(format: Format, bytes: &[u8], power: f32) -> Buffer {
    let bytes: Vec<u8> = match format {
        Format::Dense(Dtype::F32) => {
            let value = |word: &[u8]| f32::from_le_bytes(word.try_into().expect("four bytes"));
            bytes.chunks_exact(4).flat_map(|word| (power * value(word)).to_le_bytes()).collect()
        }
        Format::Dense(Dtype::Bf16) => {
            let value = |word: &[u8]| half::bf16::from_le_bytes([word[0], word[1]]).to_f32();
            bytes.chunks_exact(2).flat_map(|word| half::bf16::from_f32(power * value(word)).to_le_bytes()).collect()
        }
        _ => bytes.to_vec(),
    };
    Buffer::from(&bytes[..])
}
