//! What is wrong with a file, one thing at a time.

use std::path::Path;

use super::samples::shape;
use super::writer::Writer;
use super::{Fault, Gguf, fault, open};
use crate::checkpoint::kind::Kind;
use crate::checkpoint::source::Source;
use precast_kernels::Block;

const UNKNOWN_KEY: &str = "general.description";
const LONG: &str = "metadata and table of tensors take more than 268435456 bytes";

fn says(fault: &Fault, part: &str) -> bool {
    fault.to_string().contains(part)
}

/// A number of eight bytes in a file.
fn with_number(file: &[u8], at: usize, number: u64) -> Vec<u8> {
    [&file[..at], &number.to_le_bytes(), &file[at + 8..]].concat()
}

/// Place of the offset of a tensor of so many dimensions: it follows name, rank, dimensions and type.
fn offset_of(file: &[u8], name: &str, rank: usize) -> usize {
    let at = file.windows(name.len()).position(|window| window == name.as_bytes()).unwrap();
    at + name.len() + 4 + 8 * rank + 4
}

/// A file that ends after a terabyte of zeros, which costs nothing to make.
fn endless(writer: &Writer) -> Fault {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), writer.bytes()).unwrap();
    std::fs::OpenOptions::new().write(true).open(file.path()).unwrap().set_len(1 << 40).unwrap();
    Gguf::read(file.path()).err().unwrap()
}

fn embedding(dimensions: &[u64], code: u32, values: usize) -> Vec<u8> {
    shape("llama").tensor_raw("token_embd.weight", dimensions, code, vec![0; values]).bytes()
}

#[test]
fn a_file_is_known_by_its_first_four_bytes() {
    let is_read = |path: &Path| !matches!(Source::of_file(path), Ok(None));
    let is_gguf = |bytes: &[u8]| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        is_read(file.path())
    };
    assert!(is_gguf(&shape("llama").bytes()));
    assert!(is_gguf(b"GGUF"));
    assert!(!is_gguf(b"GGU") && !is_gguf(b"") && !is_gguf(b"{\"a\": 1}"));
    assert!(!is_read(Path::new("/nonexistent")));
    for bytes in [&b""[..], b"GGU", b"PK\x03\x04 and more"] {
        let found = format!("it starts with {:02x?}", &bytes[..bytes.len().min(4)]);
        assert!(says(&fault(bytes), &found));
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let missing = Path::new("/nonexistent/model.gguf");
    let fault = Gguf::read(missing).err().unwrap();
    assert!(matches!(fault, Fault::Io(_)));
    let error = fault.at(missing);
    assert!(error.to_string().starts_with("/nonexistent/model.gguf: cannot read: "), "{error}");
    assert!(matches!(Gguf::read(&std::env::temp_dir()).err().unwrap(), Fault::Io(_)));
}

#[test]
fn other_versions_are_refused_with_a_remedy() {
    for (version, remedy) in [(1, "Convert"), (4, "Convert"), (0, "Convert"), (3_u32.swap_bytes(), "big-endian")] {
        let mut writer = shape("llama");
        writer.version = version;
        let fault = fault(&writer.bytes());
        assert!(says(&fault, &format!("GGUF version {version} ")) && says(&fault, remedy), "{fault}");
    }
}

#[test]
fn counts_and_lengths_that_the_file_cannot_hold_are_refused() {
    let file = shape("llama").bytes();
    // Of tensors, of keys, of the first key's bytes.
    for at in [8, 16, 24] {
        for value in [u64::MAX, i64::MAX as u64, 1 << 40] {
            // More tensors or keys than there are: what follows is read as such, until something is wrong with it.
            let fault = fault(&with_number(&file, at, value));
            assert!(matches!(fault, Fault::Truncated { .. }) || says(&fault, ", more than "), "{fault}");
        }
    }
    for item in [0, 4, 8, 12] {
        let array = [&(item as u32).to_le_bytes()[..], &u64::MAX.to_le_bytes()].concat();
        let fault = fault(&Writer::new().raw(UNKNOWN_KEY, 9, &array).bytes());
        match &fault {
            Fault::Truncated { what, .. } => assert!(what.contains(UNKNOWN_KEY), "{fault}"),
            many => assert!(item == 8 && says(many, UNKNOWN_KEY) && says(many, ", more than "), "{fault}"),
        }
        assert!(fault.to_string().ends_with("fetch it again"), "{fault}");
    }
}

#[test]
fn an_endless_header_is_refused_before_its_end() {
    let array = [&8_u32.to_le_bytes()[..], &(1_u64 << 22).to_le_bytes()].concat();
    let arrays = (0..64).fold(shape("llama"), |writer, key| writer.raw(&format!("a.{key}"), 9, &array));
    // The first array's texts are all empty, and so is the rest of the file.
    let fault = endless(&arrays.raw("z", 8, &(300_u64 << 20).to_le_bytes()));
    assert!([LONG, ", more than ", " type "].iter().any(|part| says(&fault, part)), "{fault}");
    let fault = endless(&shape("llama").raw("z", 8, &(300_u64 << 20).to_le_bytes()));
    assert!(says(&fault, LONG), "{fault}");
}

#[test]
fn every_type_of_value_reads_and_no_other_does() {
    let nested = [&9_u32.to_le_bytes()[..], &1_u64.to_le_bytes()].concat();
    for (code, value, what) in [(13, vec![], "value type 13"), (9, nested, "array item type 9")] {
        let fault = fault(&Writer::new().raw(UNKNOWN_KEY, code, &value).bytes());
        assert!(says(&fault, " at byte 24 has ") && says(&fault, what), "{fault}");
    }
    let text = [&2_u64.to_le_bytes()[..], b"\xff\xfe"].concat();
    assert!(says(&fault(&Writer::new().raw(UNKNOWN_KEY, 8, &text).bytes()), " is not UTF-8"));
    // Every type of value that there is.
    let widths = [(0, 1), (1, 1), (2, 2), (3, 2), (4, 4), (5, 4), (6, 4), (7, 1), (10, 8), (11, 8), (12, 8)];
    let writer = widths.iter().fold(shape("llama"), |writer, (code, width)| {
        let array = [&u32::to_le_bytes(*code)[..], &2_u64.to_le_bytes(), &vec![1; 2 * width]].concat();
        writer.raw(&format!("a.{code}"), *code, &vec![1; *width]).raw(&format!("b.{code}"), 9, &array)
    });
    open(&writer.bytes()).unwrap();
}

#[test]
fn a_key_or_a_tensor_that_is_there_twice_is_refused() {
    let key = fault(&shape("llama").again("general.architecture").bytes());
    assert!(says(&key, "metadata key general.architecture at byte ") && says(&key, " occurs twice"), "{key}");
    let twice = shape("llama").tensor("x", &[4, 1], Kind::F32).tensor("x", &[4, 1], Kind::F32);
    let tensor = fault(&twice.bytes());
    assert!(says(&tensor, "tensor x at byte ") && says(&tensor, " occurs twice"), "{tensor}");
}

#[test]
fn an_alignment_is_a_power_of_two() {
    let embedding = |alignment| {
        let writer = shape("llama").integer("general.alignment", alignment);
        writer.tensor("token_embd.weight", &[4, 1], Kind::F32).bytes()
    };
    for alignment in [0, 3, 48, u32::MAX] {
        assert!(says(&fault(&embedding(alignment)), "metadata key general.alignment at byte "));
    }
    for alignment in [1, 8, 32] {
        open(&embedding(alignment)).unwrap();
    }
    assert!(matches!(fault(&embedding(1 << 31)), Fault::Truncated { .. }));
}

#[test]
fn an_offset_off_the_alignment_or_past_the_end_is_refused() {
    let file = embedding(&[4, 1], 0, 16);
    let at = offset_of(&file, "token_embd.weight", 2);
    for (offset, misaligned) in [(1, true), (16, true), (32, false), (1 << 40, false), (u64::MAX - 31, false)] {
        match fault(&with_number(&file, at, offset)) {
            fault @ Fault::Truncated { .. } => assert!(!misaligned && says(&fault, "token_embd.weight")),
            fault => {
                let place = format!("start at offset {offset} of the data, not a multiple of the file's alignment 32");
                assert!(misaligned && says(&fault, "tensor token_embd.weight ") && says(&fault, &place), "{fault}");
            }
        }
    }
}

#[test]
fn tensors_that_overlap_or_leave_a_gap_are_refused() {
    let tensor = |writer: Writer, name| writer.tensor(name, &[8], Kind::F32);
    let file = ["blk.0.attn_q.bias", "blk.0.attn_k.bias", "blk.0.attn_v.bias"].into_iter().fold(shape("qwen2"), tensor);
    let file = file.bytes();
    open(&file).unwrap();
    for (name, to, right) in [
        ("blk.0.attn_q.bias", 32, 0),
        ("blk.0.attn_k.bias", 0, 32),
        ("blk.0.attn_k.bias", 64, 32),
        ("blk.0.attn_v.bias", 32, 64),
    ] {
        let fault = fault(&with_number(&file, offset_of(&file, name, 1), to));
        let place = format!("start at offset {to} of the data, expected {right}, behind");
        assert!(says(&fault, &format!("tensor {name} at byte ")) && says(&fault, &place), "{fault}");
    }
    // Behind a type whose size is not known values may start later, and not before.
    let unknown = shape("qwen2").tensor_raw("blk.0.attn_q.bias", &[512], 99, vec![0; 128]);
    let unknown = tensor(unknown, "blk.0.attn_k.bias").bytes();
    open(&unknown).unwrap();
    let early = with_number(&unknown, offset_of(&unknown, "blk.0.attn_k.bias", 1), 32);
    assert!(says(&fault(&early), "expected 64, behind"));
}

#[test]
fn a_shape_that_its_type_cannot_have_is_refused() {
    use super::super::types::code;
    let (q4_0, q4_k) = (code(Kind::Block(Block::Q4_0)), code(Kind::Block(Block::Q4_K)));
    for (dimensions, code) in [
        (&[][..], 0),
        (&[1, 1, 1, 1, 1], 0),
        (&[0, 4], 0),
        (&[u64::MAX, 2], 0),
        (&[1 << 32, 1 << 32], 0),
        (&[48, 1], q4_0),
        (&[896, 1], q4_k),
    ] {
        let fault = fault(&embedding(dimensions, code, 16));
        assert!(says(&fault, "tensor token_embd.weight at byte ") && says(&fault, " has shape ["), "{fault}");
    }
    let fault = fault(&embedding(&[1 << 32, 1 << 30], 0, 16));
    assert!(matches!(fault, Fault::Truncated { .. }), "{fault}");
}
