//! Metadata as it is written.

use super::metadata::{Metadata, code};
use crate::checkpoint::cursor::Cursor;
use crate::checkpoint::fault::Fault;

/// Keys with their values, in the order in which they are added.
#[derive(Default)]
pub(in crate::checkpoint) struct KeyValues {
    pub(super) count: u64,
    pub(super) bytes: Vec<u8>,
}

impl KeyValues {
    fn push(&mut self, key: &str, code: u32, value: &[u8]) {
        self.count += 1;
        self.bytes.extend([&string(key), &code.to_le_bytes()[..], value].concat());
    }

    fn array(&mut self, key: &str, item: u32, count: usize, items: Vec<u8>) {
        self.push(key, code::ARRAY, &[&item.to_le_bytes()[..], &(count as u64).to_le_bytes(), &items].concat());
    }

    pub(super) fn integer(&mut self, key: &str, value: u32) {
        self.push(key, code::U32, &value.to_le_bytes());
    }

    pub(super) fn signed(&mut self, key: &str, value: i32) {
        self.push(key, code::I32, &value.to_le_bytes());
    }

    pub(super) fn float(&mut self, key: &str, value: f32) {
        self.push(key, code::F32, &value.to_le_bytes());
    }

    pub(super) fn flag(&mut self, key: &str, value: bool) {
        self.push(key, code::BOOL, &[value.into()]);
    }

    pub(super) fn string(&mut self, key: &str, value: &str) {
        self.push(key, code::STRING, &string(value));
    }

    pub(super) fn strings<S: AsRef<str>>(&mut self, key: &str, values: &[S]) {
        let items = values.iter().flat_map(|text| string(text.as_ref())).collect();
        self.array(key, code::STRING, values.len(), items);
    }

    pub(super) fn integers(&mut self, key: &str, values: impl ExactSizeIterator<Item = i32>) {
        self.array(key, code::I32, values.len(), values.flat_map(i32::to_le_bytes).collect());
    }

    pub(super) fn floats(&mut self, key: &str, values: impl ExactSizeIterator<Item = f32>) {
        self.array(key, code::F32, values.len(), values.flat_map(f32::to_le_bytes).collect());
    }

    pub(super) fn flags(&mut self, key: &str, values: impl ExactSizeIterator<Item = bool>) {
        self.array(key, code::BOOL, values.len(), values.map(u8::from).collect());
    }

    /// What a reader of the file finds in it.
    ///
    /// # Errors
    /// [`Fault`] for a key that is there twice, and for lists that are longer than any.
    pub(super) fn read_back(&self) -> Result<Metadata, Fault> {
        Metadata::read(&mut Cursor::new(&self.bytes, 0), self.count)
    }
}

/// A length, then the bytes.
pub(super) fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}
