//! Messages that the test of another program gets about its kernels.

use precast_core::{Arch, Dtype, Key, Op, Registered, Registry};
use precast_simt::check;

use crate::softcap::SoftcapFwd;
use crate::wrong::{LOOSE, NO_SAMPLE, RACE, Wrong};

fn registry<K: Registered>() -> Registry {
    Registry::new("of the test", vec![Op::of::<K>()].leak())
}

/// What is said of a kernel that is not right.
fn refused(kernels: &Registry, archs: &[Arch]) -> String {
    let error = check(kernels, archs.iter().copied()).unwrap_err();
    // `unwrap` and a test's result say the same.
    assert_eq!(error.to_string(), format!("{error:?}"));
    error.to_string()
}

#[test]
fn a_program_without_faults_is_told_what_was_checked() {
    let checked = check(&registry::<SoftcapFwd>(), [Arch::Sm89, Arch::Sm90a]).unwrap();
    // Two dtypes; both architectures run one program, four samples with three seeds.
    assert_eq!(checked.kernels.len(), 2);
    assert!(
        checked.kernels[1].starts_with("softcap.fwd{x=f32}[threads=256] for sm_89 sm_90a: 12 launches"),
        "{checked}"
    );
    assert!(checked.to_string().contains("4 kernels, 24 launches: as their references"), "{checked}");
}

#[test]
fn a_race_of_a_program_is_named_with_its_two_lines() {
    let said = refused(&registry::<Wrong<RACE>>(), &[Arch::Sm89]);
    for part in ["data race", "write at src/softcap/staged.cu:13", "read at src/softcap/staged.cu:15", "1 of 1 kernels"]
    {
        assert!(said.contains(part), "`{part}` is not said:\n{said}");
    }
}

#[test]
fn a_check_of_nothing_is_an_error() {
    let none = Registry::new("of the test", &[]);
    for (said, why) in [
        (refused(&none, &[Arch::Sm89]), "no example has a variant for sm_89"),
        (refused(&registry::<SoftcapFwd>(), &[]), "no architecture is named"),
        (refused(&registry::<SoftcapFwd>(), &[Arch::Sim]), "sim has no machine code"),
        (refused(&registry::<Wrong<NO_SAMPLE>>(), &[Arch::Sm89]), "for sm_89 admits no sample: add one to `samples`"),
    ] {
        assert!(said.starts_with("nothing is checked: ") && said.contains(why), "{said}");
    }
}

#[test]
fn a_dtype_that_no_example_has_is_named() {
    let mut op = Op::of::<SoftcapFwd>();
    op.examples = || vec![Key::new(SoftcapFwd { x: Dtype::F32 })];
    let said = refused(&Registry::new("of the test", vec![op].leak()), &[Arch::Sm89]);
    let expected = "no example of `softcap.fwd` has x=bf16: add one to `examples`, or give such keys no variants";
    assert_eq!(said, expected);
}

#[test]
fn a_tolerance_that_zeros_are_within_is_refused() {
    let said = refused(&registry::<Wrong<LOOSE>>(), &[Arch::Sm89]);
    let expected = "softcap.fwd{x=bf16}: the tolerance of `y` is 1.5 of the norm, 0.01 of an element\nZeros are within";
    assert!(said.starts_with(expected), "{said}");
}
