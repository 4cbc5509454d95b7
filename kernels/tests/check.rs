//! Checks name the element that is wrong.

use precast_kernels::abi::step_metrics;
use precast_kernels::check::{Case, POISON};
use precast_kernels::{Access, Content, Dtype, Format, KERNELS, Operand};

fn bytes(values: &[f32]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

#[test]
fn an_element_that_no_launch_writes_is_named() {
    let key = KERNELS.examples().into_iter().find(|key| key.op() == "add").unwrap();
    let case = Case::new(&key, &key.kernel().samples()[0], 1);
    let operand = Operand { access: Access::Write, format: Format::Dense(Dtype::F32), elems: 2, ..case.operands[0] };
    let poisoned = bytes(&[1.0, f32::from_bits(u32::from_ne_bytes([POISON; 4]))]);
    let message = |out: &[u8], reference: &[u8]| case.compare(&operand, out, reference).unwrap_err().to_string();
    let [unwritten, by_neither] = [message(&poisoned, &bytes(&[1.0, 2.0])), message(&poisoned, &poisoned)];
    assert!(unwritten.ends_with("was never written at element 1 of 2"), "{unwritten}");
    assert!(by_neither.ends_with("it is declared too long"), "{by_neither}");
}

#[test]
fn integers_in_a_block_of_floats_are_compared_exactly() {
    let key = KERNELS.examples().into_iter().find(|key| key.op() == "grad_norm.finish").unwrap();
    let case = Case::new(&key, &key.kernel().samples()[0], 1);
    let at = case
        .operands
        .iter()
        .position(|operand| matches!(operand.content, Content::Scalars(fields) if fields.len() == 6))
        .unwrap();
    let (operand, reference) = (&case.operands[at], &case.reference()[at]);
    case.compare(operand, reference, reference).unwrap();
    let mut wrong = reference.clone();
    bytemuck::from_bytes_mut::<step_metrics>(&mut wrong).skipped = 1;
    let message = case.compare(operand, &wrong, reference).unwrap_err().to_string();
    assert!(message.contains("worst element 4 by inf"), "{message}");
}
