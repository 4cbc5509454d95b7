//! A sequence has the bits that it has alone, in any place beside any neighbors, forward and backward: by each
//! instruction, and by host references, which are the simulated GPU. Its neighbors are NaN.

use std::collections::BTreeMap;
use std::ops::Range;

use precast_kernels::abi::{
    attention_bwd_params, attention_fwd_params, delta_rule_bwd_params, delta_rule_fwd_params, delta_rule_solve_params,
    delta_rule_state_bwd_params,
};
use precast_kernels::check::Case;
use precast_kernels::delta_rule::chunks;
use precast_kernels::{Arch, KERNELS, KeyVariant, host::Buffer, sequences};
use precast_simt::{Program, execute};
use rayon::prelude::*;

use crate::SIMT;
use crate::rows::variants;

/// Lengths in order of place: of one token, of several tiles, and more than a warp has lanes.
const LENGTHS: [&[u32]; 2] = [
    &[37, 1, 130, 64],
    &[1, 2, 33, 1, 3, 1, 1, 2, 1, 4, 1, 1, 1, 2, 1, 3, 1, 1, 9, 1, 1, 2, 1, 1, 1, 5, 1, 1, 1, 1, 2, 1, 1, 1, 70, 1],
];
/// For kernels in fp32, which the machine executes several times as slowly as those of tensor cores.
const SHORT: &[&[u32]] = &[&[66, 1, 37]];
const HEADS: u32 = 2;
const KV_HEADS: u32 = 1;

/// A launch of sequences, of which each has a number of its own.
struct Launched {
    key: KeyVariant,
    arch: Arch,
    program: Option<Program>,
}

impl Launched {
    /// One of each variant that a row of a bundle has, and the host reference.
    fn of_every_row(key: &str) -> Vec<Self> {
        let key = KERNELS.parse(key).unwrap();
        let built = variants(&key);
        let reference = Self { key: built[0].1.clone(), arch: Arch::Sim, program: None };
        let compiled = built.into_iter().map(|(arch, key)| {
            let program = Some(SIMT.compile(&key.source(), &key.defines(arch), arch).unwrap());
            Self { key, arch, program }
        });
        compiled.chain([reference]).collect()
    }

    /// Parameters of so many tokens, in so many sequences at most of so many tokens at most.
    fn params(&self, [tokens, count, seq_len]: [u32; 3]) -> Vec<u8> {
        macro_rules! params {
            ($params:ident { $($field:ident: $value:expr),* }) => {{
                let params = $params { tokens, count, seq_len, $($field: $value,)* ..Default::default() };
                bytemuck::bytes_of(&params).to_vec()
            }};
        }
        match self.key.key.op() {
            "attention.fwd" => params!(attention_fwd_params { heads: HEADS, kv_heads: KV_HEADS, scale: 0.11 }),
            "attention.bwd" => params!(attention_bwd_params { heads: HEADS, kv_heads: KV_HEADS, scale: 0.11 }),
            "delta_rule.solve" => {
                params!(delta_rule_solve_params { value_heads: HEADS, key_heads: KV_HEADS, gate_columns: 2 * HEADS })
            }
            "delta_rule.bwd" => params!(delta_rule_bwd_params {
                value_heads: HEADS,
                key_heads: KV_HEADS,
                gate_columns: 2 * HEADS,
                chunks: chunks(tokens, count)
            }),
            "delta_rule.state_bwd" => {
                params!(delta_rule_state_bwd_params { value_heads: HEADS, key_heads: KV_HEADS })
            }
            _ => params!(delta_rule_fwd_params { value_heads: HEADS, key_heads: KV_HEADS }),
        }
    }

    /// Draws a launch of sequences of these lengths.
    fn case(&self, lengths: &[u32]) -> Case {
        let mut case = Case::new(
            &self.key.key,
            &self.params([lengths.iter().sum(), lengths.len() as u32 + 2, *lengths.iter().max().unwrap()]),
            1,
        );
        let list = case.operands.iter().position(|operand| operand.name == "sequences").unwrap();
        let words = sequences(lengths, case.before[list].len() / 8);
        case.before[list] = Buffer::from(bytemuck::cast_slice(&words));
        case
    }

    fn run(&self, case: &Case) -> Vec<Buffer> {
        let Some(program) = &self.program else { return case.reference() };
        let (mut memory, geometry) =
            (case.before.clone(), self.key.key.kernel().geometry(self.key.variant, &case.params));
        let done = execute(program, &geometry, &case.params, &case.operands, &[], &mut memory, 1);
        done.unwrap_or_else(|report| panic!("{} on {}: {report}", self.key.key, self.arch));
        memory
    }

    /// Compares every other sequence among others, which are NaN, with the sequence alone.
    fn compare(&self, lengths: &[u32]) {
        let (whole, tokens) = (self.case(lengths), lengths.iter().sum());
        let places: Vec<(u32, u32)> = starts(lengths).zip(lengths.iter().copied()).collect();
        let (outputs, inputs): (Vec<usize>, Vec<usize>) = (0..whole.operands.len())
            // Sums of chunks are in the order of sequences.
            .filter(|operand| !["sequences", "partial"].contains(&whole.operands[*operand].name))
            .partition(|operand| whole.operands[*operand].access.is_output());
        for shown in 0..2 {
            let (mut among, shown) = (self.case(lengths), places.iter().skip(shown).step_by(2));
            for operand in &inputs {
                let layout = Layout::of(&whole, *operand, tokens);
                let mut hidden = [0xff, 0x7f].repeat(whole.before[*operand].len() / 2); // NaN, of both dtypes
                for (first, length) in shown.clone() {
                    layout.put(&mut hidden, *first, *length, &layout.take(&whole.before[*operand], *first, *length));
                }
                among.before[*operand] = Buffer::from(&hidden[..]);
            }
            let among_after = self.run(&among);
            let mut seen: BTreeMap<u32, u32> = BTreeMap::new();
            for (first, length) in shown {
                // A few places of each length.
                *seen.entry(*length).or_default() += 1;
                if seen[length] > 2 {
                    continue;
                }
                let mut alone = self.case(&[*length]);
                for operand in &inputs {
                    let kept = Layout::of(&whole, *operand, tokens).take(&whole.before[*operand], *first, *length);
                    let (layout, mut own) = (Layout::of(&alone, *operand, *length), alone.before[*operand].to_vec());
                    layout.put(&mut own, 0, *length, &kept);
                    alone.before[*operand] = Buffer::from(&own[..]);
                }
                let alone_after = self.run(&alone);
                for operand in &outputs {
                    let found = Layout::of(&whole, *operand, tokens).take(&among_after[*operand], *first, *length);
                    let expected = Layout::of(&alone, *operand, *length).take(&alone_after[*operand], 0, *length);
                    let name = whole.operands[*operand].name;
                    assert!(
                        found == expected,
                        "{} on {}: {name} of {length} tokens from {first}",
                        self.key.key,
                        self.arch
                    );
                }
            }
        }
    }
}

/// Places of the first tokens.
fn starts(lengths: &[u32]) -> impl Iterator<Item = u32> + '_ {
    lengths.iter().scan(0, |end, length| Some(std::mem::replace(end, *end + length)))
}

/// The part of an operand that belongs to a sequence.
enum Layout {
    /// [tokens, ..], or [heads, tokens] of statistics: runs of tokens in the operand, and bytes of a token in each.
    Tokens { runs: usize, token_bytes: usize, tokens: usize },
    /// States behind chunks of 64 tokens that are not the last, each in a slot of so many bytes.
    States { bytes: usize },
    /// Parameters, so many bytes.
    All { bytes: usize },
}

impl Layout {
    fn of(case: &Case, operand: usize, tokens: u32) -> Self {
        let (bytes, tokens) = (case.before[operand].len(), tokens as usize);
        match case.operands[operand].name {
            "rates" => Self::All { bytes },
            "states" | "dstates" => Self::States { bytes: bytes / tokens.div_ceil(64) },
            name => {
                let runs = if ["lse", "delta"].contains(&name) { HEADS as usize } else { 1 };
                Self::Tokens { runs, token_bytes: bytes / runs / tokens, tokens }
            }
        }
    }

    fn ranges(&self, first: u32, length: u32) -> Vec<Range<usize>> {
        let (first, end) = (first as usize, (first + length) as usize);
        match *self {
            Self::Tokens { runs, token_bytes: bytes, tokens } => {
                (0..runs).map(|run| (run * tokens + first) * bytes..(run * tokens + end) * bytes).collect()
            }
            Self::States { bytes } => {
                let slots = (first..end).step_by(64).filter(|start| start + 64 < end).map(|start| start / 64);
                slots.map(|slot| slot * bytes..(slot + 1) * bytes).collect()
            }
            Self::All { bytes } => std::iter::once(0..bytes).collect(),
        }
    }

    fn take(&self, all: &[u8], first: u32, length: u32) -> Vec<u8> {
        self.ranges(first, length).into_iter().flat_map(|range| all[range].to_vec()).collect()
    }

    fn put(&self, all: &mut [u8], first: u32, length: u32, mut kept: &[u8]) {
        for range in self.ranges(first, length) {
            let (part, rest) = kept.split_at(range.len());
            all[range].copy_from_slice(part);
            kept = rest;
        }
    }
}

#[test]
fn a_sequence_has_the_bits_that_it_has_alone() {
    // Heads of 128 and 256 have tiles of their own, and find them as those of 64 do.
    let few = &LENGTHS[..1];
    let keys = [("d=64,x=bf16", &LENGTHS[..]), ("d=128,x=bf16", few), ("d=32,x=f32", few)];
    let windowed = [("d=64,window=50,x=bf16", few), ("d=256,window=50,x=bf16", few), ("d=32,window=33,x=f32", SHORT)];
    let keys = keys.into_iter().chain(windowed);
    let keys = keys.flat_map(|(key, lists)| ["bwd", "fwd"].map(|pass| (format!("attention.{pass}{{{key}}}"), lists)));
    let of_dtypes = [("bf16", few), ("f32", SHORT)];
    let solved = ["bf16", "f32"].map(|x| (format!("delta_rule.solve{{x={x}}}"), &LENGTHS[..]));
    let moved = [(true, "bf16", &LENGTHS[..]), (false, "f32", SHORT)];
    let moved = moved.map(|(keep, x, lists)| (format!("delta_rule.fwd{{keep={keep},x={x}}}"), lists));
    let back = of_dtypes.into_iter().flat_map(|(x, lists)| ["state_bwd", "bwd"].map(|pass| (pass, x, lists)));
    let back = back.map(|(pass, x, lists)| (format!("delta_rule.{pass}{{x={x}}}"), lists));
    let keys: Vec<(String, &[&[u32]])> = keys.chain(solved).chain(moved).chain(back).collect();
    keys.par_iter().with_max_len(1).for_each(|(key, lists)| {
        for launched in Launched::of_every_row(key) {
            lists.iter().for_each(|lengths| launched.compare(lengths));
        }
    });
}

/// Each token is of one tile: two tiles that wrote it would race, and what none writes stays poison. Some lists have
/// more sequences of several tiles than a warp has lanes.
#[test]
fn each_token_of_each_sequence_is_in_one_tile() {
    let tiles = &[[1220, 35, 35], [200, 90, 50], [150, 150, 9], [150, 3, 150]][..];
    let chunks = &[[2300, 36, 66], [150, 90, 50]][..];
    let keys = [("attention.fwd{d=16,x=f32}", tiles), ("attention.bwd{d=16,x=f32}", tiles)];
    for (key, sizes) in keys.into_iter().chain([("delta_rule.solve{x=bf16}", chunks)]) {
        let launched = &Launched::of_every_row(key)[0];
        sizes.par_iter().with_max_len(1).for_each(|sizes| {
            let case = Case::new(&launched.key.key, &launched.params(*sizes), 0);
            let (found, expected) = (launched.run(&case), case.reference());
            for (operand, (found, expected)) in case.operands.iter().zip(found.iter().zip(&expected)) {
                case.compare(operand, found, expected).unwrap_or_else(|error| panic!("{sizes:?}: {error}"));
            }
        });
    }
}
