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
use precast_system::bug;

use super::cell::Cell;
use super::files::MOST_DOCUMENT_BYTES;
use super::json::Json;
use super::likely::{LikelyForm, Listed};
use super::rows::{Columns, Content, Ids, Kind, Part, TEACHER, TEACHER_PROMPT, long, no_column, no_field};
use super::{DataError, dialects, jsonl, levels, pages};

/// Metadata in which the library datasets describes columns.
const FEATURES: &str = "huggingface";
/// Forms of a prompt or a completion, for messages.
const PART: &str = "a string or a list of messages";

/// Records that are decoded at once.
const RECORDS: usize = 256;
/// Most values in a row of a column.
const MOST_VALUES: u64 = MOST_DOCUMENT_BYTES / size_of::<u64>() as u64;

/// The rows of a file, of the columns that are read. The library panics on some files: what its panic says is then the
/// error.
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

/// Chooses the columns to read of a file, by its schema; of a column of JSON that is asked for, by its first row.
pub(super) fn columns(path: &Path, file: File, field: Option<&str>) -> Result<Columns, DataError> {
    let again = file.try_clone().map_err(DataError::io(path))?;
    let reader = open(path, file)?;
    let metadata = reader.metadata().file_metadata();
    let schema = metadata.schema();
    let named = metadata.key_value_metadata().into_iter().flatten().find(|one| one.key == FEATURES);
    let json = Json::of(schema, named.and_then(|one| one.value.as_deref()));
    let names: Vec<String> = schema.get_fields().iter().map(|column| column.name().to_owned()).collect();
    let column = |name: &str| schema.get_fields().iter().find(|column| column.name() == name);
    let made = |kind| Columns { json: json.clone(), ..Columns::new(kind, field, names.clone()) };
    let Some(field) = field else {
        let kind = Kind::of(|name| column(name).is_some());
        return kind.map(made).ok_or_else(|| DataError::of(path, no_column(&names)));
    };
    Ok(made(match column(field) {
        None => return Err(DataError::of(path, no_field(field, &names))),
        Some(_) if *json.field(field) == Json::Text => {
            let columns = made(Kind::Prompt);
            let first = Table::new(path, again, &columns)?.next(path)?;
            match first.map(|(_, first)| row(first, &columns)) {
                Some(Ok((Content::Prompt { prompt: Part::Text(_), .. }, _))) => Kind::Text,
                Some(Ok((Content::Prompt { prompt: Part::Messages(list), .. }, _))) if dialects::has_turns(&list) => {
                    Kind::Conversations
                }
                _ => Kind::Messages,
            }
        }
        Some(column) if column.is_primitive() => Kind::Text,
        Some(column) if leaf(column).is_primitive() => Kind::Ids,
        Some(column) if has_turns(column) => Kind::Conversations,
        Some(_) => Kind::Messages,
    }))
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
        let row = row.map_err(|error| match error {
            // Its text is that of the row, and `unreadable` would name another remedy.
            ParquetError::External(reason) => DataError::of_row(format_args!("{}: {reason}", path.display())),
            error => unreadable(path)(format_args!("{error} in row {number}")),
        })?;
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
            for (at, column) in group.metadata().columns().iter().enumerate() {
                let name = column.column_path().parts().first();
                if !fields.iter().any(|field| name.is_some_and(|name| name == field.name())) {
                    continue;
                }
                pages::check(&self.file, column, MOST_DOCUMENT_BYTES)?;
                let level = column.column_descr().max_rep_level();
                if level > 0 && column.num_values() as u64 > MOST_VALUES {
                    let longer = levels::longer(group.get_column_page_reader(at)?, level, MOST_VALUES)?;
                    let fault = |row| format!("row {}: {}", self.number + row, long("a row", MOST_DOCUMENT_BYTES));
                    longer.map_or(Ok(()), |row| Err(ParquetError::External(fault(row).into())))?;
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

/// A row of a file; and true if fields that are null are left out inside of what it calls or may call.
pub(super) fn row(row: Row, columns: &Columns) -> Result<(Content, bool), String> {
    check(&row, MOST_DOCUMENT_BYTES)?;
    let mut found = row.into_columns();
    let mut take = |name: &str| {
        let place = found.iter().position(|(column, _)| column == name);
        let field = place.map_or(Field::Null, |place| found.swap_remove(place).1);
        Cell { column: name.to_owned(), field, json: columns.json.field(name) }
    };
    let (main, mut nulls) = (take(columns.main()), false);
    let content = match columns.kind {
        Kind::Labeled | Kind::Ids => {
            let labels = (columns.kind == Kind::Labeled).then(|| take("labels").ids()).transpose()?;
            let masks = columns.masks(|name| take(name).mask())?;
            let teacher_prompt = take(TEACHER_PROMPT).present().map(|cell| cell.ids()).transpose()?;
            Content::Ids(Ids { ids: main.ids()?, labels, masks, teacher_prompt })
        }
        Kind::Text => Content::Text(main.text()?),
        Kind::Messages => {
            Content::Messages { messages: main.list(&mut nulls)?, tools: take("tools").tools(&mut nulls)? }
        }
        Kind::Conversations => {
            let messages = dialects::messages(columns.main(), &main.list(&mut nulls)?)?;
            Content::Messages { messages, tools: take("tools").tools(&mut nulls)? }
        }
        Kind::Instruction => {
            let input = take("input");
            let input = if input.field == Field::Null { String::new() } else { input.text()? };
            let output = take("output").text()?;
            dialects::instruction(&main.text()?, &input, output)
        }
        Kind::Completion => {
            let (completion, tools) = (take("completion"), take("tools").tools(&mut nulls)?);
            let teacher_prompt = take(TEACHER_PROMPT).present();
            let teacher_prompt = teacher_prompt.map(|cell| cell.part(PART, &mut nulls)).transpose()?;
            let [prompt, completion] = [main, completion].map(|cell| cell.part(PART, &mut nulls));
            Content::Completion { prompt: prompt?, completion: completion?, tools, teacher_prompt }
        }
        Kind::Prompt => {
            let (tools, teacher_prompt) = (take("tools").tools(&mut nulls)?, take(TEACHER_PROMPT).present());
            let teacher_prompt = teacher_prompt.map(|cell| cell.part(PART, &mut nulls)).transpose()?;
            Content::Prompt { tools, prompt: main.part(PART, &mut nulls)?, teacher_prompt }
        }
    };
    Ok((content, nulls))
}

/// The name of a row's teacher.
pub(super) fn teacher(row: &Row) -> Result<String, String> {
    let found = row.get_column_iter().find(|(column, _)| *column == TEACHER).map(|(_, field)| field.clone());
    let field = found.filter(|field| *field != Field::Null).ok_or_else(jsonl::no_teacher)?;
    Cell { column: TEACHER.to_owned(), field, json: &Json::None }.text()
}

/// The likely tokens of a row.
pub(super) fn likely(row: &Row, form: LikelyForm) -> Result<Listed, String> {
    check(row, MOST_DOCUMENT_BYTES)?;
    let cell = |name: &str| {
        let found = row.get_column_iter().find(|(column, _)| *column == name);
        let field = found.map_or(Field::Null, |(_, field)| field.clone());
        Cell { column: name.to_owned(), field, json: &Json::None }
    };
    Ok(match form {
        LikelyForm::Lists => {
            Listed::Lists { ids: cell("top_ids").id_lists()?, log_probs: cell("top_logprobs").number_lists()? }
        }
        LikelyForm::Vllm => jsonl::likely_of_text(&cell("prompt_logprobs").text()?)?,
    })
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
                .map(|(row, _)| format!("{row:?}"))
        };
        let expected = |input: &str| Ok(format!("{:?}", dialects::instruction("Add.", input, "4".to_owned())));
        assert_eq!(read(Field::Str("2 and 2".into())), expected("2 and 2"));
        assert_eq!(read(Field::Null), expected(""));
        assert!(read(Field::Int(4)).unwrap_err().starts_with("input: it is a number: expected a string"));
    }

    /// The rows of a fixture, which `tests/data/make.py` writes, and which of them lack what is null.
    fn rows(name: &str, field: Option<&str>) -> (Vec<String>, Vec<bool>) {
        let path = Path::new("../../tests/fixtures/data").join(name);
        let open = || File::open(&path).unwrap();
        if name.ends_with(".jsonl") {
            let text = std::fs::read_to_string(&path).unwrap();
            let columns = jsonl::columns(text.lines().next().unwrap(), field).unwrap();
            let read = |line| (format!("{:?}", jsonl::row(line, &columns).unwrap()), false);
            return text.lines().map(read).unzip();
        }
        let columns = columns(&path, open(), field).unwrap();
        let mut table = Table::new(&path, open(), &columns).unwrap();
        let next = || table.next(&path).unwrap().map(|(_, found)| row(found, &columns).unwrap());
        std::iter::from_fn(next).map(|(content, nulls)| (format!("{content:?}"), nulls)).unzip()
    }

    #[test]
    fn texts_that_a_file_marks_as_json_are_read_as_json() {
        let expected = rows("json.jsonl", None);
        assert!(expected.0[0].contains("default") && expected.0[1].contains("1.0"), "{expected:?}");
        assert_eq!(rows("json.parquet", None), expected);
        // A column of JSON says what it is in its first row.
        assert_eq!(rows("json.parquet", Some("messages")), expected);
    }

    #[test]
    fn nulls_that_arrow_fills_in_are_left_out() {
        let (lines, _) = rows("json.jsonl", None);
        let without = lines.iter().map(|line| line.replace(", 'default': None", ""));
        let (found, nulls) = rows("shapes.parquet", None);
        assert_eq!(found, without.collect::<Vec<_>>());
        assert_eq!(nulls, [true, true]);
        // What only messages lack nobody has written.
        assert_eq!(rows("messages.parquet", None).1, [false; 10]);
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
