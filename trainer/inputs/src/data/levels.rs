//! Lengths of lists before they are read: a few bytes of a parquet file may stand for one that fills the memory.

use ::parquet::basic::Encoding;
use ::parquet::column::page::Page;
use ::parquet::errors::Result;

/// Returns the first row, counted from 1, that has more than so many values in a column whose repetition levels end at
/// `level`.
///
/// # Errors
/// An error of a page that does not read.
pub(super) fn longer(pages: impl Iterator<Item = Result<Page>>, level: i16, most: u64) -> Result<Option<u64>> {
    let width = u64::from(i16::BITS - level.leading_zeros());
    let (mut row, mut values, mut found) = (0, 0, None);
    for page in pages {
        let page = page?;
        let levels = match &page {
            Page::DataPage { buf, rep_level_encoding: Encoding::RLE, .. } => {
                let split = buf.split_first_chunk();
                split.and_then(|(bytes, behind)| behind.get(..u32::from_le_bytes(*bytes) as usize))
            }
            Page::DataPageV2 { buf, rep_levels_byte_len, .. } => buf.get(..*rep_levels_byte_len as usize),
            _ => None,
        };
        // Who reads the page refuses levels that do not decode.
        let _ = runs(levels.unwrap_or_default(), width, page.num_values().into(), &mut |is_row, count| {
            (row, values) = if is_row { (row + count, 1) } else { (row, values + count) };
            if values > most {
                found.get_or_insert(row);
            }
        });
        if found.is_some() {
            break;
        }
    }
    Ok(found)
}

/// Decodes the runs of so many levels: whether each begins a row, and how many there are. None where they end too soon.
fn runs(mut bytes: &[u8], width: u64, mut left: u64, each: &mut dyn FnMut(bool, u64)) -> Option<()> {
    while left > 0 {
        let (mut header, mut shift) = (0, 0);
        loop {
            let (first, behind) = bytes.split_first()?;
            bytes = behind;
            header |= u64::from(first & 127).checked_shl(shift)?;
            shift += 7;
            if *first < 128 {
                break;
            }
        }
        let (is_packed, count) = (header & 1 == 1, header >> 1);
        let (levels, size) =
            if is_packed { (count.checked_mul(8)?, count.checked_mul(width)?) } else { (count, width.div_ceil(8)) };
        let (level, behind) = bytes.split_at_checked(usize::try_from(size).ok()?)?;
        bytes = behind;
        let levels = levels.min(left);
        left -= levels;
        match is_packed {
            true => (0..levels).for_each(|at| {
                let mut bits = (at * width..(at + 1) * width).map(|bit| level[bit as usize / 8] >> (bit % 8) & 1);
                each(bits.all(|bit| bit == 0), 1);
            }),
            false => each(level.iter().all(|byte| *byte == 0), levels),
        }
        if levels == 0 {
            return None;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_is_too_long_is_found_by_its_levels() {
        // A row of 1, one of 4 that begins packed and goes on in the next page, one of 2.
        let first = [2, 0, 3, 0b1111_1110];
        let page = |levels: &[u8], count| Page::DataPageV2 {
            buf: levels.to_vec().into(),
            num_values: count,
            encoding: Encoding::PLAIN,
            num_nulls: 0,
            num_rows: 0,
            def_levels_byte_len: 0,
            rep_levels_byte_len: levels.len() as u32,
            is_compressed: false,
            statistics: None,
        };
        let pages = || [page(&first, 4), page(&[2, 1, 2, 0, 2, 1], 3)].map(Ok).into_iter();
        assert_eq!(longer(pages(), 1, 4).unwrap(), None);
        assert_eq!(longer(pages(), 1, 3).unwrap(), Some(2));
        assert_eq!(longer(pages(), 1, 0).unwrap(), Some(1));
        // A run of 2^62 levels, and one of a page that has 9; levels without an end.
        let long = [0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F, 1];
        assert_eq!(longer([Ok(page(&long, 9))].into_iter(), 1, 8).unwrap(), Some(0));
        assert_eq!(longer([Ok(page(&long[..9], 9)), Ok(page(&[255; 12], 9))].into_iter(), 1, 8).unwrap(), None);
    }
}
