//! The file's metadata: typed values by key.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;

use crate::checkpoint::cursor::Cursor;
use crate::checkpoint::fault::Fault;

/// Keys of a file: real ones have fewer than a hundred.
const MOST_KEYS: u64 = 1 << 16;
/// Texts of an array: the largest vocabularies have a quarter of a million tokens and half a million merges.
const MOST_TEXTS: u64 = 1 << 22;

/// GGUF's codes of the types of values that are read and written.
pub(super) mod code {
    pub const U32: u32 = 4;
    pub const I32: u32 = 5;
    pub const F32: u32 = 6;
    pub const BOOL: u32 = 7;
    pub const STRING: u32 = 8;
    pub const ARRAY: u32 = 9;
}

use code::{ARRAY, STRING};

/// A value. Arrays stay in the file: a vocabulary is read only when it is asked for.
enum Value {
    Integer(i128),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(String),
    Array { item: u32, count: u64, bytes: Range<usize> },
}

impl Value {
    fn read(cursor: &mut Cursor<'_>, key: &str, offset: u64) -> Result<Self, Fault> {
        let what = &format_args!("the value of metadata key {key}");
        let unknown_type = |what: &str, code: u32| {
            Fault::Wrong(format!("metadata key {key} at byte {offset} has {what} type {code}, which is not supported"))
        };
        Ok(match cursor.number::<u32>(what)? {
            0 => Self::Integer(cursor.number::<u8>(what)?.into()),
            1 => Self::Integer(cursor.number::<i8>(what)?.into()),
            2 => Self::Integer(cursor.number::<u16>(what)?.into()),
            3 => Self::Integer(cursor.number::<i16>(what)?.into()),
            code::U32 => Self::Integer(cursor.number::<u32>(what)?.into()),
            code::I32 => Self::Integer(cursor.number::<i32>(what)?.into()),
            code::F32 => Self::F32(cursor.number::<f32>(what)?),
            code::BOOL => Self::Bool(cursor.number::<u8>(what)? != 0),
            STRING => Self::String(cursor.string(what)?.to_owned()),
            ARRAY => {
                let item = cursor.number(what)?;
                let count: u64 = cursor.number(what)?;
                let start = cursor.at;
                match item_bytes(item) {
                    Some(width) => drop(cursor.take(count.saturating_mul(width), what)?),
                    None if item == STRING => {
                        at_most(&format_args!("texts of metadata key {key}"), offset, count, MOST_TEXTS)?;
                        // A string takes eight bytes at least, so that an absurd count soon meets the end.
                        for _ in 0..count {
                            let len_bytes = cursor.number(what)?;
                            cursor.take(len_bytes, what)?;
                        }
                    }
                    None => return Err(unknown_type("array item", item)),
                }
                Self::Array { item, count, bytes: start..cursor.at }
            }
            10 => Self::Integer(cursor.number::<u64>(what)?.into()),
            11 => Self::Integer(cursor.number::<i64>(what)?.into()),
            12 => Self::F64(cursor.number::<f64>(what)?),
            code => return Err(unknown_type("value", code)),
        })
    }

    fn describe(&self) -> &'static str {
        match self {
            Self::Integer(_) => "an integer",
            Self::F32(_) | Self::F64(_) => "a floating-point number",
            Self::Bool(_) => "a boolean",
            Self::String(_) => "a string",
            Self::Array { item: STRING, .. } => "an array of strings",
            Self::Array { .. } => "an array of numbers",
        }
    }
}

/// Bytes of an array item of fixed size.
fn item_bytes(code: u32) -> Option<u64> {
    match code {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

/// The metadata of a file: values by their keys, and where in the file each begins.
pub(super) struct Metadata(BTreeMap<String, (u64, Value)>);

impl Metadata {
    /// Reads `count` entries.
    pub(super) fn read(cursor: &mut Cursor<'_>, count: u64) -> Result<Self, Fault> {
        at_most(&"metadata keys", cursor.offset(), count, MOST_KEYS)?;
        let mut entries = BTreeMap::new();
        for index in 0..count {
            let offset = cursor.offset();
            let key = cursor.string(&format_args!("metadata key {} of {count}", index + 1))?;
            let value = Value::read(cursor, key, offset)?;
            if entries.insert(key.to_owned(), (offset, value)).is_some() {
                return Err(twice("metadata key", key, offset));
            }
        }
        Ok(Self(entries))
    }

    fn get<T>(
        &self,
        key: &str,
        expected: &'static str,
        convert: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, Fault> {
        let Some((offset, value)) = self.0.get(key) else {
            return Ok(None);
        };
        let wrong = || {
            let found = value.describe();
            Fault::Wrong(format!("metadata key {key} at byte {offset} is {found}, expected {expected}"))
        };
        convert(value).map(Some).ok_or_else(wrong)
    }

    /// The keys that start so.
    pub(super) fn keys_after<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.keys().map(String::as_str).filter(move |key| key.starts_with(prefix))
    }

    /// A string, if the key is there.
    pub(super) fn string(&self, key: &str) -> Result<Option<String>, Fault> {
        self.get(key, "a string", |value| match value {
            Value::String(text) => Some(text.clone()),
            _ => None,
        })
    }

    /// An integer of any width that is not negative, if the key is there.
    pub(super) fn integer(&self, key: &str) -> Result<Option<u64>, Fault> {
        self.get(key, "an integer from 0 to 2^64 - 1", |value| match value {
            Value::Integer(number) => u64::try_from(*number).ok(),
            _ => None,
        })
    }

    /// A finite number, if the key is there. One of 32 bits becomes its shortest decimal: 1e-6 stays 1e-6, where
    /// widening the bits gives 9.999999974752427e-07.
    pub(super) fn decimal(&self, key: &str) -> Result<Option<f64>, Fault> {
        self.get(key, "a finite floating-point number", |value| match value {
            Value::F32(number) => number.to_string().parse().ok().filter(|number: &f64| number.is_finite()),
            Value::F64(number) => Some(*number).filter(|number| number.is_finite()),
            _ => None,
        })
    }

    /// A boolean, if the key is there.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, Fault> {
        self.get(key, "a boolean", |value| match value {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        })
    }

    /// An array of strings, if the key is there. `file` is the whole file.
    pub(super) fn strings<'a>(&self, file: &'a [u8], key: &str) -> Result<Option<Vec<&'a str>>, Fault> {
        let array = self.get(key, "an array of strings", |value| match value {
            Value::Array { item: STRING, count, bytes } => Some((*count, bytes.start)),
            _ => None,
        })?;
        let Some((count, start)) = array else {
            return Ok(None);
        };
        let mut cursor = Cursor::new(file, start);
        let texts = (0..count).map(|index| cursor.string(&format_args!("{key}[{index}]")));
        Ok(Some(texts.collect::<Result<_, _>>()?))
    }

    /// An array of booleans, if the key is there. `file` is the whole file.
    pub(super) fn flags(&self, file: &[u8], key: &str) -> Result<Option<Vec<bool>>, Fault> {
        self.get(key, "an array of booleans", |value| match value {
            Value::Array { item: code::BOOL, bytes, .. } => {
                Some(file[bytes.clone()].iter().map(|flag| *flag != 0).collect())
            }
            _ => None,
        })
    }

    /// An array of numbers of 32 bits (item type `item`), if the key is there. `file` is the whole file.
    fn words(&self, file: &[u8], key: &str, item: u32, expected: &'static str) -> Result<Option<Vec<[u8; 4]>>, Fault> {
        self.get(key, expected, |value| match value {
            Value::Array { item: found, bytes, .. } if *found == item => {
                Some(file[bytes.clone()].as_chunks().0.to_vec())
            }
            _ => None,
        })
    }

    /// An array of `i32`, if the key is there. `file` is the whole file.
    pub(super) fn integers(&self, file: &[u8], key: &str) -> Result<Option<Vec<i32>>, Fault> {
        let words = self.words(file, key, code::I32, "an array of 32-bit integers")?;
        Ok(words.map(|words| words.into_iter().map(i32::from_le_bytes).collect()))
    }

    /// An array of `f32`, if the key is there. `file` is the whole file.
    pub(super) fn floats(&self, file: &[u8], key: &str) -> Result<Option<Vec<f32>>, Fault> {
        let words = self.words(file, key, code::F32, "an array of 32-bit floating-point numbers")?;
        Ok(words.map(|words| words.into_iter().map(f32::from_le_bytes).collect()))
    }

    /// The error for a value that cannot be followed: what was `found`, what is `expected`.
    pub(super) fn refuse(&self, key: &str, found: impl Display, expected: impl Display) -> Fault {
        Fault::Wrong(format!("metadata key {key} at byte {} is {found}: {expected}", self.offset(key)))
    }

    /// The error for an item of an array that cannot be used: what is wrong with it.
    pub(super) fn refuse_item(&self, key: &str, index: usize, reason: impl Display) -> Fault {
        Fault::Wrong(format!("metadata key {key} at byte {}: item {index} {reason}", self.offset(key)))
    }

    /// Returns the offset of a key's entry in the file.
    fn offset(&self, key: &str) -> u64 {
        self.0.get(key).map_or(0, |(offset, _)| *offset)
    }
}

/// Refuses a count that no real file has.
pub(super) fn at_most(what: &dyn Display, offset: u64, found: u64, most: u64) -> Result<(), Fault> {
    let many = || Fault::damaged(format_args!("{found} {what} at byte {offset}, more than {most}"));
    if found <= most { Ok(()) } else { Err(many()) }
}

/// The error for a key or tensor whose name is there before.
pub(super) fn twice(what: &str, name: &str, offset: u64) -> Fault {
    Fault::damaged(format_args!("{what} {name} at byte {offset} occurs twice"))
}

/// The value of a key that has to be there.
pub(super) fn required<T>(key: &str, value: Option<T>) -> Result<T, Fault> {
    let remedy = "convert the model again with a current llama.cpp (convert_hf_to_gguf.py)";
    value.ok_or_else(|| Fault::Wrong(format!("no metadata key {key}: {remedy}")))
}
