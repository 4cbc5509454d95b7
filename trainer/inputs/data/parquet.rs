//! Rows of parquet files.

use std::fmt::Display;
use std::fs::File;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;

use ::parquet::errors::ParquetError;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::reader::{ReaderIter, TreeBuilder};
use ::parquet::record::{Field, Row};
use ::parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type};
use minijinja::Value;
use precast_system::bug;

use super::pages;
use super::rows::{self, Columns, Content, Ids, Kind, MASK, MASK_HOLDS, Part, long, no_column, no_field};
use super::{DataError, MOST_DOCUMENT_BYTES, dialects};

/// Records that are decoded at once.
const RECORDS: usize = 256;

/// The rows of a file, of the columns that are read. The library panics on some files: what its panic says is then the error.
pub(super) struct Table {
    reader: SerializedFileReader<File>,
    /// A second handle on it, by which headers of pages are read.
    file: File,
    columns: SchemaDescPtr,
    /// Row groups behind this one.
    groups: Range<usize>,
    rows: Option<ReaderIter>,
    number: u64,
}

fn open(path: &Path, file: File) -> Result<SerializedFileReader<File>, DataError> {
    let opened = bug::guard(AssertUnwindSafe(|| SerializedFileReader::new(file))).map_err(unreadable(path))?;
    opened.map_err(unreadable(path))
}

/// The error for a file that does not read.
fn unreadable<E: Display>(path: &Path) -> impl FnOnce(E) -> DataError {
    let remedy = "write it again, compressed by snappy, zstd, gzip or not at all";
    move |reason| DataError::of(path, format_args!("{reason}: not a parquet file that can be read; {remedy}"))
}

/// Which columns to read of a file, by its schema.
pub(super) fn columns(path: &Path, file: File, field: Option<&str>) -> Result<Columns, DataError> {
    let reader = open(path, file)?;
    let schema = reader.metadata().file_metadata().schema();
    let names: Vec<String> = schema.get_fields().iter().map(|column| column.name().to_owned()).collect();
    let column = |name: &str| schema.get_fields().iter().find(|column| column.name() == name);
    let Some(field) = field else {
        let kind = Kind::of(|name| column(name).is_some());
        let kind = kind.ok_or_else(|| DataError::of(path, no_column(&names)))?;
        return Ok(Columns::new(kind, None, names));
    };
    let kind = match column(field) {
        None => return Err(DataError::of(path, no_field(field, &names))),
        Some(column) if column.is_primitive() => Kind::Text,
        Some(column) if leaf(column).is_primitive() => Kind::Ids,
        Some(column) if has_turns(column) => Kind::Conversations,
        Some(_) => Kind::Messages,
    };
    Ok(Columns::new(kind, Some(field), names))
}

/// The type of a list's values.
fn leaf(list: &Type) -> &Type {
    match list {
        Type::GroupType { fields, .. } if fields.len() == 1 => leaf(&fields[0]),
        _ => list,
    }
}

/// True if a list is of turns of a conversation.
fn has_turns(list: &Type) -> bool {
    let leaf = leaf(list);
    let has = |name: &str| leaf.get_fields().iter().any(|field| field.name() == name);
    leaf.is_group() && has("from") && has("value")
}

impl Table {
    pub fn new(path: &Path, file: File, columns: &Columns) -> Result<Self, DataError> {
        let again = file.try_clone();
        let reader = open(path, file)?;
        let schema = reader.metadata().file_metadata().schema_descr().root_schema_ptr();
        let read = schema.get_fields().iter().filter(|column| columns.reads(column.name()));
        let fields = read.map(Arc::clone).collect();
        let projection = Type::group_type_builder(schema.name()).with_fields(fields).build();
        let projection = projection.map_err(unreadable(path))?;
        let file = again.map_err(|error| unreadable(path)(ParquetError::from(error)))?;
        let columns = Arc::new(SchemaDescriptor::new(Arc::new(projection)));
        let groups = 0..reader.num_row_groups();
        Ok(Self { reader, file, columns, groups, rows: None, number: 0 })
    }

    /// The next row and its number from 1; none at the end of the file.
    pub fn next(&mut self, path: &Path) -> Result<Option<(u64, Row)>, DataError> {
        let row = bug::guard(AssertUnwindSafe(|| self.row())).map_err(unreadable(path))?;
        self.number += 1;
        let number = self.number;
        let row = row.map_err(|error| unreadable(path)(format_args!("{error} in row {number}")))?;
        Ok(row.map(|row| (number, row)))
    }

    fn row(&mut self) -> Result<Option<Row>, ParquetError> {
        loop {
            if let Some(row) = self.rows.as_mut().and_then(Iterator::next) {
                return row.map(Some);
            }
            let Some(group) = self.groups.next() else { return Ok(None) };
            let group = self.reader.get_row_group(group)?;
            let fields = self.columns.root_schema().get_fields();
            for column in group.metadata().columns() {
                if fields.iter().any(|field| column.column_path().parts().first().is_some_and(|of| of == field.name()))
                {
                    pages::check(&self.file, column, MOST_DOCUMENT_BYTES)?;
                }
            }
            let rows = TreeBuilder::new().with_batch_size(RECORDS).as_iter(Arc::clone(&self.columns), &*group)?;
            self.rows = Some(rows);
        }
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
fn check(row: &Row, most: u64) -> Result<(), String> {
    if bytes(row) as u64 > most { Err(long("a row", most)) } else { Ok(()) }
}

/// A row of a file.
pub(super) fn row(row: Row, columns: &Columns) -> Result<Content, String> {
    check(&row, MOST_DOCUMENT_BYTES)?;
    let mut found = row.into_columns();
    let mut take = |name: &str| {
        let place = found.iter().position(|(column, _)| column == name);
        place.map_or(Field::Null, |place| found.swap_remove(place).1)
    };
    let main = take(columns.main());
    let name = columns.main();
    Ok(match columns.kind {
        Kind::Labeled | Kind::Ids => {
            let labels = (columns.kind == Kind::Labeled).then(|| ids("labels", take("labels"))).transpose()?;
            let mask = if columns.is_masked() { mask(take(MASK))? } else { None };
            Content::Ids(Ids { ids: ids(name, main)?, labels, mask })
        }
        Kind::Text => Content::Text(text(name, main, "a string")?),
        Kind::Messages => Content::Messages { messages: list(name, main)?, tools: tools(take("tools")) },
        Kind::Conversations => {
            let messages = dialects::messages(name, &list(name, main)?)?;
            Content::Messages { messages, tools: tools(take("tools")) }
        }
        Kind::Instruction => {
            let input = match take("input") {
                Field::Null => String::new(),
                input => text("input", input, "a string")?,
            };
            let output = text("output", take("output"), "a string")?;
            dialects::instruction(&text(name, main, "a string")?, &input, output)
        }
        Kind::Completion => {
            let completion = take("completion");
            let tools = tools(take("tools"));
            Content::Completion { prompt: part("prompt", main)?, completion: part("completion", completion)?, tools }
        }
        Kind::Prompt => Content::Prompt { prompt: part("prompt", main)?, tools: tools(take("tools")) },
    })
}

fn wrong(column: &str, found: &Field, expected: &str) -> String {
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
    rows::wrong(column, format_args!("it is {what}"), expected)
}

fn ids(column: &str, field: Field) -> Result<Vec<i64>, String> {
    const EXPECTED: &str = "a list of integers";
    let Field::ListInternal(list) = &field else { return Err(wrong(column, &field, EXPECTED)) };
    let id = |one: &Field| integer(one).ok_or_else(|| wrong(column, one, EXPECTED));
    list.elements().iter().map(id).collect()
}

/// An integer of any width; one that is too large is no token either way.
fn integer(field: &Field) -> Option<i64> {
    Some(value(field)).filter(Value::is_integer).map(|value| i64::try_from(value).unwrap_or(i64::MAX))
}

/// The values of a mask, if there is one.
fn mask(field: Field) -> Result<Option<Vec<bool>>, String> {
    let list = match &field {
        Field::Null => return Ok(None),
        Field::ListInternal(list) => list,
        other => return Err(wrong(MASK, other, MASK_HOLDS)),
    };
    let bit = |one: &Field| match (one, integer(one)) {
        (Field::Bool(counts), _) => Ok(*counts),
        (_, Some(bit @ 0..=1)) => Ok(bit == 1),
        _ => Err(rows::wrong(MASK, format_args!("it has {one}"), MASK_HOLDS)),
    };
    list.elements().iter().map(bit).collect::<Result<_, _>>().map(Some)
}

fn text(column: &str, field: Field, expected: &str) -> Result<String, String> {
    match field {
        Field::Str(text) => Ok(text),
        Field::Bytes(ref bytes) => {
            let text = std::str::from_utf8(bytes.data()).map(ToOwned::to_owned);
            text.map_err(|_| wrong(column, &field, expected))
        }
        other => Err(wrong(column, &other, expected)),
    }
}

fn list(column: &str, field: Field) -> Result<Value, String> {
    match field {
        Field::ListInternal(_) => Ok(value(&field)),
        other => Err(wrong(column, &other, "a list of messages")),
    }
}

fn part(column: &str, field: Field) -> Result<Part, String> {
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
    fn an_instruction_is_read_of_columns_with_or_without_input() {
        let columns = Columns::new(Kind::Instruction, None, Vec::new());
        let read = |input: Field| {
            let fields =
                [("instruction", Field::Str("Add.".into())), ("input", input), ("output", Field::Str("4".into()))];
            row(Row::new(fields.map(|(name, field)| (name.to_owned(), field)).to_vec()), &columns)
                .map(|row| format!("{row:?}"))
        };
        let expected = |input: &str| Ok(format!("{:?}", dialects::instruction("Add.", input, "4".to_owned())));
        assert_eq!(read(Field::Str("2 and 2".into())), expected("2 and 2"));
        assert_eq!(read(Field::Null), expected(""));
        assert!(read(Field::Int(4)).unwrap_err().starts_with("input: it is a number: expected a string"));
    }

    #[test]
    fn a_column_of_turns_is_known_by_its_schema() {
        let of = |names: [&str; 2]| {
            let fields = names.map(|name| format!("OPTIONAL BINARY {name} (UTF8);")).concat();
            let list = format!(
                "OPTIONAL group c (LIST) {{ REPEATED group list {{ OPTIONAL group element {{ {fields} }} }} }}"
            );
            let schema = ::parquet::schema::parser::parse_message_type(&format!("message m {{ {list} }}")).unwrap();
            has_turns(&schema.get_fields()[0])
        };
        assert!(of(["from", "value"]) && !of(["role", "content"]));
    }

    #[test]
    fn a_row_is_as_large_as_all_that_it_holds() {
        let turn = Field::Group(Row::new(vec![("content".to_owned(), Field::Str("x".repeat(100)))]));
        let turns = Row::new(vec![("0".to_owned(), turn.clone()), ("1".to_owned(), turn)]);
        let row = Row::new(vec![("messages".to_owned(), Field::Group(turns)), ("n".to_owned(), Field::Int(7))]);
        assert_eq!(bytes(&row), 208);
        assert_eq!(check(&row, 208), Ok(()));
        assert_eq!(check(&row, 207), Err(long("a row", 207)));
    }
}
