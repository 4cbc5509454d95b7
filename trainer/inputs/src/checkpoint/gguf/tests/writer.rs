//! Writes GGUF files, right ones and wrong ones.

use super::super::types::code;
use crate::checkpoint::kind::Kind;

/// What goes into a file.
#[derive(Clone)]
pub(super) struct Writer {
    pub(super) version: u32,
    metadata: Vec<(String, Vec<u8>)>,
    tensors: Vec<Row>,
}

/// A tensor: columns first, as the file has it.
#[derive(Clone)]
struct Row {
    name: String,
    dimensions: Vec<u64>,
    code: u32,
    values: Vec<u8>,
}

/// A length, then the bytes.
fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

impl Writer {
    pub(super) const ALIGNMENT_BYTES: usize = 32;

    pub(super) fn new() -> Self {
        Self { version: 3, metadata: Vec::new(), tensors: Vec::new() }
    }

    /// A value given as its type and bytes; in place of the one that the key has.
    pub(super) fn raw(mut self, key: &str, code: u32, value: &[u8]) -> Self {
        let value = [&code.to_le_bytes(), value].concat();
        self.metadata.retain(|(found, _)| found != key);
        self.metadata.push((key.to_owned(), value));
        self
    }

    /// The last key once more, under any name.
    pub(super) fn again(mut self, key: &str) -> Self {
        let value = self.metadata.last().map(|(_, value)| value.clone());
        self.metadata.extend(value.map(|value| (key.to_owned(), value)));
        self
    }

    pub(super) fn without(mut self, key: &str) -> Self {
        self.metadata.retain(|(found, _)| found != key);
        self
    }

    pub(super) fn integer(self, key: &str, value: u32) -> Self {
        self.raw(key, 4, &value.to_le_bytes())
    }

    pub(super) fn float(self, key: &str, value: f32) -> Self {
        self.raw(key, 6, &value.to_le_bytes())
    }

    pub(super) fn flag(self, key: &str, value: bool) -> Self {
        self.raw(key, 7, &[value.into()])
    }

    pub(super) fn string(self, key: &str, value: &str) -> Self {
        self.raw(key, 8, &string(value))
    }

    fn array(self, key: &str, item: u32, count: usize, items: Vec<u8>) -> Self {
        self.raw(key, 9, &[&item.to_le_bytes()[..], &(count as u64).to_le_bytes(), &items].concat())
    }

    pub(super) fn flags(self, key: &str, values: &[bool]) -> Self {
        self.array(key, 7, values.len(), values.iter().map(|value| u8::from(*value)).collect())
    }

    pub(super) fn strings<S: AsRef<str>>(self, key: &str, values: &[S]) -> Self {
        self.array(key, 8, values.len(), values.iter().flat_map(|text| string(text.as_ref())).collect())
    }

    pub(super) fn integers(self, key: &str, values: &[i32]) -> Self {
        self.array(key, 5, values.len(), values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    pub(super) fn floats(self, key: &str, values: &[f32]) -> Self {
        self.array(key, 6, values.len(), values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    /// The bytes of a tensor.
    pub(super) fn values(&mut self, name: &str) -> &mut [u8] {
        &mut self.tensors.iter_mut().find(|row| row.name == name).expect("a tensor").values
    }

    /// A tensor of any type and shape.
    pub(super) fn tensor_raw(mut self, name: &str, dimensions: &[u64], code: u32, values: Vec<u8>) -> Self {
        self.tensors.push(Row { name: name.to_owned(), dimensions: dimensions.to_vec(), code, values });
        self
    }

    /// A tensor whose bytes count up, with small scales.
    pub(super) fn tensor(self, name: &str, dimensions: &[u64], kind: Kind) -> Self {
        let blocks = dimensions.iter().product::<u64>() as usize / kind.elems() as usize;
        let bytes = blocks * kind.bytes(kind.elems()).expect("a block") as usize;
        let values = (0..bytes).map(|i| (i % 61) as u8).collect();
        self.tensor_raw(name, dimensions, code(kind), values)
    }

    /// A tensor of `f32` values.
    pub(super) fn tensor_f32(self, name: &str, dimensions: &[u64], values: &[f32]) -> Self {
        let values = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.tensor_raw(name, dimensions, code(Kind::F32), values)
    }

    /// The file up to the table of tensors.
    fn head(&self) -> Vec<u8> {
        let counts = [self.tensors.len() as u64, self.metadata.len() as u64].map(u64::to_le_bytes).concat();
        let mut head = [b"GGUF", &self.version.to_le_bytes()[..], &counts].concat();
        for (key, value) in &self.metadata {
            head.extend(string(key));
            head.extend(value);
        }
        head
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let (mut file, mut data) = (self.head(), Vec::new());
        for Row { name, dimensions, code, values } in &self.tensors {
            file.extend(string(name));
            file.extend((dimensions.len() as u32).to_le_bytes());
            file.extend(dimensions.iter().flat_map(|dimension| dimension.to_le_bytes()));
            file.extend(code.to_le_bytes());
            file.extend((data.len() as u64).to_le_bytes());
            data.extend(values);
            data.resize(data.len().next_multiple_of(Self::ALIGNMENT_BYTES), 0);
        }
        file.resize(file.len().next_multiple_of(Self::ALIGNMENT_BYTES), 0);
        file.extend(data);
        file
    }
}
