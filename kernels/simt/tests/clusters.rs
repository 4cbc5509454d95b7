//! Gradients whose clusters of CTAs share columns of tiles, or have neighbors that they share nothing with, and then
//! split a tile along K.

use bytemuck::bytes_of;
use precast_kernels::abi::{gemm_dgrad_params, gemm_wgrad_params};
use precast_kernels::{Arch, KERNELS, check::Case};

use crate::SIMT;
use crate::rows::launched_on;

/// Tiles that are only beside each other, in dgrad fewer than a cluster of four has CTAs; tiles below each other, the
/// last of which is split, over an odd number of k-tiles.
const SHAPES: [(u32, u32, u32); 2] = [(33, 72, 264), (520, 520, 128)];

/// Launches one cluster, which computes all tiles, by each of so many variants for wgmma.
fn each_cluster_is_its_reference(key: &str, params: &[u8], variants: usize) {
    let key = KERNELS.parse(key).unwrap();
    let (kernel, case) = (key.kernel(), Case::new(&key, params, 1));
    let reference = case.reference();
    let built: Vec<_> = key.built(Arch::Sm90a).filter(|pair| kernel.admits(pair.variant, params)).collect();
    assert_eq!(built.len(), variants, "{key}");
    for pair in built {
        let program = SIMT.compile(&pair.source(), &pair.defines(Arch::Sm90a), Arch::Sm90a).unwrap();
        let mut geometry = kernel.geometry(pair.variant, params);
        geometry.grid[0] = kernel.smallest_grid(pair.variant).unwrap_or(geometry.grid[0]);
        let memory = launched_on(&program, &pair, &case, &geometry);
        for ((operand, after), reference) in case.operands.iter().zip(&memory).zip(&reference) {
            let compared = case.compare_within(kernel.tolerance(operand), operand, after, reference);
            assert!(compared.is_ok(), "{pair}: {}", compared.unwrap_err());
        }
    }
}

#[test]
fn gradients_of_inputs_are_the_hosts_whatever_a_cluster_shares() {
    for (m, n, k) in SHAPES {
        let params = gemm_dgrad_params { m, n, k, splits: 1, ..Default::default() };
        each_cluster_is_its_reference("gemm.dgrad{w=bf16,x=bf16}", bytes_of(&params), 4);
    }
}

#[test]
fn gradients_of_weights_are_the_hosts_whatever_a_cluster_shares() {
    for (m, n, k) in SHAPES {
        let params = gemm_wgrad_params { m, n, k, splits: 1, ..Default::default() };
        each_cluster_is_its_reference("gemm.wgrad{x=bf16}", bytes_of(&params), 4);
    }
}
