//! The table of measured launches names what there is, and decides among equals.

use std::collections::BTreeSet;

use precast_kernels::abi::gemm_fwd_params;
use precast_kernels::gemm::GemmFwd;
use precast_kernels::tuned::{Table, TableError};
use precast_kernels::{Arch, Dtype, Flag, KERNELS, Key, Variant};

fn key() -> Key {
    Key::new(GemmFwd {
        bias: false,
        experts: Flag(false),
        residual: false,
        w: Dtype::Bf16.into(),
        x: Dtype::Bf16.into(),
    })
}

#[test]
fn the_committed_table_names_keys_and_variants_there_are() {
    assert_eq!(KERNELS.table(include_str!("../src/tuned.txt")).as_ref(), Ok(KERNELS.tuned()));
    // For another chip the figures of the architecture do not hold.
    let mut covered = KERNELS.tuned().covered().into_iter();
    assert!(
        covered.all(|[chip, arch]| Arch::of_name(arch).unwrap().chip().map(|name| name.replace(' ', "_")).as_deref()
            == Some(chip))
    );
}

#[test]
fn a_row_names_what_this_program_has() {
    let row = "NVIDIA_H200 sm_89 gemm.wgrad{x=bf16} 8x8x8 threads=256,tile=64 1.50";
    assert_eq!(KERNELS.table(&format!("# said\n{row}")).unwrap().covered(), BTreeSet::from([["NVIDIA_H200", "sm_89"]]));
    let mistakes = [("sm_89", "sm_75"), ("wgrad", "bwd"), ("tile=64", "tile=65"), ("1.50", "soon")];
    let errors = mistakes.map(|(from, to)| KERNELS.table(&row.replace(from, to)).unwrap_err().to_string());
    let line = row.replace("1.50", "soon");
    assert_eq!(
        errors,
        [
            "line 1: no architecture `sm_75`".to_owned(),
            "line 1: no kernel `gemm.bwd{x=bf16}`".to_owned(),
            "line 1: no variant `threads=256,tile=65`".to_owned(),
            format!("line 1: `{line}` is not `chip arch key problem variant microseconds`"),
        ]
    );
}

#[test]
fn the_fastest_variant_that_is_offered_is_selected() {
    let (key, mut table) = (key(), Table::default());
    let variants = key.kernel().variants(Arch::Sm90a);
    let times = variants.iter().copied().zip([3.0, 1.0, 2.0, 9.0]);
    table.insert(("NVIDIA H200", Arch::Sm90a), &key, "8x8x8", times);
    let fastest = |variants: &[Variant]| table.fastest(("NVIDIA H200", Arch::Sm90a), &key, "8x8x8", variants);
    assert_eq!(fastest(&variants), Some(variants[1]));
    assert_eq!(fastest(&variants[2..]), Some(variants[2]));
    assert_eq!(fastest(&[]), None);
    for other in [("NVIDIA H200", Arch::Sm89), ("NVIDIA H100 PCIe", Arch::Sm90a)] {
        assert_eq!(table.fastest(other, &key, "8x8x8", &variants), None);
    }
}

#[test]
fn a_table_selects_no_variant_that_gives_other_bits() {
    let (key, mut table, arch) = (key(), Table::default(), Arch::Sm89);
    let p = gemm_fwd_params { m: 128, n: 128, k: 128, ..Default::default() };
    let params = bytemuck::bytes_of(&p);
    let variants = key.admitted(params, arch);
    let [slow, fast] = [0, 1].map(|index| variants[index]);
    let cuda_cores = key.kernel().variants(arch).into_iter().find(|it| it.to_string().starts_with("threads")).unwrap();
    table.insert(("a chip", arch), &key, "128x128x128", [(slow, 3.0), (fast, 2.0), (cuda_cores, 1.0)]);
    assert_eq!(key.select_by(&table, ("a chip", arch), params, slow), fast);
    assert_eq!(key.select_by(&table, ("another", arch), params, slow), slow);
    assert_eq!(key.select_by(&table, ("a chip", arch), params, cuda_cores), cuda_cores);
}

#[test]
fn tables_read_back_and_merge() {
    let mut table = Table::default();
    table.insert(("NVIDIA L4", Arch::Sm89), &key(), "8x8x8", [(Variant::new(&[("threads", 64)]), 1.25)]);
    assert_eq!(table.to_string().parse(), Ok(table.clone()));
    let error = "# a comment\n\nNVIDIA_L4 sm_89 gemm.fwd 8x8x8 threads=64".parse::<Table>().unwrap_err();
    assert!(matches!(error, TableError::Form { line: 3, .. }));
    let mut merged = KERNELS.tuned().clone();
    assert_eq!((merged.merge(table.clone()), merged.covers("NVIDIA L4", Arch::Sm89)), (1, true));
    assert!(!merged.covers("NVIDIA L4", Arch::Sm90a) && !KERNELS.tuned().covers("NVIDIA L4", Arch::Sm89));
}

#[test]
fn a_launch_that_was_not_measured_follows_the_rule() {
    let p = gemm_fwd_params { m: 1, n: 8, k: 8, ..Default::default() };
    let (key, params) = (key(), bytemuck::bytes_of(&p));
    assert_eq!(KERNELS.select(&key, params, Arch::Sm89), key.kernel().select(params, Arch::Sm89));
}
