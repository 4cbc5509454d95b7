//! What the machine counts is what Nsight Compute counted on an H200, for the same samples of the same variants: within
//! 5 % or 32 events. sm_90 has the generic kernels of sm_89 and sm_121.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use precast_kernels::{Arch, Key};
use precast_simt::{Cost, Simt, Traffic, count};
use rayon::prelude::*;

/// A launch a line: kernel, sample, and the metrics that the first line names. Comments say how it was measured.
const MEASURED: &str = include_str!("counters/h200.tsv");

/// Of the random inputs, as it was measured.
const SEED: u64 = 1;

/// Where NVRTC 13.0 makes other instructions of a source than the source says (README.md). Each has to show.
const OTHER_CODE: [(&str, Traffic); 3] =
    [("attention.bwd", Traffic::Store), ("attention.fwd", Traffic::Store), ("rmsnorm.bwd", Traffic::SharedLoad)];

/// What a metric of ncu is here.
fn figure(metric: &str) -> (Traffic, fn(Cost) -> u64) {
    let requests: fn(Cost) -> u64 = |cost| cost.requests;
    let moved: fn(Cost) -> u64 = |cost| cost.moved;
    match metric {
        "smsp__sass_inst_executed_op_global_ld" => (Traffic::Load, requests),
        "smsp__sass_inst_executed_op_global_st" => (Traffic::Store, requests),
        "smsp__sass_inst_executed_op_shared_ld" => (Traffic::SharedLoad, requests),
        "smsp__sass_inst_executed_op_shared_st" => (Traffic::SharedStore, requests),
        "smsp__sass_inst_executed_op_ldsm" => (Traffic::LoadMatrix, requests),
        "smsp__sass_l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts" => (Traffic::Copy, requests),
        "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ld" => (Traffic::Load, moved),
        "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_st" => (Traffic::Store, moved),
        "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts" => (Traffic::Copy, moved),
        "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld" => (Traffic::SharedLoad, moved),
        "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st" => (Traffic::SharedStore, moved),
        "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldsm" => (Traffic::LoadMatrix, moved),
        _ => panic!("{metric} is not counted"),
    }
}

/// A launch that was measured: sample, and figures in the order of the metrics.
type Launch = (usize, Vec<u64>);

/// Metrics, and launches by kernel.
fn measured() -> (Vec<&'static str>, BTreeMap<&'static str, Vec<Launch>>) {
    let mut lines = MEASURED.lines().filter(|line| !line.starts_with('#'));
    let metrics = lines.next().unwrap().split('\t').skip(2).collect();
    let mut launches: BTreeMap<&str, Vec<Launch>> = BTreeMap::new();
    for line in lines {
        let mut fields = line.split('\t');
        let kernel = fields.next().unwrap();
        let mut numbers = fields.map(|field| field.parse().unwrap());
        let sample = numbers.next().unwrap() as usize;
        launches.entry(kernel).or_default().push((sample, numbers.collect()));
    }
    (metrics, launches)
}

#[test]
fn the_machine_counts_what_ncu_counted() {
    let simt = Simt::new(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("counters")).unwrap();
    let (metrics, kernels) = measured();
    let differences: Vec<(&str, Traffic, String)> = kernels
        .par_iter()
        .flat_map(|(kernel, launches)| {
            let (key, variant) = kernel.trim_end_matches(']').split_once('[').unwrap();
            let (op, _) = key.split_once('{').unwrap();
            let key = Key::parse(key).unwrap();
            let variants = key.kernel().variants(Arch::Sm90);
            let variant = variants.iter().find(|other| other.to_string() == variant).unwrap();
            let counted = count(&simt, &key, *variant, Arch::Sm90, SEED).unwrap_or_else(|fault| panic!("{fault}"));
            let mut differences = Vec::new();
            for (sample, figures) in launches {
                let (_, counts) = counted.samples.iter().find(|(number, _)| number == sample).unwrap();
                for (metric, &ncu) in metrics.iter().zip(figures) {
                    let (traffic, of) = figure(metric);
                    let own = of(counts.iter().filter(|count| count.traffic == traffic).map(|count| count.cost).sum());
                    if own.abs_diff(ncu) > 32.max(ncu / 20) {
                        differences.push((op, traffic, format!("{kernel} #{sample}: {metric} {ncu}, counted {own}")));
                    }
                }
            }
            differences
        })
        .collect();
    let unknown = differences.iter().filter(|(op, traffic, _)| !OTHER_CODE.contains(&(*op, *traffic)));
    let unknown: Vec<&str> = unknown.map(|(_, _, text)| text.as_str()).collect();
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
    let known: BTreeSet<(&str, Traffic)> = differences.iter().map(|(op, traffic, _)| (*op, *traffic)).collect();
    assert_eq!(known, BTreeSet::from(OTHER_CODE));
}
