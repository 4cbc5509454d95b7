//! Columns of logits behind a vocabulary change nothing: losses, scores and draws are those of the tokens alone, and
//! the gradient of what is no token is exactly 0. By each variant, and by host references, which are the simulated GPU.

use bytemuck::bytes_of;
use precast_kernels::abi::{
    head_ce_params, head_compare_params, head_distill_params, head_jsd_params, head_nll_params, head_topk_params,
    sample_params, sample_score_params, sample_top_params,
};
use precast_kernels::check::{Case, floats};
use precast_kernels::head::MASKED_LOGIT;
use precast_kernels::{Dtype, KERNELS, Operand, host::Buffer};
use rayon::prelude::*;

use crate::SIMT;
use crate::rows::{launched, variants};

const ROWS: u32 = 5;
/// Tokens of a vocabulary, and columns of its logits: in f32 the last vector has no token.
const VOCABULARIES: [[u32; 2]; 2] = [[701, 704], [33_001, 33_008]];
/// Operands with a column for each token.
const LOGITS: [&str; 4] = ["logits", "student", "teacher", "reference"];

/// Parameters of a launch over so many columns.
type Launch = (&'static str, fn(u32) -> Vec<u8>);

macro_rules! launch {
    ($op:literal, $params:ident { $rows:ident $(, $field:ident: $value:expr)* }) => {
        ($op, (|vocab| {
            let params = $params { $rows: ROWS, vocab, $($field: $value,)* ..Default::default() };
            bytes_of(&params).to_vec()
        }) as fn(u32) -> Vec<u8>)
    };
}

fn launches() -> Vec<Launch> {
    vec![
        launch!("head.ce{", head_ce_params { tokens }),
        launch!("head.compare{", head_compare_params { tokens }),
        launch!("head.distill{reverse=false,", head_distill_params { tokens, alpha: 0.7, temperature: 2.0 }),
        launch!("head.distill{reverse=true,", head_distill_params { tokens, alpha: 1.0, temperature: 0.2 }),
        launch!("head.jsd{", head_jsd_params { tokens, alpha: 0.7, temperature: 1.5, beta: 0.4 }),
        launch!("head.nll{", head_nll_params { tokens }),
        launch!("head.topk{", head_topk_params { tokens, keep: 6, alpha: 0.7, temperature: 1.5, beta: 0.4 }),
        launch!("sample{", sample_params { rows, seed: 3, temperature: 0.8, top_k: 0, top_p: 1.0 }),
        launch!("sample{", sample_params { rows, seed: 3, temperature: 1e-3, top_k: 702, top_p: 0.9 }),
        launch!("sample.score{", sample_score_params { rows }),
        launch!("sample.top{", sample_top_params { rows, keep: 6, temperature: 1.5 }),
    ]
}

fn is_logits(operand: &Operand) -> bool {
    LOGITS.contains(&operand.name)
}

/// Returns rows of tokens with columns of masked logits behind them.
fn widened(rows: &[u8], x: Dtype, [vocab, columns]: [u32; 2]) -> Vec<u8> {
    let masked = match x {
        Dtype::F32 => MASKED_LOGIT.to_le_bytes().to_vec(),
        _ => MASKED_LOGIT.to_le_bytes()[2..].to_vec(),
    };
    let rows = rows.chunks(vocab as usize * x.bytes() as usize);
    rows.flat_map(|row| [row, &masked.repeat((columns - vocab) as usize)].concat()).collect()
}

/// Compares what is written with masked columns with what is without them.
fn differs((op, params): &Launch, x: Dtype, [vocab, columns]: [u32; 2]) -> Vec<String> {
    let key = KERNELS.parse(&format!("{op}x={x}}}")).unwrap();
    let (alone, mut case) = (Case::new(&key, &params(vocab), 1), Case::new(&key, &params(columns), 1));
    for (operand, (before, own)) in alone.operands.iter().zip(case.before.iter_mut().zip(&alone.before)) {
        *before = if is_logits(operand) { Buffer::from(&widened(own, x, [vocab, columns])[..]) } else { own.clone() };
    }
    let expected = alone.reference();
    let mut found = vec![("host reference".to_owned(), case.reference())];
    for (arch, pair) in variants(&key).into_iter().filter(|(_, pair)| key.kernel().admits(pair.variant, &case.params)) {
        let program = SIMT.compile(&pair.source(), &pair.defines(arch), arch).unwrap();
        found.push((format!("{} on {arch}", pair.variant), launched(&program, &pair, &case)));
    }
    assert!(found.len() > 1, "{key}: no variant was executed");
    let mut wrong = Vec::new();
    for (by, after) in found {
        let outputs = alone.operands.iter().zip(after.iter().zip(&expected));
        for (operand, (after, expected)) in outputs.filter(|(operand, _)| operand.access.is_output()) {
            let (mut tokens, mut masked) = (after.to_vec(), Vec::new());
            if is_logits(operand) {
                let rows = after.chunks(columns as usize * x.bytes() as usize);
                let rows: Vec<_> = rows.map(|row| row.split_at(vocab as usize * x.bytes() as usize)).collect();
                tokens = rows.iter().flat_map(|(tokens, _)| tokens.to_vec()).collect();
                masked = rows.iter().flat_map(|(_, masked)| floats(operand.format, masked)).collect();
            }
            let mismatch = alone.compare(operand, &tokens, expected).err().map(|mismatch| mismatch.to_string());
            let gradient =
                masked.iter().find(|value| **value != 0.0).map(|value| format!("a masked column has {value}"));
            wrong.extend(mismatch.or(gradient).map(|what| format!("{key}, {vocab}, {by}: {}: {what}", operand.name)));
        }
    }
    wrong
}

#[test]
fn columns_behind_a_vocabulary_change_nothing() {
    let all: Vec<_> =
        launches().into_iter().flat_map(|launch| [Dtype::Bf16, Dtype::F32].map(|x| (launch, x))).collect();
    let of = |(launch, x): &(Launch, Dtype)| VOCABULARIES.map(|vocab| differs(launch, *x, vocab)).concat();
    let wrong: Vec<String> = all.par_iter().flat_map_iter(of).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The bits of bf16 are the upper half of those of f32.
#[test]
fn a_masked_logit_is_a_number_of_bf16() {
    assert_eq!(MASKED_LOGIT.to_bits() & 0xffff, 0);
}
