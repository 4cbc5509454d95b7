//! The machine counts as Nsight Compute did on an H200, for the same samples of the same variants: within 5 % or 32
//! events. sm_90_portable has the kernels of sm_89 and sm_121.

use std::collections::BTreeMap;

use precast_kernels::{Arch, KERNELS};
use precast_simt::{Cost, Count, Traffic, count};
use rayon::prelude::*;

use crate::SIMT;

/// A launch a line: kernel, sample, and the metrics that the first line names. Comments say how it was measured.
const MEASURED: &str = include_str!("counters/h200.tsv");

/// Seed of the random inputs that were measured.
const SEED: u64 = 1;

/// Returns the value of a metric of ncu by these counts.
fn figure(metric: &str, counts: &[Count]) -> u64 {
    let of = |traffic: Traffic| -> Cost {
        counts.iter().filter(|count| count.traffic == traffic).map(|count| count.cost).sum()
    };
    let conflicts = |traffic: Traffic| of(traffic).moved - of(traffic).needed;
    match metric {
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld" => of(Traffic::Load).requests,
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld" => of(Traffic::Load).moved,
        "l1tex__t_requests_pipe_lsu_mem_global_op_st" => of(Traffic::Store).requests,
        "l1tex__t_sectors_pipe_lsu_mem_global_op_st" => of(Traffic::Store).moved,
        "smsp__sass_l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts" => of(Traffic::Copy).requests,
        "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts" => of(Traffic::Copy).moved,
        "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld" => of(Traffic::SharedLoad).moved,
        "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st" => of(Traffic::SharedStore).moved,
        "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldsm" => of(Traffic::LoadMatrix).moved,
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld" => {
            conflicts(Traffic::SharedLoad) + conflicts(Traffic::LoadMatrix)
        }
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st" => conflicts(Traffic::SharedStore),
        _ => panic!("{metric} is not counted"),
    }
}

#[test]
fn the_machine_counts_what_ncu_counted() {
    let mut lines = MEASURED.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t'));
    let metrics: Vec<&str> = lines.next().unwrap().skip(2).collect();
    // Sample and figures of each launch, by kernel.
    let mut kernels: BTreeMap<&str, Vec<(usize, Vec<&str>)>> = BTreeMap::new();
    for mut fields in lines {
        let (kernel, sample) = (fields.next().unwrap(), fields.next().unwrap());
        kernels.entry(kernel).or_default().push((sample.parse().unwrap(), fields.collect()));
    }
    let compare = |(kernel, launches): (&&str, &Vec<(usize, Vec<&str>)>)| {
        let key = KERNELS.parse(kernel.split_once('[').unwrap().0).unwrap();
        let pair = key.built(Arch::Sm90Portable).find(|pair| pair.to_string() == **kernel).unwrap();
        let counted = count(&SIMT, &pair, Arch::Sm90Portable, SEED).unwrap_or_else(|fault| panic!("{fault}"));
        let mut wrong = Vec::new();
        for (sample, figures) in launches {
            let (_, counts) = counted.samples.iter().find(|(number, _)| number == sample).unwrap();
            for (metric, ncu) in metrics.iter().zip(figures).filter(|(_, ncu)| **ncu != "-") {
                let (own, number) = (figure(metric, counts), ncu.trim_end_matches('!').parse::<u64>().unwrap());
                let differs = own.abs_diff(number) > 32.max(number / 20);
                if differs != ncu.ends_with('!') {
                    wrong.push(format!("{kernel} #{sample}: {metric} {ncu}, counted {own}"));
                }
            }
        }
        wrong
    };
    let wrong: Vec<String> = kernels.par_iter().flat_map(compare).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
