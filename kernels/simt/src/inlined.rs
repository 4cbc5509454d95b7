//! Calls that the compiler inlined, by a program's DWARF.

use std::collections::{BTreeMap, BTreeSet};

use gimli::AttributeValue::{Addr, FileIndex};
use gimli::{Dwarf, EndianSlice, LittleEndian, SectionId, UnitRef};
use object::{Object, ObjectSection};

use crate::branches::{CodePlace, LinePart, source_file};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// A call, as the compiler describes it: file, line, column, and where the inlined function begins.
type Call = (String, u32, u64, u64);

/// Returns the places of inlined calls by the addresses where the functions begin: several where one calls the next at
/// once. Calls of a line are counted by their columns, which differ between builds where macros do.
///
/// # Errors
/// [`gimli::Error`] where the DWARF cannot be read.
pub(crate) fn inlined(shared: &object::File) -> gimli::Result<BTreeMap<u64, Vec<CodePlace>>> {
    let section = |id: SectionId| {
        let data = shared.section_by_name(id.name()).and_then(|section| section.data().ok());
        gimli::Result::Ok(EndianSlice::new(data.unwrap_or_default(), LittleEndian))
    };
    let dwarf = Dwarf::load(section)?;
    let mut calls = Vec::new();
    let mut units = dwarf.units();
    while let Some(header) = units.next()? {
        let unit = dwarf.unit(header)?;
        add_calls(unit.unit_ref(&dwarf), &mut calls)?;
    }
    let mut columns: BTreeMap<(&str, u32), BTreeSet<u64>> = BTreeMap::new();
    for (file, line, column, _) in &calls {
        columns.entry((file, *line)).or_default().insert(*column);
    }
    let mut places: BTreeMap<u64, Vec<CodePlace>> = BTreeMap::new();
    for (file, line, column, address) in &calls {
        let number = columns[&(file.as_str(), *line)].range(..column).count();
        places.entry(*address).or_default().push((file.clone(), *line, LinePart::Call(number as u32)));
    }
    Ok(places)
}

/// Adds the calls of a unit, but for those of the machine.
fn add_calls(unit: UnitRef<'_, Slice<'_>>, calls: &mut Vec<Call>) -> gimli::Result<()> {
    let mut entries = unit.entries();
    while let Some(entry) = entries.next_dfs()? {
        if entry.tag() != gimli::DW_TAG_inlined_subroutine {
            continue;
        }
        let number = |name| entry.attr_value(name).and_then(|value| value.udata_value());
        let (Some(Addr(address)), Some(FileIndex(file)), Some(line), Some(column)) = (
            entry.attr_value(gimli::DW_AT_entry_pc),
            entry.attr_value(gimli::DW_AT_call_file),
            number(gimli::DW_AT_call_line),
            number(gimli::DW_AT_call_column),
        ) else {
            continue;
        };
        if let Some(file) = source_file(&path(unit, file)?) {
            calls.push((file.to_owned(), line as u32, column, address));
        }
    }
    Ok(())
}

/// Returns the path of a file of a unit, or nothing if it has none.
fn path(unit: UnitRef<'_, Slice<'_>>, file: u64) -> gimli::Result<String> {
    let Some(header) = unit.line_program.as_ref().map(|program| program.header()) else { return Ok(String::new()) };
    let Some(file) = header.file(file) else { return Ok(String::new()) };
    let text = |value| Ok::<_, gimli::Error>(unit.attr_string(value)?.to_string_lossy().into_owned());
    let mut path = text(file.path_name())?;
    if let Some(directory) = file.directory(header).filter(|_| !path.starts_with('/')) {
        path = format!("{}/{path}", text(directory)?);
    }
    if let Some(directory) = unit.comp_dir.filter(|_| !path.starts_with('/')) {
        path = format!("{}/{path}", directory.to_string_lossy());
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use precast_core::{Arch, Geometry, Source, source};

    use crate::branches::Branches;
    use crate::compile::Simt;
    use crate::launch::Operand;

    /// The parts of lines 4 and 5 that call functions compute nothing of their own.
    const TEXT: &str = "\
#define __trap() __builtin_trap()
__device__ __forceinline__ float most(float x) { if (x > 9.0f) x = 9.0f; return x; }
__device__ __forceinline__ float step(float x, const float* y) {
    x = x < KEY_LIMIT ? __ldg(y) : most(x);
    return x < KEY_LIMIT ? most(x) : most(most(x));
}
__device__ __forceinline__ void fail() {
    __trap();
}
extern \"C\" __global__ void ENTRY(float* y) {
    const float x = y[0];
    if (x > 99.0f) fail();
    y[0] = step(x, y);
    y[0] = most(y[0] + 90.0f);
}
";

    #[test]
    fn an_inlined_call_that_no_sample_makes_is_named_in_any_build() {
        let source = Source { path: "one.cu", text: TEXT, headers: &[], common: &source::COMMON };
        let dir = tempfile::tempdir().unwrap();
        let mut simt = Simt::new(&dir.path().join("0"), &dir.path().join("objects")).unwrap();
        simt.branches = Some(Branches::default());
        // Text behind the limit is in other columns in the second build.
        let programs = ["0.0f", "0.0f + 1.0f * 0.0f"]
            .map(|limit| simt.compile(&source, &[("KEY_LIMIT".to_owned(), limit.to_owned())], Arch::Sm89).unwrap());
        let unexecuted = |program: usize, start: f32| {
            let mut y = [start];
            let params = (y.as_mut_ptr() as u64).to_le_bytes();
            let operand = Operand { name: "y", bytes: bytemuck::cast_slice_mut(&mut y), writable: true, written: true };
            programs[program].launch(&Geometry::linear(1, 1), &params, &mut [operand], 0).unwrap();
            let branches = simt.branches.as_ref().unwrap();
            branches.add(&source, programs[program].executed().unwrap());
            branches.unexecuted()
        };
        let part = |line: usize| {
            format!("{}:{line}: {} (a part of it)", source.file(), TEXT.lines().nth(line - 1).unwrap().trim())
        };
        assert_eq!(unexecuted(0, 1.0), [part(4), part(5)]);
        assert_eq!(unexecuted(1, 1.0), [part(4), part(5)]);
        assert_eq!(unexecuted(1, -1.0), Vec::<String>::new());
    }
}
