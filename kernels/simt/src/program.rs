//! A kernel in memory: where its shared variables and constants are, and how it is launched.

use std::collections::BTreeMap;
use std::error::Error;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use libloading::Library;
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use precast_core::Geometry;

use crate::branches::{self, CodeBlock, CodePlace};
use crate::cost::Count;
use crate::error::{CompileError, STATIC_SHARED_BYTES, io};
use crate::inlined::inlined;
use crate::launch::{Launch, Operand, RawCount, RawReport, Region, Run, receive};
use crate::report::{Report, lines};

/// Prefix of the machine's functions whose callers are ordered by clocks.
const BY_CLOCKS: &[u8] = b"simt_hopper_";

/// A kernel in memory.
pub struct Program {
    run: Run,
    /// Launch whose fields all launches have in common.
    launch: Launch,
    /// Static shared variables.
    shared: Vec<Region>,
    shared_names: Vec<String>,
    /// The shared object, and where it is loaded.
    file: PathBuf,
    base: u64,
    /// Costs of launches, if they are counted. Held by each: static shared memory is the program's own.
    counts: Mutex<Option<Vec<RawCount>>>,
    /// Addresses of its blocks of code, if it was compiled to say which are executed.
    blocks: Vec<u64>,
    /// Inlined calls, by the addresses where they begin.
    inlined: BTreeMap<u64, Vec<CodePlace>>,
    library: ManuallyDrop<Library>,
}

/// Length of the call that begins a block.
const CALL_BYTES: u64 = if cfg!(target_arch = "x86_64") { 5 } else { 4 };

/// Says of an address in memory whether the call that returns to it has been made.
type Executed = unsafe extern "C" fn(u64) -> bool;

impl Program {
    /// Loads a shared object. Its object file is read for where blocks begin.
    pub(crate) fn load(what: &str, file: PathBuf, traced: Option<&Path>) -> Result<Self, CompileError> {
        let failed = |why: String| CompileError::Load { what: what.to_owned(), why };
        let bytes = std::fs::read(&file).map_err(io(&file))?;
        let parsed = object::File::parse(&*bytes).map_err(|error| failed(error.to_string()))?;
        let enter = parsed.dynamic_symbols().find(|symbol| symbol.name() == Ok("simt_enter"));
        let enter = enter.ok_or_else(|| failed("it has no simt_enter".to_owned()))?.address();

        // The loader's text lies below that of libloading.
        let unopened =
            |error: libloading::Error| failed(error.source().map_or_else(|| error.to_string(), ToString::to_string));
        // SAFETY: the library's initializers call `__tsan_init`, which does nothing.
        let library = unsafe { Library::new(&file) }.map_err(&unopened)?;
        let symbol = |name: &str| {
            // SAFETY: only the address is taken.
            let symbol = unsafe { library.get::<*const ()>(name) };
            symbol.map(|symbol| *symbol as u64).map_err(&unopened)
        };
        let entry = symbol("simt_enter")?;
        // SAFETY: intrinsics.cc defines them with these signatures.
        let run = *unsafe { library.get::<Run>("simt_launch") }.map_err(&unopened)?;
        let base = entry - enter;

        let bss = parsed.section_by_name(".bss").map(|section| section.index());
        let mut shared: Vec<(String, Region)> = parsed
            .symbols()
            .filter(|symbol| symbol.kind() == SymbolKind::Data && symbol.section_index() == bss && symbol.size() > 1)
            .map(|symbol| {
                let region = Region { base: base + symbol.address(), bytes: symbol.size(), writable: 1, written: 0 };
                (demangled(symbol.name().unwrap_or_default()), region)
            })
            .collect();
        shared.sort_by_key(|(_, region)| region.base);
        let shared_bytes = shared.iter().map(|(_, region)| region.bytes).sum();
        if shared_bytes > STATIC_SHARED_BYTES {
            return Err(CompileError::StaticShared { what: what.to_owned(), bytes: shared_bytes });
        }
        let constants =
            parsed.section_by_name(".rodata").map_or((0, 0), |section| (base + section.address(), section.size()));
        let constants = Region { base: constants.0, bytes: constants.1, writable: 0, written: 1 };
        let (shared_names, shared): (_, Vec<Region>) = shared.into_iter().unzip();
        let number = |name: &str| {
            // SAFETY: `Simt::compile` defines them so.
            let number = unsafe { library.get::<*const u32>(name) };
            // SAFETY: the same.
            number.map(|number| unsafe { **number }).map_err(&unopened)
        };
        let is_by_clocks = |symbol: object::Symbol<'_, '_>| {
            symbol.is_undefined() && symbol.name_bytes().is_ok_and(|name| name.starts_with(BY_CLOCKS))
        };
        let launch = Launch {
            entry,
            constants,
            shared_count: shared.len() as u64,
            cluster: number("simt_cluster")?,
            resident_blocks: number("simt_resident_blocks")?,
            by_clocks: parsed.dynamic_symbols().any(is_by_clocks).into(),
            ..Launch::default()
        };
        let (blocks, inlined) = match traced {
            None => Default::default(),
            Some(object) => {
                let object = std::fs::read(object).map_err(io(object))?;
                let calls = branches::calls(&object, &bytes);
                let inlined = inlined(&parsed).map_err(|error| failed(error.to_string()))?;
                (calls.ok_or_else(|| failed("its calls are not found".to_owned()))?, inlined)
            }
        };
        let (counts, library) = (Mutex::new(None), ManuallyDrop::new(library));
        Ok(Self { run, launch, shared, shared_names, file, base, counts, blocks, inlined, library })
    }

    /// Static shared memory in bytes.
    pub fn static_shared_bytes(&self) -> u64 {
        self.shared.iter().map(|region| region.bytes).sum()
    }

    /// Executes a launch whose parameter block holds the operands' addresses.
    ///
    /// # Errors
    /// A [`Report`] of the first thing that is wrong; the launch ends there.
    pub fn launch(
        &self,
        geometry: &Geometry,
        params: &[u8],
        operands: &mut [Operand<'_>],
        seed: u64,
    ) -> Result<(), Box<Report>> {
        let mut counts = self.counts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Parameter blocks are aligned to 64 bytes, as CUDA passes them.
        let mut block = precast_core::host::Buffer::filled(params.len(), 0);
        block.copy_from_slice(params);
        let region = |operand: &mut Operand<'_>| Region {
            base: operand.bytes.as_mut_ptr() as u64,
            bytes: operand.bytes.len() as u64,
            writable: operand.writable.into(),
            written: operand.written.into(),
        };
        let regions: Vec<Region> = operands.iter_mut().map(region).collect();
        let launch = Launch {
            params: block.as_ptr() as u64,
            grid: geometry.grid,
            block: geometry.block,
            dynamic_shared_bytes: geometry.shared_bytes.into(),
            seed,
            operands: regions.as_ptr() as u64,
            operand_count: regions.len() as u64,
            shared: self.shared.as_ptr() as u64,
            ..self.launch
        };
        let mut raw = RawReport::default();
        // SAFETY: `launch` has the machine's layout and what it points at outlives the call; the machine lets the
        // kernel touch the operands, which are borrowed exclusively, and its own memory alone.
        unsafe {
            let counts = counts.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
            (self.run)(&raw const launch, &raw mut raw, receive, counts);
        }
        if raw.kind == 0 {
            return Ok(());
        }
        let names = operands.iter().map(|operand| (operand.name, operand.bytes.len() as u64)).collect::<Vec<_>>();
        let sizes = self.shared_names.iter().zip(&self.shared);
        let shared = sizes.map(|(name, region)| (name.as_str(), region.bytes)).collect::<Vec<_>>();
        Err(Box::new(Report::new(&raw, &names, &shared, geometry, &self.file, self.base)))
    }

    /// Returns the costs of launches since the last call. The first call starts the count.
    pub(crate) fn counts(&self) -> Vec<Count> {
        let mut counts = self.counts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let since = counts.replace(Vec::new()).unwrap_or_default();
        since.iter().map(|count| Count::new(count, self.base)).collect()
    }

    /// Returns each block of code.
    ///
    /// # Errors
    /// [`CompileError::Io`] where addr2line does not answer.
    pub(crate) fn executed(&self) -> Result<Vec<CodeBlock>, CompileError> {
        if self.blocks.is_empty() {
            return Ok(Vec::new());
        }
        // SAFETY: coverage.cc defines it with this signature.
        let executed = unsafe { self.library.get::<Executed>("simt_executed") }.expect("the machine has it");
        let places = branches::places(&self.blocks, &self.file)?.into_iter().zip(&self.blocks);
        let block = |(written, address): (_, &u64)| CodeBlock {
            written,
            calls: self.inlined.get(&(address - CALL_BYTES)).cloned().unwrap_or_default(),
            // SAFETY: it reads a table.
            executed: unsafe { executed(self.base + address) },
        };
        Ok(places.map(block).collect())
    }

    /// The source line of an instruction.
    pub(crate) fn line(&self, count: &Count) -> String {
        lines(count.address, &self.file)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Another program at its place would have its blocks executed.
        if self.blocks.is_empty() {
            // SAFETY: nothing of it is used any more.
            unsafe { ManuallyDrop::drop(&mut self.library) };
        }
    }
}

/// A variable's own name, without the function and namespaces around it, nor the number of one that its function has
/// twice; the symbol itself where it is not mangled (Itanium C++ ABI, `<source-name>`).
fn demangled(symbol: &str) -> String {
    let Some(mangled) = symbol.strip_prefix("_Z") else { return symbol.to_owned() };
    let nested = mangled.strip_suffix('E').unwrap_or(mangled);
    let numbered = mangled.trim_end_matches(|last: char| last.is_ascii_digit()).trim_end_matches('_');
    [mangled, nested, numbered].into_iter().find_map(last_name).unwrap_or(symbol).to_owned()
}

/// The longest end of a mangled name that its own length stands before: behind the `E` of the function around it, if
/// there is one.
fn last_name(mangled: &str) -> Option<&str> {
    let names = || {
        mangled.char_indices().skip(1).filter_map(|(start, first)| {
            let (before, name) = mangled.split_at(start);
            let before = before.strip_suffix(&name.len().to_string())?;
            (first.is_ascii_alphabetic() || first == '_').then_some((before, name))
        })
    };
    let local = names().find(|(before, _)| before.ends_with('E'));
    local.or_else(|| names().next()).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_variable_is_called_by_its_own_name() {
        // `static` in a function template, in an anonymous namespace, and with a clone's suffix.
        for (symbol, name) in [
            ("_ZZ4loadILi64EEvPKfE4tile", "tile"),
            ("_ZN12_GLOBAL__N_13sumE", "sum"),
            ("_ZZN4simt6kernelEvE6shared", "shared"),
            ("_ZZ4loadILi9EEvvE7storage", "storage"),
            ("_ZZ4loadILi4Li9E7storage", "storage"),
            ("_ZZ4loadvE3x1y", "x1y"),
            ("_ZZ4loadvE4TILE", "TILE"),
            ("_ZZ4loadvE4tile_0", "tile"),
            ("_ZZ4loadvE6tile_0", "tile_0"),
            ("tile", "tile"),
        ] {
            assert_eq!(demangled(symbol), name);
        }
    }
}
