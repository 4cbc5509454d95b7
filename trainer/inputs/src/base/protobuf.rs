//! Protocol buffers, written and read field by field.

/// A message.
#[derive(Default)]
pub struct Message(Vec<u8>);

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

/// A field's value as it is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field<'a> {
    Integer(u64),
    Float(f32),
    Double(f64),
    Bytes(&'a [u8]),
}

/// The fields of a message, by number, in their order; none where it is damaged.
pub fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Field<'_>)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = read_varint(&mut bytes)?;
        let field = match key & 7 {
            0 => Field::Integer(read_varint(&mut bytes)?),
            1 => Field::Double(f64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?)),
            2 => {
                let length = usize::try_from(read_varint(&mut bytes)?).ok()?;
                Field::Bytes(bytes.split_off(..length)?)
            }
            5 => Field::Float(f32::from_le_bytes(*bytes.split_off(..4)?.first_chunk()?)),
            _ => return None,
        };
        fields.push((key >> 3, field));
    }
    Some(fields)
}

fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let end = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)? + 1;
    let value = bytes.split_off(..end)?;
    Some(value.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7F)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(integer: u64, float: f32, double: f64, bytes: Vec<u8>) {
            prop_assume!(!float.is_nan() && !double.is_nan());
            let message = Message::default().integer(1, integer).float(2, float).double(30, double).bytes(4,
                &bytes).done();
            let expected =
                [(1, Field::Integer(integer)), (2, Field::Float(float)), (30, Field::Double(double)), (4,
                    Field::Bytes(&bytes))];
            prop_assert_eq!(fields(&message), Some(expected.to_vec()));
            // One byte less is no message, unless the last field is empty already.
            if !bytes.is_empty() {
                prop_assert_eq!(fields(&message[..message.len() - 1]), None);
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = fields(&bytes);
        }
    }
}
