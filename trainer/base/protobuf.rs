//! Protocol buffers, written field by field.

/// A message.
#[derive(Default)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    /// Bytes, text, or another message.
    #[must_use]
    pub fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    /// An integer, an enum or a bool.
    #[must_use]
    pub fn integer(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    #[must_use]
    pub fn float(mut self, field: u64, value: f32) -> Self {
        self.varint(field << 3 | 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    #[must_use]
    pub fn double(mut self, field: u64, value: f64) -> Self {
        self.varint(field << 3 | 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn done(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}
