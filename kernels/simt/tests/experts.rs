//! A row of a GEMM of experts has the bits of the dense GEMM of its expert, by every variant of either.

use precast_core::Access;
use precast_kernels::abi::{moe_route_params, moe_sort_params};
use precast_kernels::moe::list_entries;
use precast_kernels::{Arch, KERNELS, Key, KeyVariant, check::Case, host::Buffer};
use rayon::prelude::*;

use crate::SIMT;
use crate::rows::{launched, variants};

/// Fewest rows of experts that are compared: the smallest such sample of several tiles is.
const LEAST_ROWS: usize = 33;

/// Returns the launch of a dense GEMM that computes rows of one expert: with these rows and that expert's weights.
fn dense(key: &Key, grouped: &Case, [expert, first, end]: [usize; 3]) -> Case {
    let mut params = grouped.params.clone();
    // `m`, behind the addresses, and `experts_of`, behind n and k.
    let rows = if key.op() == "gemm.fwd" { 40 } else { 32 };
    params[rows..rows + 4].copy_from_slice(&((end - first) as u32).to_ne_bytes());
    params[rows + 12..rows + 16].fill(0);
    let mut case = Case::new(key, &params, 1);
    for (operand, to) in case.operands.iter().zip(&mut case.before) {
        let index = grouped.operands.iter().position(|other| other.name == operand.name).expect("the same operands");
        if operand.access == Access::Read {
            let per_row = operand.bytes() as usize / (end - first);
            let start = if operand.name.starts_with('x') { first * per_row } else { expert * operand.bytes() as usize };
            *to = Buffer::from(&grouped.before[index][start..][..operand.bytes() as usize]);
        }
    }
    case
}

fn output(case: &Case, memory: &[Buffer]) -> Vec<u8> {
    let index = case.operands.iter().position(|operand| operand.name == "y").expect("an output");
    memory[index].to_vec()
}

/// Returns the tiles that have rows: expert, first row, row behind the last.
fn tiles(case: &Case) -> Vec<[usize; 3]> {
    let index = case.operands.iter().position(|operand| operand.name == "tiles").expect("a list");
    let words: Vec<u32> = bytemuck::pod_collect_to_vec(&case.before[index]);
    let tiles = words.chunks(4).skip(1).map(|tile| [tile[0], tile[1], tile[2]].map(|word| word as usize));
    tiles.filter(|[_, first, end]| first < end).collect()
}

/// Compares a launch by one variant with dense ones, by another; returns the tiles that were compared.
fn compare(grouped: (&Case, &[u8]), key: &Key, pair: &KeyVariant, arch: Arch) -> usize {
    let program = SIMT.compile(&pair.source(), &pair.defines(arch), arch).unwrap();
    let tiles = tiles(grouped.0);
    for tile in &tiles {
        let case = dense(key, grouped.0, *tile);
        if !key.kernel().admits(pair.variant, &case.params) {
            return 0;
        }
        let found = output(&case, &launched(&program, pair, &case));
        let row = found.len() / (tile[2] - tile[1]);
        assert!(found[..] == grouped.1[tile[1] * row..][..found.len()], "{key}[{}]: tile {tile:?}", pair.variant);
    }
    tiles.len()
}

#[test]
fn rows_of_experts_are_those_of_dense_gemms() {
    let keys =
        KERNELS.examples().into_iter().filter(|key| key.text().contains("experts=") && key.op().starts_with("gemm"));
    let compared: Vec<usize> = keys
        .collect::<Vec<Key>>()
        .par_iter()
        .flat_map_iter(|key| variants(key).into_iter().map(move |variant| (key, variant)))
        .map(|(key, (arch, pair))| {
            let (before, after) = key.text().split_once("experts=").unwrap();
            let dense = KERNELS.parse(&format!("{before}{}", after.split_once(',').unwrap().1)).unwrap();
            let admitted =
                key.kernel().samples().into_iter().filter(|params| key.kernel().admits(pair.variant, params));
            let cases = admitted.map(|params| Case::new(key, &params, 3));
            let rows = |case: &Case| tiles(case).iter().map(|tile| tile[2] - tile[1]).sum::<usize>();
            let case = cases
                .filter(|case| rows(case) >= LEAST_ROWS && tiles(case).len() > 1)
                .min_by_key(rows)
                .expect("a sample");
            let program = SIMT.compile(&pair.source(), &pair.defines(arch), arch).unwrap();
            let found = output(&case, &launched(&program, &pair, &case));
            // By a dense variant of its kind: tensor cores by `wgmma` or `mma`, or CUDA cores.
            let kind = |variant: &str| ["wgmma", "mma", ""].into_iter().find(|kind| variant.contains(kind));
            let own = kind(&pair.variant.to_string());
            let others = variants(&dense).into_iter().filter(|(_, it)| kind(&it.variant.to_string()) == own);
            let (arch, other) = others.last().expect("a dense variant");
            compare((&case, &found), &dense, &other, arch)
        })
        .collect();
    assert!(compared.iter().all(|tiles| *tiles > 1), "{compared:?}");
}

/// Executes a launch of one variant; returns an operand's words.
fn words(case: &Case, name: &str) -> Vec<u32> {
    let (arch, pair) = variants(&case.key).remove(0);
    let program = SIMT.compile(&pair.source(), &pair.defines(arch), arch).unwrap();
    let memory = launched(&program, &pair, case);
    let index = case.operands.iter().position(|operand| operand.name == name).expect("an operand");
    bytemuck::pod_collect_to_vec(&memory[index])
}

/// A launch with other contents of some operands.
fn with<P: bytemuck::Pod>(key: &str, params: P, contents: &[(&str, Vec<u32>)]) -> Case {
    let mut case = Case::new(&KERNELS.parse(key).unwrap(), bytemuck::bytes_of(&params), 1);
    for (name, words) in contents {
        let index = case.operands.iter().position(|operand| operand.name == *name).expect("an operand");
        case.before[index] = Buffer::from(bytemuck::cast_slice(words));
    }
    case
}

/// Tokens that all choose alike, and logits that are not numbers: every row has a place of its own, and every tile
/// rows.
#[test]
fn whatever_a_router_says_each_choice_has_a_place() {
    const TOKENS: u32 = 150;
    let (experts, chosen) = (16usize, 3usize);
    for logit in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0] {
        // The first token chooses otherwise.
        let of_token = |token: u32| (0..experts).map(move |expert| if token > 0 { logit } else { expert as f32 });
        let logits = (0..TOKENS).flat_map(of_token).map(f32::to_bits).collect();
        let params = moe_route_params { tokens: TOKENS, columns: experts as u32, ..Default::default() };
        let key = "moe.route{chosen=3,experts=16,normalize=true,shared=false,x=f32}";
        let route = with(key, params, &[("logits", logits)]);
        let [choices, ranks, counts, weights] =
            ["choices", "ranks", "counts", "weights"].map(|name| words(&route, name));
        assert_eq!(choices[..chosen], [15, 14, 13]);
        assert!(choices[chosen..].chunks(chosen).all(|token| token == [0, 1, 2]), "{logit}: {choices:?}");
        let is_nan = |weight: &u32| f32::from_bits(*weight).is_nan();
        assert!(weights[chosen..].iter().all(|weight| is_nan(weight) != (logit == 0.0)), "{logit}: {weights:?}");
        let list = list_entries(TOKENS * chosen as u32, experts as u32);
        let params = moe_sort_params { tokens: TOKENS, list, each: experts as u32, ..Default::default() };
        let contents = [("choices", choices), ("ranks", ranks), ("counts", counts)];
        let sort = with("moe.sort{chosen=3,experts=16,shared=false}", params, &contents);
        let mut places = words(&sort, "places");
        places.sort_unstable();
        assert!(places.into_iter().eq(0..TOKENS * chosen as u32), "{logit}");
        // 149 rows of three experts, and one of three others.
        let tiles: Vec<Vec<u32>> = words(&sort, "tiles").chunks(4).map(<[u32]>::to_vec).collect();
        let rows =
            [0, 0, 1, 1, 2, 2, 13, 14, 15].into_iter().zip([0, 128, 149, 277, 298, 426, 447, 448, 449, 450].windows(2));
        let expected = rows.map(|(expert, rows)| vec![expert, rows[0], rows[1], 0]);
        let expected =
            std::iter::once(vec![9, 0, 0, 0]).chain(expected).chain(std::iter::repeat(vec![0; 4])).take(list as usize);
        assert_eq!(tiles, expected.collect::<Vec<_>>(), "{logit}");
    }
}
