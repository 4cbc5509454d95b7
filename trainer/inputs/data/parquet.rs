//! Rows of parquet files.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::reader::RowIter;
use ::parquet::record::{Field, Row};
use ::parquet::schema::types::Type;
use minijinja::Value;
use precast_system::bug;

use super::pages::Bounded;
use super::rows::{Columns, Content, Ids, Kind, MASK, MASK_HOLDS, Part, RowFault};
use super::{DataError, MOST_DOCUMENT_BYTES};

/// Records that are decoded at once.
const RECORDS: usize = 256;

/// The rows of a file, of the columns that are read. The library panics on some files: what its panic says is then the error.
pub(super) struct Table {
    rows: RowIter<'static>,
    number: u64,
}

fn open(path: &Path, file: File) -> Result<SerializedFileReader<File>, DataError> {
    let wrong = |reason: String| DataError::Parquet { path: path.to_owned(), reason };
    let opened = bug::guard(std::panic::AssertUnwindSafe(|| SerializedFileReader::new(file))).map_err(wrong)?;
    opened.map_err(|error| wrong(error.to_string()))
}

/// Which columns to read of a file, by its schema.
pub(super) fn columns(path: &Path, file: File, field: Option<&str>) -> Result<Columns, DataError> {
    let reader = open(path, file)?;
    let schema = reader.metadata().file_metadata().schema();
    let names: Vec<String> = schema.get_fields().iter().map(|column| column.name().to_owned()).collect();
    let fault = |fault| DataError::Columns { path: path.to_owned(), fault };
    let has = |name: &str| names.iter().any(|one| one == name);
    let Some(field) = field else {
        let kind = Kind::of(has).ok_or_else(|| fault(RowFault::NoColumn(names.clone())))?;
        return Ok(Columns::new(kind, None, names));
    };
    if !has(field) {
        return Err(fault(RowFault::NoField { field: field.to_owned(), columns: names.clone() }));
    }
    let column = schema.get_fields().iter().find(|column| column.name() == field);
    let kind = match column {
        Some(column) if column.is_primitive() => Kind::Text,
        Some(column) if leaf_is_primitive(column) => Kind::Ids,
        _ => Kind::Messages,
    };
    Ok(Columns::new(kind, Some(field), names))
}

/// Whether a list is of values, and not of groups of them.
fn leaf_is_primitive(list: &Type) -> bool {
    let mut leaf = list;
    while !leaf.is_primitive() {
        match leaf.get_fields() {
            [one] => leaf = one,
            _ => return false,
        }
    }
    true
}

impl Table {
    pub fn new(path: &Path, file: File, columns: &Columns) -> Result<Self, DataError> {
        let again = file.try_clone();
        let reader = open(path, file)?;
        let schema = reader.metadata().file_metadata().schema_descr().root_schema_ptr();
        let read = schema.get_fields().iter().filter(|column| columns.reads(column.name()));
        let fields = read.map(Arc::clone).collect();
        let wrong = |error: parquet::errors::ParquetError| DataError::Parquet {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let projection = Type::group_type_builder(schema.name()).with_fields(fields).build().map_err(wrong)?;
        let again = again.map_err(|error| wrong(error.into()))?;
        let bounded = Bounded::new(reader, again, MOST_DOCUMENT_BYTES);
        let rows = RowIter::from_file_into(Box::new(bounded)).project(Some(projection)).map_err(wrong)?;
        Ok(Self { rows: rows.with_batch_size(RECORDS), number: 0 })
    }

    /// The next row and its number from 1; none at the end of the file.
    pub fn next(&mut self, path: &Path) -> Result<Option<(u64, Row)>, DataError> {
        let wrong = |reason: String| DataError::Parquet { path: path.to_owned(), reason };
        let rows = &mut self.rows;
        let row = bug::guard(std::panic::AssertUnwindSafe(|| rows.next())).map_err(wrong)?;
        let Some(row) = row else { return Ok(None) };
        self.number += 1;
        row.map(|row| Some((self.number, row))).map_err(|error| wrong(format!("{error} in row {}", self.number)))
    }
}

/// Bytes of a row's text and numbers.
pub(super) fn bytes(row: &Row) -> usize {
    row.get_column_iter().map(|(_, field)| field_bytes(field)).sum()
}

fn field_bytes(field: &Field) -> usize {
    match field {
        Field::Str(text) => text.len(),
        Field::Bytes(bytes) => bytes.len(),
        Field::Group(row) => bytes(row),
        Field::ListInternal(list) => list.elements().iter().map(field_bytes).sum(),
        Field::MapInternal(map) => map.entries().iter().map(|(key, value)| field_bytes(key) + field_bytes(value)).sum(),
        _ => size_of::<u64>(),
    }
}

/// Refuses a row of more bytes.
fn check(row: &Row, most: u64) -> Result<(), RowFault> {
    if bytes(row) as u64 > most { Err(RowFault::Large { most }) } else { Ok(()) }
}

/// A row of a file.
pub(super) fn row(row: Row, columns: &Columns) -> Result<Content, RowFault> {
    check(&row, MOST_DOCUMENT_BYTES)?;
    let mut found = row.into_columns();
    let mut take = |name: &str| {
        let place = found.iter().position(|(column, _)| column == name);
        place.map_or(Field::Null, |place| found.swap_remove(place).1)
    };
    let main = take(columns.main());
    let name = columns.main();
    Ok(match columns.kind {
        Kind::Labelled | Kind::Ids => {
            let labels = (columns.kind == Kind::Labelled).then(|| ids("labels", take("labels"))).transpose()?;
            let mask = if columns.is_masked() { mask(take(MASK))? } else { None };
            Content::Ids(Ids { ids: ids(name, main)?, labels, mask })
        }
        Kind::Text => Content::Text(text(name, main, "a string")?),
        Kind::Messages => Content::Messages { messages: list(name, main)?, tools: tools(take("tools")) },
        Kind::Completion => {
            let completion = take("completion");
            let tools = tools(take("tools"));
            Content::Completion { prompt: part("prompt", main)?, completion: part("completion", completion)?, tools }
        }
    })
}

fn wrong(column: &str, found: &Field, expected: &'static str) -> RowFault {
    let what = match found {
        Field::Null => "null",
        Field::Str(_) => "text",
        Field::Group(_) => "a struct",
        Field::ListInternal(_) => "a list",
        Field::MapInternal(_) => "a map",
        Field::Bytes(_) => "bytes",
        Field::Bool(_) => "a boolean",
        Field::Float16(_) | Field::Float(_) | Field::Double(_) => "a floating point number",
        _ => "a number",
    };
    RowFault::Column { column: column.to_owned(), reason: format!("it is {what}"), expected }
}

fn ids(column: &str, field: Field) -> Result<Vec<i64>, RowFault> {
    const EXPECTED: &str = "a list of integers";
    let Field::ListInternal(list) = &field else { return Err(wrong(column, &field, EXPECTED)) };
    let id = |one: &Field| match one {
        Field::Byte(id) => Ok((*id).into()),
        Field::Short(id) => Ok((*id).into()),
        Field::Int(id) => Ok((*id).into()),
        Field::Long(id) => Ok(*id),
        Field::UByte(id) => Ok((*id).into()),
        Field::UShort(id) => Ok((*id).into()),
        Field::UInt(id) => Ok((*id).into()),
        Field::ULong(id) => Ok(i64::try_from(*id).unwrap_or(i64::MAX)),
        other => Err(wrong(column, other, EXPECTED)),
    };
    list.elements().iter().map(id).collect()
}

/// The values of a mask, if there is one.
fn mask(field: Field) -> Result<Option<Vec<bool>>, RowFault> {
    let list = match &field {
        Field::Null => return Ok(None),
        Field::ListInternal(list) => list,
        other => return Err(wrong(MASK, other, MASK_HOLDS)),
    };
    let bit = |one: &Field| match one {
        Field::Bool(counts) => Ok(*counts),
        Field::Byte(0) | Field::Short(0) | Field::Int(0) | Field::Long(0) => Ok(false),
        Field::Byte(1) | Field::Short(1) | Field::Int(1) | Field::Long(1) => Ok(true),
        Field::UByte(0) | Field::UShort(0) | Field::UInt(0) | Field::ULong(0) => Ok(false),
        Field::UByte(1) | Field::UShort(1) | Field::UInt(1) | Field::ULong(1) => Ok(true),
        other => {
            let reason = format!("it has {other}");
            Err(RowFault::Column { column: MASK.to_owned(), reason, expected: MASK_HOLDS })
        }
    };
    list.elements().iter().map(bit).collect::<Result<_, _>>().map(Some)
}

fn text(column: &str, field: Field, expected: &'static str) -> Result<String, RowFault> {
    match field {
        Field::Str(text) => Ok(text),
        Field::Bytes(ref bytes) => {
            let text = std::str::from_utf8(bytes.data()).map(ToOwned::to_owned);
            text.map_err(|_| wrong(column, &field, expected))
        }
        other => Err(wrong(column, &other, expected)),
    }
}

fn list(column: &str, field: Field) -> Result<Value, RowFault> {
    match field {
        Field::ListInternal(_) => Ok(value(&field)),
        other => Err(wrong(column, &other, "a list of messages")),
    }
}

fn part(column: &str, field: Field) -> Result<Part, RowFault> {
    match field {
        Field::ListInternal(_) => Ok(Part::Messages(value(&field))),
        other => text(column, other, "a string or a list of messages").map(Part::Text),
    }
}

fn tools(field: Field) -> Option<Value> {
    (!matches!(field, Field::Null)).then(|| value(&field))
}

/// Anything, as a template sees it.
fn value(field: &Field) -> Value {
    match field {
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
        Field::Float(value) => Value::from(*value),
        Field::Double(value) => Value::from(*value),
        Field::Str(text) => Value::from(text.as_str()),
        Field::Group(row) => Value::from_pairs(row.get_column_iter().map(|(name, field)| (name.clone(), value(field)))),
        Field::ListInternal(list) => Value::from(list.elements().iter().map(value).collect::<Vec<_>>()),
        Field::MapInternal(map) => {
            Value::from_pairs(map.entries().iter().map(|(name, field)| (value(name), value(field))))
        }
        other => Value::from(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_as_large_as_all_that_it_holds() {
        let turn = Field::Group(Row::new(vec![("content".to_owned(), Field::Str("x".repeat(100)))]));
        let turns = Row::new(vec![("0".to_owned(), turn.clone()), ("1".to_owned(), turn)]);
        let row = Row::new(vec![("messages".to_owned(), Field::Group(turns)), ("n".to_owned(), Field::Int(7))]);
        assert_eq!(bytes(&row), 208);
        assert_eq!(check(&row, 208), Ok(()));
        assert_eq!(check(&row, 207), Err(RowFault::Large { most: 207 }));
    }
}
