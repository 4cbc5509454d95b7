//! Dequantization against values of another implementation.

use super::super::types::{code, name, of_code, read};

#[derive(serde::Deserialize)]
struct Fixture {
    types: Vec<Case>,
}

#[derive(serde::Deserialize)]
struct Case {
    r#type: String,
    blocks: String,
    values: String,
}

fn hex(text: &str) -> Vec<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("a digit") as u8;
    text.as_bytes().as_chunks().0.iter().map(|[high, low]| digit(*high) << 4 | digit(*low)).collect()
}

#[test]
fn every_type_has_the_reference_bits() {
    let fixture: Fixture = serde_json::from_str(include_str!("../fixtures/blocks.json")).expect("it is JSON");
    for kind in read() {
        let case = fixture.types.iter().find(|case| case.r#type == kind.to_string()).expect("a case of each type");
        let (blocks, values) = (hex(&case.blocks), hex(&case.values));
        let expected: Vec<u32> = values.as_chunks().0.iter().map(|bits| u32::from_le_bytes(*bits)).collect();
        // Many times over, so that several tasks of the thread pool share the work.
        let (repeats, block_count) = (3000, blocks.len() / kind.bytes(kind.elems()).expect("a block") as usize);
        assert_eq!(expected.len(), block_count * kind.elems() as usize, "{}", kind);
        let mut out = vec![f32::NAN; expected.len() * repeats];
        kind.dequantize(1.0, &blocks.repeat(repeats), &mut out);
        let found: Vec<u32> = out.iter().map(|value| value.to_bits()).collect();
        assert_eq!(found, expected.repeat(repeats), "{}", kind);
    }
}

#[test]
fn types_are_found_by_code() {
    for kind in read() {
        assert_eq!(of_code(code(kind)), Some(kind));
        assert_eq!(name(code(kind)), kind.to_string());
    }
    assert_eq!((of_code(16), name(16)), (None, "IQ2_XXS".to_owned()));
    assert_eq!((of_code(4), name(4)), (None, "4 (which ggml does not define)".to_owned()));
    assert_eq!(name(u32::MAX), "4294967295 (which ggml does not define)");
}
