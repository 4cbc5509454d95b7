//! Pages of parquet files before they are decompressed. A page's header says how large it becomes and the library takes
//! its word: here it is bounded, so that no small file fills the memory.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

use ::parquet::errors::{ParquetError, Result};
use ::parquet::file::metadata::ColumnChunkMetaData;

/// A page that is larger than the bound may still become so many times what it takes in the file: text becomes ten
/// times.
const RATIO: u64 = 64;
/// The type of an `i32` in thrift's compact protocol.
const I32: u8 = 5;
/// As deep as the library follows.
const MOST_DEPTH: u8 = 64;

/// Refuses a column of a row group with a page that becomes more than so many bytes.
///
/// # Errors
/// An error of the first such page, or of a header that does not read.
pub(super) fn check(file: &File, column: &ColumnChunkMetaData, most: u64) -> Result<()> {
    let (mut at, bytes) = column.byte_range();
    let end = at.saturating_add(bytes).min(file.metadata()?.len());
    let mut file = BufReader::new(file);
    file.seek(SeekFrom::Start(at))?;
    while at < end {
        let Sizes { header, page, decompressed } = Sizes::read(&mut file)?;
        let most = most.max(page.saturating_mul(RATIO));
        if decompressed > most {
            let found = format!("a page of {page} bytes becomes {decompressed}, and at most {most} are read of it");
            return Err(ParquetError::General(found));
        }
        file.seek_relative(page as i64)?;
        at = at.saturating_add(header + page);
    }
    Ok(())
}

/// Bytes by a page's header: of itself, of the page in the file, and of the page decompressed.
struct Sizes {
    header: u64,
    page: u64,
    decompressed: u64,
}

impl Sizes {
    /// Reads the `PageHeader` of parquet.thrift: field 2 is the size decompressed, field 3 that in the file.
    fn read(file: &mut impl Read) -> Result<Self> {
        let mut thrift = Thrift { file, bytes: 0 };
        let (mut id, mut sizes) = (0_i64, [None; 2]);
        loop {
            let first = thrift.byte()?;
            let kind = first & 15;
            if kind == 0 {
                break;
            }
            id = if first >> 4 == 0 { zigzag(thrift.varint()?) } else { id + i64::from(first >> 4) };
            match id {
                2 | 3 if kind != I32 => return Err(damaged()),
                2 | 3 => sizes[id as usize - 2] = u64::try_from(zigzag(thrift.varint()?)).ok(),
                _ => thrift.pass(kind, MOST_DEPTH)?,
            }
        }
        let [Some(decompressed), Some(page)] = sizes else { return Err(damaged()) };
        Ok(Self { header: thrift.bytes, page, decompressed })
    }
}

fn damaged() -> ParquetError {
    ParquetError::General("Invalid page header".to_owned())
}

/// A signed number as the protocol writes it.
fn zigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Thrift's compact protocol, as far as it takes to pass over what is not asked for.
struct Thrift<'f, R> {
    file: &'f mut R,
    /// Read so far.
    bytes: u64,
}

impl<R: Read> Thrift<'_, R> {
    fn byte(&mut self) -> Result<u8> {
        let mut byte = [0];
        self.file.read_exact(&mut byte)?;
        self.bytes += 1;
        Ok(byte[0])
    }

    fn varint(&mut self) -> Result<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Ok(number);
            }
        }
        Err(damaged())
    }

    fn skip(&mut self, bytes: u64) -> Result<()> {
        let read = io::copy(&mut self.file.by_ref().take(bytes), &mut io::sink())?;
        self.bytes += read;
        if read == bytes { Ok(()) } else { Err(damaged()) }
    }

    /// Passes over a value of this type.
    fn pass(&mut self, kind: u8, depth: u8) -> Result<()> {
        let deeper = depth.checked_sub(1).ok_or_else(damaged)?;
        match kind {
            // A field's type is its value.
            1 | 2 => Ok(()),
            3 => self.skip(1),
            4..=6 => self.varint().map(drop),
            7 => self.skip(8),
            8 => {
                let bytes = self.varint()?;
                self.skip(bytes)
            }
            9 | 10 => {
                let first = self.byte()?;
                let count = if first >> 4 == 15 { self.varint()? } else { u64::from(first >> 4) };
                (0..count).try_for_each(|_| match first & 15 {
                    // In a list they are bytes.
                    1 | 2 => self.skip(1),
                    kind => self.pass(kind, deeper),
                })
            }
            12 => loop {
                let first = self.byte()?;
                if first & 15 == 0 {
                    return Ok(());
                }
                if first >> 4 == 0 {
                    self.varint()?;
                }
                self.pass(first & 15, deeper)?;
            },
            // No header of a page has a map.
            _ => Err(damaged()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ::parquet::basic::{Compression, ZstdLevel};
    use ::parquet::data_type::{ByteArray, ByteArrayType};
    use ::parquet::file::properties::WriterProperties;
    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    use ::parquet::file::writer::SerializedFileWriter;
    use ::parquet::schema::parser::parse_message_type;

    use super::*;

    /// A table of these texts.
    fn table(texts: &[String], compression: Compression, dictionary: bool) -> File {
        let schema = Arc::new(parse_message_type("message m { required binary text (UTF8); }").unwrap());
        let properties = WriterProperties::builder().set_compression(compression).set_dictionary_enabled(dictionary);
        let file = tempfile::tempfile().unwrap();
        let mut writer =
            SerializedFileWriter::new(file.try_clone().unwrap(), schema, Arc::new(properties.build())).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let values: Vec<ByteArray> = texts.iter().map(|text| ByteArray::from(text.as_str())).collect();
        column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        file
    }

    fn rows(file: &File, most: u64) -> Result<usize> {
        let reader = SerializedFileReader::new(file.try_clone().unwrap()).unwrap();
        let mut columns = reader.metadata().row_groups().iter().flat_map(|group| group.columns());
        columns.try_for_each(|column| check(file, column, most))?;
        Ok(reader.get_row_iter(None)?.collect::<Result<Vec<_>>>()?.len())
    }

    #[test]
    fn a_page_that_becomes_too_large_is_refused_before_it_does() {
        let [small, large] = ["a".to_owned(), "a".repeat(1 << 20)];
        let zstd = Compression::ZSTD(ZstdLevel::default());
        for (compression, dictionary) in [(zstd, true), (zstd, false), (Compression::SNAPPY, false)] {
            let file = table(&[small.clone(), large.clone()], compression, dictionary);
            // Snappy does not compress as much as is suspicious.
            let most = if compression == zstd { 1 << 20 } else { 1 << 10 };
            let refused = rows(&file, most);
            match compression == zstd {
                true => assert!(refused.unwrap_err().to_string().contains("and at most 1048576 are read of it")),
                false => assert_eq!(refused.unwrap(), 2),
            }
            assert_eq!(rows(&file, 2 << 20).unwrap(), 2);
        }
    }

    #[test]
    fn a_header_that_no_writer_writes_is_refused() {
        let read =
            |bytes: &[u8]| Sizes::read(&mut &bytes[..]).map(|sizes| (sizes.header, sizes.page, sizes.decompressed));
        // Type, 300 bytes decompressed, 20 in the file; then a struct with a list of two numbers.
        let whole = [0x15, 0, 0x15, 0xD8, 4, 0x15, 40, 0x2C, 0x19, 0x25, 2, 4, 0, 0];
        assert_eq!(read(&whole).unwrap(), (14, 20, 300));
        (0..whole.len()).for_each(|cut| assert!(read(&whole[..cut]).is_err(), "{cut}"));
        // A size that is negative, one that is missing, one of another type, and structs without an end.
        for bytes in
            [&[0x15, 0, 0x15, 1, 0x15, 40, 0][..], &[0x15, 0, 0x25, 40, 0], &[0x28, 1, 0, 0x15, 40, 0], &[0x1C; 99]]
        {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
    }
}
