//! A step whose gradients are not finite is skipped, which no sample draws: `grad_norm.finish` says so, and
//! `adamw.update` writes nothing. `skipped` is 0 or 1 beside metrics in f32, where a tolerance sees neither: it is
//! compared bit by bit.

use bytemuck::{from_bytes, from_bytes_mut};
use precast_kernels::{Arch, KERNELS, KeyVariant, Source, abi::step_metrics, check::Case, host::Buffer};
use precast_simt::execute;

use crate::SIMT;
use crate::kernels::changed;

const ADAMW: [&str; 2] = ["adamw.update{w=bf16}", "adamw.update{moments=bf16,w=bf16}"];
const FINISH: &str = "grad_norm.finish{}";

/// Every sample of a key, each with inputs that `change` makes of it.
fn cases(key: &str, change: impl Fn(&mut Case)) -> Vec<Case> {
    let key = KERNELS.parse(key).unwrap();
    let with = |params: &Vec<u8>| {
        let mut case = Case::new(&key, params, 1);
        change(&mut case);
        case
    };
    key.kernel().samples().iter().map(with).collect()
}

/// Index of an operand.
fn index(case: &Case, name: &str) -> usize {
    case.operands.iter().position(|operand| operand.name == name).unwrap()
}

fn metrics(case: &Case, memory: &[Buffer]) -> step_metrics {
    *from_bytes(&memory[index(case, "metrics")])
}

/// Returns the content of each operand after a launch of the kernel's source, with `to` in place of `from`.
fn after(case: &Case, [from, to]: [&str; 2]) -> Vec<Buffer> {
    let (kernel, arch) = (case.key.kernel(), Arch::Sm121);
    let variant = kernel.variants(arch)[0];
    let source: Source = changed(kernel.source(variant), from, to);
    let defines = KeyVariant { key: case.key.clone(), variant }.defines(arch);
    let program = SIMT.compile(&source, &defines, arch).unwrap();
    let mut memory = case.before.clone();
    let geometry = kernel.geometry(variant, &case.params);
    execute(&program, &geometry, &case.params, &case.operands, &[], &mut memory, 1)
        .unwrap_or_else(|fault| panic!("{fault}"));
    memory
}

fn is_same(a: &[Buffer], b: &[Buffer]) -> bool {
    a.iter().zip(b).all(|(a, b)| a[..] == b[..])
}

const SKIP: &str = "if (metrics.skipped) return;";
const NOT_FINITE: &str = "!(norm - norm == 0.0f)";

/// Runs AdamW where the step is skipped. True if the kernel, and its reference, write nothing.
fn adamw_writes_nothing(change: [&str; 2]) -> bool {
    let skip = |case: &mut Case| {
        let at = index(case, "metrics");
        from_bytes_mut::<step_metrics>(&mut case.before[at]).skipped = 1;
    };
    ADAMW.iter().flat_map(|key| cases(key, skip)).all(|case| {
        assert!(is_same(&case.reference(), &case.before), "the host reference writes");
        is_same(&after(&case, change), &case.before)
    })
}

/// Finishes a norm of which one partial sum is `value`, at each end and in the middle. True if `skipped` is the
/// reference's.
fn finish_agrees(value: f32, change: [&str; 2]) -> bool {
    [0.0, 0.5, 1.0].into_iter().all(|place| {
        let put = |case: &mut Case| {
            let at = index(case, "partial");
            let last = case.operands[at].elems as usize - 1;
            let partial = (place * last as f64) as usize;
            case.before[at][4 * partial..][..4].copy_from_slice(&value.to_ne_bytes());
        };
        cases(FINISH, put).iter().all(|case| {
            let [expected, found] = [case.reference(), after(case, change)].map(|memory| metrics(case, &memory));
            assert_eq!(expected.skipped, u32::from(!value.is_finite()), "the host reference of {value}");
            assert_eq!(found.clip_scale.is_nan(), expected.clip_scale.is_nan(), "{value}");
            found.skipped == expected.skipped
        })
    })
}

#[test]
fn a_skipped_step_writes_nothing() {
    assert!(adamw_writes_nothing([SKIP, SKIP]));
}

#[test]
fn a_step_that_is_not_left_out_is_found() {
    assert!(!adamw_writes_nothing([SKIP, ""]));
}

#[test]
fn a_norm_that_is_not_finite_is_a_skipped_step() {
    for value in [f32::NAN, f32::INFINITY, 1.0, 0.0] {
        assert!(finish_agrees(value, [NOT_FINITE, NOT_FINITE]), "{value}");
    }
}

#[test]
fn tests_of_the_norm_that_miss_some_are_found() {
    for (value, test) in [
        (f32::INFINITY, "norm != norm"),
        (f32::NAN, "norm == norm + 1.0f"),
        (f32::NAN, "0"),
        (1.0, "1"),
        (1.0, "(norm - norm == 0.0f)"),
    ] {
        assert!(!finish_agrees(value, [NOT_FINITE, test]), "{test} of {value}");
    }
}
