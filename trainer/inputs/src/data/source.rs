//! Rows of a file, in order.

use std::fmt::Display;

use ::parquet::record;
use rayon::prelude::*;

use super::files::{DataFile, Form};
use super::jsonl::{self, Lines};
use super::likely::Listed;
use super::parquet::{self, Table};
use super::rows::{Columns, Content, TEACHER};
use super::{DataError, csv};

/// Rows that are read and tokenized together, and their bytes.
const GROUP_ROWS: usize = 512;
const GROUP_BYTES: usize = 1 << 20;
/// Bytes of rows with likely tokens, of which one may have a megabyte.
const LIKELY_GROUP_BYTES: usize = 16 << 20;

/// Rows of a file from the first on.
pub(super) struct Source<'f> {
    file: &'f DataFile,
    columns: &'f Columns,
    reading: Reading,
}

enum Reading {
    Lines(Lines),
    Table(Table),
}

/// A row as it was read.
#[derive(Clone)]
pub(super) struct Row<'f> {
    pub place: RowPlace<'f>,
    raw: Raw,
}

#[derive(Clone)]
enum Raw {
    Line(Vec<u8>),
    Row(record::Row),
}

#[derive(Clone, Copy)]
pub(super) struct RowPlace<'f> {
    pub file: &'f DataFile,
    pub columns: &'f Columns,
    /// Counted from 1.
    pub number: u64,
}

impl RowPlace<'_> {
    /// Names it as errors do.
    pub fn name(self) -> String {
        name(self.file, self.number)
    }

    /// The error for a row that cannot be used.
    pub fn fault(self, reason: impl Display) -> DataError {
        at_row(self.file, self.number, reason)
    }
}

impl Row<'_> {
    /// Returns its content; and true if that is without fields that are null in a table.
    pub fn content(self) -> Result<(Content, bool), DataError> {
        let columns = self.place.columns;
        let content = match self.raw {
            Raw::Line(line) => {
                let read = if columns.header.is_empty() { jsonl::row } else { csv::row };
                jsonl::text(&line).and_then(|line| read(line, columns)).map(|content| (content, false))
            }
            Raw::Row(row) => parquet::row(row, columns),
        };
        content.map_err(|reason| self.place.fault(reason))
    }

    /// Returns its likely tokens, where they are read, too.
    pub fn likely(&self) -> Result<Option<Listed>, DataError> {
        let Some(form) = self.place.columns.likely else { return Ok(None) };
        let listed = match &self.raw {
            Raw::Line(line) => jsonl::text(line).and_then(|line| jsonl::likely(line, form)),
            Raw::Row(row) => parquet::likely(row, form),
        };
        listed.map(Some).map_err(|reason| self.place.fault(reason))
    }

    /// Returns the number of its teacher, one of those that have these names.
    pub fn teacher(&self, names: &[String]) -> Result<u32, DataError> {
        let columns = self.place.columns;
        let name = match &self.raw {
            Raw::Line(line) => jsonl::text(line).and_then(|line| match columns.header.is_empty() {
                true => jsonl::teacher(line),
                false => csv::object(line, columns).and_then(|line| jsonl::teacher(&line)),
            }),
            Raw::Row(row) => parquet::teacher(row),
        };
        let name = name.map_err(|reason| self.place.fault(reason))?;
        let number = names.iter().position(|other| *other == name);
        let unknown =
            || self.place.fault(format_args!("{TEACHER}: no --teacher is called {name}: {}", names.join(", ")));
        number.map(|number| number as u32).ok_or_else(unknown)
    }

    fn bytes(&self) -> usize {
        match &self.raw {
            Raw::Line(line) => line.len(),
            Raw::Row(row) => parquet::bytes(row),
        }
    }
}

impl<'f> Source<'f> {
    pub fn open(file: &'f DataFile, columns: &'f Columns) -> Result<Self, DataError> {
        let reading = if file.form == Form::Table {
            Reading::Table(Table::new(&file.path, file.open()?, columns)?)
        } else {
            let mut lines = Lines::of(file)?;
            if file.form == Form::Csv {
                lines.next().map_err(DataError::io(&file.path))?;
            }
            Reading::Lines(lines)
        };
        Ok(Self { file, columns, reading })
    }

    /// Reads the next rows on all cores; none at the end of the file. The row that is wrong is the last.
    pub fn group<T: Send>(
        &mut self,
        read: impl Fn(Row<'f>) -> Result<T, DataError> + Sync,
    ) -> Vec<Result<T, DataError>> {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        let most_bytes = if self.columns.likely.is_some() { LIKELY_GROUP_BYTES } else { GROUP_BYTES };
        while rows.len() < GROUP_ROWS
            && bytes < most_bytes
            && let Some(row) = self.next()
        {
            bytes += row.as_ref().map_or(most_bytes, Row::bytes);
            rows.push(row);
        }
        rows.into_par_iter().map(|row| row.and_then(&read)).collect()
    }
}

impl<'f> Iterator for Source<'f> {
    type Item = Result<Row<'f>, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        let Self { file, columns, reading } = self;
        let read = match reading {
            Reading::Lines(lines) => {
                let line = lines.next().map_err(DataError::io(&file.path)).transpose()?;
                line.map(|(number, line)| (number, Raw::Line(line)))
            }
            Reading::Table(table) => table.next(&file.path).transpose()?.map(|(number, row)| (number, Raw::Row(row))),
        };
        Some(read.map(|(number, raw)| Row { place: RowPlace { file, columns, number }, raw }))
    }
}

/// The error for a row, counted from 1, that cannot be used.
pub(super) fn at_row(file: &DataFile, number: u64, reason: impl Display) -> DataError {
    DataError::of_row(format_args!("{}: {reason}", name(file, number)))
}

fn name(file: &DataFile, number: u64) -> String {
    let place = if file.form == Form::Table { ": row " } else { ":" };
    format!("{}{place}{number}", file.path.display())
}
