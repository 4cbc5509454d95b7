//! The references of `qk_norm` against its formula in f64, and its gradients against differences of that.

use precast_kernels::Key;
use precast_kernels::abi::{qk_norm_at_params, qk_norm_bwd_params, qk_norm_dgrad_params, qk_norm_fwd_params};
use precast_kernels::check::Case;
use precast_kernels::host::Buffer;

const D: usize = 32;
const HALF: usize = D / 2;
const TOKENS: usize = 6;
const SEQ_LEN: usize = 4;
const QUERY_HEADS: usize = 3;
const HEADS: usize = 5;
const ROW_HEADS: usize = 7;
const ROWS: usize = 4;
const EPS: f32 = 1e-2;

/// A parameter block: the launches have all sizes but one in common.
macro_rules! params {
    ($block:ident { $($field:ident: $value:expr)? }) => {
        $block {
            eps: EPS,
            tokens: TOKENS as u32,
            seq_len: SEQ_LEN as u32,
            query_heads: QUERY_HEADS as u32,
            key_heads: (HEADS - QUERY_HEADS) as u32,
            row_heads: ROW_HEADS as u32,
            $($field: $value,)?
            ..Default::default()
        }
    };
}

fn floats(buffer: &Buffer) -> Vec<f64> {
    bytemuck::pod_collect_to_vec::<u8, f32>(buffer).into_iter().map(f64::from).collect()
}

/// A case's operands by name.
struct Operands<'a>(&'a Case, &'a [Buffer]);

impl Operands<'_> {
    fn get(&self, name: &str) -> Vec<f64> {
        let index = self.0.operands.iter().position(|operand| operand.name == name).expect("an operand");
        floats(&self.1[index])
    }
}

struct Inputs {
    gamma: Vec<f64>,
    cos: Vec<f64>,
    sin: Vec<f64>,
}

impl Inputs {
    fn of(case: &Case) -> Self {
        let of = |name| Operands(case, &case.before).get(name);
        Self { gamma: of("gamma"), cos: of("cos"), sin: of("sin") }
    }

    /// A head of a token, normalized and then rotated.
    fn head(&self, x: &[f64], token: usize, head: usize) -> Vec<f64> {
        let gamma = &self.gamma[if head < QUERY_HEADS { 0 } else { D }..][..D];
        let rms = (x.iter().map(|x| x * x).sum::<f64>() / D as f64 + f64::from(EPS)).sqrt();
        let y: Vec<f64> = x.iter().zip(gamma).map(|(x, gamma)| gamma * x / rms).collect();
        let angle = |i: usize| (token % SEQ_LEN) * HALF + i;
        let first = (0..HALF).map(|i| y[i] * self.cos[angle(i)] - y[HALF + i] * self.sin[angle(i)]);
        let second = (0..HALF).map(|i| y[HALF + i] * self.cos[angle(i)] + y[i] * self.sin[angle(i)]);
        first.chain(second).collect()
    }
}

fn close(found: &[f64], expected: &[f64], gate: f64, what: &str) {
    let largest = expected.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= gate * largest, "{what}[{i}]: {found} is not {expected}");
    }
}

#[test]
fn forward_is_the_formula_and_keeps_what_was_there() {
    let params = params!(qk_norm_fwd_params {});
    let key = Key::parse(&format!("qk_norm.fwd{{d={D},keep=true,x=f32}}")).unwrap();
    let case = Case::new(&key, bytemuck::bytes_of(&params), 1);
    let after = case.reference();
    let (inputs, x) = (Inputs::of(&case), Operands(&case, &case.before).get("x"));
    let (found, raw) = (Operands(&case, &after).get("x"), Operands(&case, &after).get("raw"));
    for token in 0..TOKENS {
        let row = token * ROW_HEADS * D;
        assert_eq!(raw[token * HEADS * D..][..HEADS * D], x[row..][..HEADS * D], "raw of token {token}");
        for head in 0..ROW_HEADS {
            let (x, found) = (&x[row + head * D..][..D], &found[row + head * D..][..D]);
            if head < HEADS {
                close(found, &inputs.head(x, token, head), 1e-6, &format!("token {token}, head {head}"));
            } else {
                assert_eq!(found, x, "a value head is touched");
            }
        }
    }
}

#[test]
fn gradients_are_differences_of_the_formula() {
    let params = params!(qk_norm_bwd_params { rows: ROWS as u32 });
    let key = Key::parse(&format!("qk_norm.bwd{{d={D},x=f32}}")).unwrap();
    let case = Case::new(&key, bytemuck::bytes_of(&params), 2);
    let after = case.reference();
    let (inputs, raw, dy) =
        (Inputs::of(&case), Operands(&case, &case.before).get("raw"), Operands(&case, &case.before).get("dx"));
    let (found, partial) = (Operands(&case, &after).get("dx"), Operands(&case, &after).get("dgamma_partial"));
    // What is differentiated: the sum of dy times y.
    let step = 1e-5;
    let loss = |inputs: &Inputs, x: &[f64], token: usize, head: usize| -> f64 {
        let dy = &dy[(token * ROW_HEADS + head) * D..][..D];
        inputs.head(x, token, head).iter().zip(dy).map(|(y, dy)| y * dy).sum()
    };
    let mut dgamma = vec![0.0; TOKENS.div_ceil(ROWS) * 2 * D];
    for token in 0..TOKENS {
        for head in 0..HEADS {
            let x = &raw[(token * HEADS + head) * D..][..D];
            let slope = |change: &dyn Fn(f64) -> f64| (change(step) - change(-step)) / (2.0 * step);
            let of_x = |i: usize| {
                slope(&|shift| {
                    let mut x = x.to_vec();
                    x[i] += shift;
                    loss(&inputs, &x, token, head)
                })
            };
            let expected: Vec<f64> = (0..D).map(of_x).collect();
            let found = &found[(token * ROW_HEADS + head) * D..][..D];
            close(found, &expected, 2e-6, &format!("token {token}, head {head}"));
            for i in 0..D {
                let place = if head < QUERY_HEADS { i } else { D + i };
                dgamma[token / ROWS * 2 * D + place] += slope(&|shift| {
                    let mut gamma = inputs.gamma.clone();
                    gamma[place] += shift;
                    let shifted = Inputs { gamma, cos: inputs.cos.clone(), sin: inputs.sin.clone() };
                    loss(&shifted, x, token, head)
                });
            }
        }
        let values = (token * ROW_HEADS + HEADS) * D..(token + 1) * ROW_HEADS * D;
        assert_eq!(found[values.clone()], dy[values], "the gradient of values is touched");
    }
    close(&partial, &dgamma, 2e-6, "dgamma");
}

/// The gradient without gammas has the bits of the one with them, so the tests above hold of it, too.
#[test]
fn without_the_gammas_the_gradient_of_the_heads_is_the_same() {
    let params = params!(qk_norm_bwd_params { rows: ROWS as u32 });
    let alone = params!(qk_norm_dgrad_params {});
    let key = |op: &str| Key::parse(&format!("qk_norm.{op}{{d={D},x=f32}}")).unwrap();
    let both = Case::new(&key("bwd"), bytemuck::bytes_of(&params), 3);
    let mut case = Case::new(&key("dgrad"), bytemuck::bytes_of(&alone), 4);
    for (operand, before) in case.operands.iter().zip(&mut case.before) {
        let index = both.operands.iter().position(|other| other.name == operand.name).expect("an operand of both");
        before.clone_from(&both.before[index]);
    }
    let (expected, found) = (both.reference(), case.reference());
    let (expected, found) = (Operands(&both, &expected).get("dx"), Operands(&case, &found).get("dx"));
    assert_eq!(found, expected);
}

/// Rows in any order have the bits of the tokens at their positions, so the formula above holds of them, too.
#[test]
fn rows_at_positions_of_their_own_are_the_tokens_there() {
    let of_tokens = params!(qk_norm_fwd_params {});
    let of_rows = qk_norm_at_params {
        eps: EPS,
        rows: TOKENS as u32,
        seq_len: SEQ_LEN as u32,
        query_heads: QUERY_HEADS as u32,
        key_heads: (HEADS - QUERY_HEADS) as u32,
        row_heads: ROW_HEADS as u32,
        ..Default::default()
    };
    let tokens = Key::parse(&format!("qk_norm.fwd{{d={D},keep=false,x=f32}}")).unwrap();
    let rows = Key::parse(&format!("qk_norm.at{{d={D},x=f32}}")).unwrap();
    let tokens = Case::new(&tokens, bytemuck::bytes_of(&of_tokens), 5);
    let mut rows = Case::new(&rows, bytemuck::bytes_of(&of_rows), 6);
    let width = ROW_HEADS * D * size_of::<f32>();
    // Row r is token TOKENS - 1 - r.
    let reversed = |buffer: &Buffer| -> Vec<u8> { buffer.rchunks(width).flatten().copied().collect() };
    let positions: Vec<u32> = (0..TOKENS).rev().map(|token| (token % SEQ_LEN) as u32).collect();
    for (operand, before) in rows.operands.iter().zip(&mut rows.before) {
        let of_tokens = tokens.operands.iter().position(|other| other.name == operand.name);
        *before = match of_tokens.map(|index| &tokens.before[index]) {
            Some(x) if operand.name == "x" => Buffer::from(&reversed(x)[..]),
            Some(shared) => shared.clone(),
            None => Buffer::from(bytemuck::cast_slice(&positions)),
        };
    }
    assert_eq!(reversed(&rows.reference()[0])[..], tokens.reference()[0][..]);
}
