//! Values of parquet files.

use ::parquet::record::Field;
use minijinja::Value;
use minijinja::value::ValueKind;

use super::json::Json;
use super::rows::{self, MASK_HOLDS, Part};

/// A value of a column.
pub(super) struct Cell<'c> {
    pub column: String,
    pub field: Field,
    /// The texts of it that are JSON.
    pub json: &'c Json,
}

impl Cell<'_> {
    fn wrong(&self, found: &Value, expected: &str) -> String {
        let what = match found.kind() {
            ValueKind::None => "null",
            ValueKind::String => "text",
            ValueKind::Map => "a struct",
            ValueKind::Seq => "a list",
            ValueKind::Bool => "a boolean",
            _ if found.is_integer() => "a number",
            _ => "a floating point number",
        };
        rows::wrong(&self.column, format_args!("it is {what}"), expected)
    }

    /// As a template sees it; `depth` is that of the structs in it.
    fn value(&self, depth: u32, nulls: &mut bool) -> Result<Value, String> {
        value(&self.field, self.json, depth, nulls).map_err(|why| format!("{}: {why}", self.column))
    }

    pub fn ids(&self) -> Result<Vec<i64>, String> {
        const EXPECTED: &str = "a list of integers";
        let Field::ListInternal(list) = &self.field else {
            return Err(self.wrong(&self.value(0, &mut false)?, EXPECTED));
        };
        let id = |one: &Field| {
            let one = plain(one).map_err(|why| format!("{}: {why}", self.column))?;
            // One that is too large is no token either way.
            let id = one.is_integer().then(|| i64::try_from(one.clone()).unwrap_or(i64::MAX));
            id.ok_or_else(|| self.wrong(&one, EXPECTED))
        };
        list.elements().iter().map(id).collect()
    }

    /// Ids for each token, or null.
    pub fn id_lists(&self) -> Result<Vec<Option<Vec<i64>>>, String> {
        self.lists("a list that has for each token a list of ids, or null", |one| {
            one.is_integer().then(|| i64::try_from(one.clone()).unwrap_or(i64::MAX))
        })
    }

    /// Numbers for each token, or null.
    pub fn number_lists(&self) -> Result<Vec<Option<Vec<f64>>>, String> {
        self.lists("a list that has for each token a list of numbers, or null", |one| f64::try_from(one.clone()).ok())
    }

    /// Lists in a list, each of which may be null.
    fn lists<T>(&self, expected: &str, read: impl Fn(&Value) -> Option<T>) -> Result<Vec<Option<Vec<T>>>, String> {
        let wrong = |field: &Field| match value(field, &Json::None, 0, &mut false) {
            Ok(found) => self.wrong(&found, expected),
            Err(why) => format!("{}: {why}", self.column),
        };
        let one = |field: &Field| plain(field).ok().and_then(|one| read(&one)).ok_or_else(|| wrong(field));
        let list = |field: &Field| match field {
            Field::Null => Ok(None),
            Field::ListInternal(list) => list.elements().iter().map(one).collect::<Result<_, _>>().map(Some),
            other => Err(wrong(other)),
        };
        match &self.field {
            Field::ListInternal(all) => all.elements().iter().map(list).collect(),
            other => Err(wrong(other)),
        }
    }

    /// The values of a mask, if there is one.
    pub fn mask(&self) -> Result<Option<Vec<bool>>, String> {
        let list = match &self.field {
            Field::Null => return Ok(None),
            Field::ListInternal(list) => list,
            _ => return Err(self.wrong(&self.value(0, &mut false)?, MASK_HOLDS)),
        };
        let bit = |one: &Field| match (one, plain(one)?.as_i64()) {
            (Field::Bool(counts), _) => Ok(*counts),
            (_, Some(bit @ 0..=1)) => Ok(bit == 1),
            _ => Err(rows::wrong(&self.column, format_args!("it has {one}"), MASK_HOLDS)),
        };
        list.elements().iter().map(bit).collect::<Result<_, _>>().map(Some)
    }

    /// Text, or a list.
    /// Returns it, unless it is null.
    pub fn present(self) -> Option<Self> {
        (self.field != Field::Null).then_some(self)
    }

    pub fn part(&self, expected: &str, nulls: &mut bool) -> Result<Part, String> {
        if let (Field::Str(text), Json::None) = (&self.field, self.json) {
            return Ok(Part::Text(text.clone()));
        }
        let value = self.value(0, nulls)?;
        match value.kind() {
            ValueKind::String => Ok(Part::Text(value.to_string())),
            ValueKind::Seq => Ok(Part::Messages(value)),
            _ => Err(self.wrong(&value, expected)),
        }
    }

    pub fn text(&self) -> Result<String, String> {
        const EXPECTED: &str = "a string";
        match self.part(EXPECTED, &mut false)? {
            Part::Text(text) => Ok(text),
            Part::Messages(list) => Err(self.wrong(&list, EXPECTED)),
        }
    }

    pub fn list(&self, nulls: &mut bool) -> Result<Value, String> {
        const EXPECTED: &str = "a list of messages";
        match self.part(EXPECTED, nulls)? {
            Part::Messages(list) => Ok(list),
            Part::Text(text) => Err(self.wrong(&text.into(), EXPECTED)),
        }
    }

    pub fn tools(&self, nulls: &mut bool) -> Result<Option<Value>, String> {
        self.value(1, nulls).map(|value| Some(value).filter(|value| !value.is_none()))
    }
}

/// Anything, as a template sees it. Sets `nulls` where a struct inside of another one has a field that is null.
fn value(field: &Field, json: &Json, depth: u32, nulls: &mut bool) -> Result<Value, String> {
    Ok(match field {
        Field::Null => Value::from(()),
        Field::Bool(value) => Value::from(*value),
        Field::Byte(value) => Value::from(*value),
        Field::Short(value) => Value::from(*value),
        Field::Int(value) => Value::from(*value),
        Field::Long(value) => Value::from(*value),
        Field::UByte(value) => Value::from(*value),
        Field::UShort(value) => Value::from(*value),
        Field::UInt(value) => Value::from(*value),
        Field::ULong(value) => Value::from(*value),
        Field::Float16(value) => Value::from(value.to_f32()),
        Field::Float(value) => Value::from(*value),
        Field::Double(value) => Value::from(*value),
        Field::Str(text) if *json == Json::Text => {
            serde_json::from_str(text).map_err(|error| format!("the file says that it is JSON: {error}"))?
        }
        Field::Str(text) => Value::from(text.as_str()),
        Field::Bytes(bytes) => {
            let text = std::str::from_utf8(bytes.data());
            Value::from(text.map_err(|_| "bytes that are not UTF-8 text: write text")?)
        }
        Field::Group(row) => {
            // Arrow fills in a null where others of the column have a field: nothing tells it from one that was meant.
            *nulls |= depth > 0 && row.get_column_iter().any(|(_, field)| *field == Field::Null);
            let fields = row.get_column_iter().filter(|(_, field)| **field != Field::Null);
            let fields = fields.map(|(name, field)| {
                let value = value(field, json.field(name), depth + 1, nulls).map_err(|why| format!("{name}: {why}"))?;
                Ok((name.as_str(), value))
            });
            Value::from_pairs(fields.collect::<Result<Vec<_>, String>>()?)
        }
        Field::ListInternal(list) => {
            let values = list.elements().iter().map(|one| value(one, json, depth, nulls));
            Value::from(values.collect::<Result<Vec<_>, _>>()?)
        }
        Field::MapInternal(map) => {
            let pairs =
                map.entries().iter().map(|(name, field)| Ok((plain(name)?, value(field, json, depth + 1, nulls)?)));
            Value::from_pairs(pairs.collect::<Result<Vec<_>, String>>()?)
        }
        _ if depth == 0 => return Err("a date, a time or a decimal: write text".to_owned()),
        other => Value::from(other.to_string()),
    })
}

/// A value that is not nested.
fn plain(field: &Field) -> Result<Value, String> {
    value(field, &Json::None, 0, &mut false)
}

#[cfg(test)]
mod tests {
    use ::parquet::record::Row;

    use super::*;

    #[test]
    fn bytes_are_text_or_refused_wherever_they_stand() {
        let bytes = |bytes: &[u8]| Field::Bytes(bytes.to_vec().into());
        let message = |content: Field| Field::Group(Row::new(vec![("content".to_owned(), content)]));
        let cell = |field: Field| Cell { column: "messages".to_owned(), field, json: &Json::None };
        let value = |content: Field| cell(message(content)).value(0, &mut false);
        assert_eq!(value(bytes("é".as_bytes())), value(Field::Str("é".to_owned())));
        assert_eq!(value(bytes(b"\xFF")).unwrap_err(), "messages: content: bytes that are not UTF-8 text: write text");
        assert_eq!(cell(bytes("é".as_bytes())).text().as_deref(), Ok("é"));
        assert_eq!(cell(bytes(b"\xFF")).text().unwrap_err(), "messages: bytes that are not UTF-8 text: write text");
        // A template seldom reads the time that a turn has: it is no reason to refuse the turn.
        assert_eq!(cell(Field::Date(3)).text().unwrap_err(), "messages: a date, a time or a decimal: write text");
        assert_eq!(value(Field::Date(3)).unwrap().to_string(), "{'content': '1970-01-04'}");
        assert_eq!(value(Field::Float16(half::f16::from_f32(1.5))).unwrap().to_string(), "{'content': 1.5}");
    }
}
