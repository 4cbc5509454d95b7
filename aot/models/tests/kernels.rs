//! Kernels by name: those that no model launches are still listed, built and locked.

use precast_fatbins::Bundle;
use precast_kernels::KERNELS;

use crate::support::program::{aot, ends};

#[test]
fn an_operation_is_listed_by_its_examples_and_a_key_by_itself() {
    let (code, listed, _) = ends(&mut aot("keys --arch sm_121 --key rope.fwd --key cast{from=bf16,to=f32}"));
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(listed, @r"
    sm_121  cast{from=bf16,to=f32}[threads=256]
    sm_121  rope.fwd{d=48,x=bf16}[heads=4,threads=128]
    sm_121  rope.fwd{d=64,x=f32}[heads=4,threads=128]
    ");
    let (_, with_a_model, _) = ends(&mut aot("keys --arch sm_121 --key rope.fwd --model smollm2-135m"));
    assert!(with_a_model.contains("rope.fwd{d=48,x=bf16}") && with_a_model.contains("adamw.update"));
}

#[test]
fn a_name_of_no_kernel_lists_the_kernels_there_are() {
    let (code, _, message) = ends(&mut aot("keys --key softmax.fwd"));
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("no kernel `softmax.fwd`") && message.contains("swiglu.bwd, swiglu.fwd"), "{message}");
}

#[test]
fn a_bundle_holds_the_kernels_that_were_named() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.bundle");
    let (code, said, message) = ends(aot("build --arch sm_121 --key rope.fwd{d=16,x=bf16} --out").arg(&out));
    assert_eq!(code, Some(0), "{message}");
    assert!(said.contains("1 sm_121") && message.is_empty(), "{said}{message}");
    let bytes = std::fs::read(out).unwrap();
    let bundle = Bundle::read(&bytes, &KERNELS).unwrap();
    bundle.verify().unwrap();
    let modules = bundle.modules(precast_kernels::Arch::Sm121).unwrap();
    assert_eq!(modules[0].pair.key, KERNELS.parse("rope.fwd{d=16,x=bf16}").unwrap());
}
