//! Entries of a CUDA file, as libclang reads their declarations. What stands in functions it does not read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail, ensure};
use clang::diagnostic::{Diagnostic, Severity};
use clang::{Clang, Entity, EntityKind, EntityVisitResult, Index, Linkage, TranslationUnit, Type, TypeKind, Unsaved};
use precast_core::plain::DIGITS;
use precast_core::ptx::{self, PtxEntry, PtxParameter};

/// An entry of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its name, or a template's with arguments.
    pub name: String,
    /// `PlainKernel::symbol`.
    pub symbol: String,
    pub parameters: Vec<Value>,
}

impl Entry {
    /// Its name without arguments of a template.
    pub fn base(&self) -> &str {
        self.name.split('<').next().unwrap_or_default()
    }

    /// Its name in Rust: `scale_float_128` of `scale<float,128>`.
    pub fn rust(&self) -> String {
        match self.name.split_once('<') {
            None => self.name.clone(),
            Some((base, arguments)) => {
                let words = arguments.split(|char: char| !char.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
                words.fold(base.to_owned(), |name, word| name + "_" + word)
            }
        }
    }
}

/// A parameter, or a field of a struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub name: String,
    /// As the file spells it.
    pub c_type: String,
    pub rust_type: String,
    /// Bytes from the beginning.
    pub offset: usize,
    pub bytes: usize,
}

/// A struct that is passed by value, or is a field of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub fields: Vec<Value>,
    pub bytes: usize,
    pub align: usize,
}

/// Structs by their names.
pub(super) type Records = BTreeMap<String, Record>;

/// Beginning of the names of variables that point to instances.
const INSTANCE: &str = "precast_instance_";

/// Options under which libclang reads declarations: C++ of the device, without headers of a host.
const ARGUMENTS: &str = "-xc++ -std=c++17 -nostdinc -nostdinc++ --target=x86_64-unknown-linux-gnu -Wno-everything \
    -D__CUDACC__ -D__CUDACC_RTC__ -D__CUDA_ARCH__=900";

/// Reads the kernels of a file, in its order, then these instances of its templates, and adds the structs that they
/// take to `records`. Headers are found beside the file that includes them and in `folders`; `scratch` is for a header
/// of this program.
///
/// # Errors
/// No libclang; a declaration that does not parse, or that Rust has no type for, with file and line; no kernel; no
/// template of an instance.
pub(super) fn entries(
    file: &Path,
    folders: &[PathBuf],
    instances: &[&str],
    scratch: &Path,
    records: &mut Records,
) -> Result<Vec<Entry>> {
    let prelude = scratch.join("prelude.h");
    std::fs::write(&prelude, include_str!("prelude.h"))?;
    let folders_of = folders.iter().map(|folder| format!("-I{}", folder.display()));
    let prelude = format!("-include{}", prelude.display());
    let arguments: Vec<String> = ARGUMENTS.split(' ').map(str::to_owned).chain([prelude]).chain(folders_of).collect();
    let clang =
        Clang::new().map_err(|why| anyhow!("no libclang: {} names its folder: {why}", crate::libclang::VARIABLE))?;
    let index = Index::new(&clang, false, false);
    let mut parser = index.parser(file);
    // Instances are the last lines.
    let mut text = std::fs::read_to_string(file)?;
    for (index, instance) in instances.iter().enumerate() {
        text += &format!("\nauto* {INSTANCE}{index} = &{instance};");
    }
    let first = text.lines().count() - instances.len();
    let unsaved = [Unsaved::new(file, text)];
    let unit = parser.unsaved(&unsaved).arguments(&arguments).skip_function_bodies(true).keep_going(true).parse();
    let unit = unit.map_err(|error| anyhow!("{}: libclang cannot read it: {error}", file.display()))?;
    let own = |diagnostic: &Diagnostic<'_>| {
        let of = diagnostic.get_location().get_file_location().file.map(|file| file.get_path());
        // Headers of others declare what only their own compiler takes.
        diagnostic.get_severity() >= Severity::Error
            && of.is_none_or(|of| !folders.iter().any(|folder| of.starts_with(folder)))
    };
    if let Some(fault) = unit.get_diagnostics().iter().find(|diagnostic| own(diagnostic)) {
        let place = fault.get_location().get_file_location();
        let of = place.file.map_or_else(|| file.to_owned(), |file| file.get_path());
        let instance = (place.line as usize).checked_sub(first + 1).and_then(|index| instances.get(index));
        if let Some(instance) = instance.filter(|_| of == file) {
            bail!("{}: `{instance}` is no instance of a kernel: {}", of.display(), fault.get_text());
        }
        bail!("{}:{}: {}", of.display(), place.line, fault.get_text());
    }
    let (kernels, named) = declared(&unit);
    let mut entries: Vec<Entry> =
        kernels.into_iter().map(|kernel| entry(&kernel, None, records)).collect::<Result<_>>()?;
    for (index, instance) in instances.iter().enumerate() {
        let kernel = named.get(&format!("{INSTANCE}{index}")).filter(|kernel| is_global(kernel));
        let kernel = kernel.ok_or_else(|| anyhow!("{}: `{instance}` is no instance of a kernel", file.display()))?;
        entries.push(entry(kernel, Some(instance), records)?);
    }
    ensure!(!entries.is_empty(), "{}: no kernel: `__global__ void name(..) {{ .. }}` is one", file.display());
    if entries.iter().any(|entry| entry.symbol != entry.base()) {
        // C++ mangles names as the compiler will be given them.
        let renamed = entries.iter().map(|entry| format!("-D{0}={0}__{DIGITS}", entry.base()));
        let arguments: Vec<String> = arguments.into_iter().chain(renamed).collect();
        let unit = parser.arguments(&arguments).parse()?;
        let (kernels, named) = declared(&unit);
        let instances = (0..instances.len()).filter_map(|index| named.get(&format!("{INSTANCE}{index}")));
        let mut symbols = kernels.iter().chain(instances).filter_map(Entity::get_mangled_name);
        for entry in &mut entries {
            let symbol = symbols.next().filter(|symbol| symbol.contains(DIGITS));
            let Entry { name, symbol: own, .. } = &*entry;
            let missing = || anyhow!("{}: `{name}` is not found in its symbol {own}", file.display());
            entry.symbol = symbol.ok_or_else(missing)?;
        }
    }
    Ok(entries)
}

/// Returns the kernels of a file, in its order, and functions that variables point to, by the variables' names.
fn declared<'tu>(unit: &'tu TranslationUnit<'tu>) -> (Vec<Entity<'tu>>, BTreeMap<String, Entity<'tu>>) {
    let (mut kernels, mut named) = (Vec::new(), BTreeMap::new());
    unit.get_entity().visit_children(|entity, _| match entity.get_kind() {
        EntityKind::FunctionDecl => {
            let is_new = kernels.iter().all(|other: &Entity<'_>| other.get_mangled_name() != entity.get_mangled_name());
            if is_new && is_global(&entity) {
                kernels.push(entity);
            }
            EntityVisitResult::Continue
        }
        EntityKind::VarDecl => {
            named.extend(entity.get_name().zip(referred(&entity)));
            EntityVisitResult::Continue
        }
        EntityKind::LinkageSpec | EntityKind::UnexposedDecl | EntityKind::Namespace => EntityVisitResult::Recurse,
        _ => EntityVisitResult::Continue,
    });
    (kernels, named)
}

/// True for a kernel.
fn is_global(function: &Entity<'_>) -> bool {
    function.get_children().iter().any(|child| child.get_display_name().as_deref() == Some("__global__"))
}

/// Returns the function that the value of a variable refers to.
fn referred<'tu>(variable: &Entity<'tu>) -> Option<Entity<'tu>> {
    let mut found = None;
    variable.visit_children(|child, _| {
        found = child.get_reference().filter(|of| of.get_kind() == EntityKind::FunctionDecl);
        if found.is_some() { EntityVisitResult::Break } else { EntityVisitResult::Recurse }
    });
    found
}

/// Reads the entries of a PTX file, which say how large parameters are, and not what they point to.
///
/// # Errors
/// An entry that is not read, with file and line; none.
pub(super) fn ptx_entries(file: &Path, text: &str) -> Result<Vec<Entry>> {
    let entries = ptx::entries(text).map_err(|line| anyhow!("{}:{line}: no entry that is read", file.display()))?;
    ensure!(!entries.is_empty(), "{}: no kernel: `.visible .entry name(..) {{ .. }}` is one", file.display());
    Ok(entries.into_iter().map(ptx_entry).collect())
}

fn ptx_entry(PtxEntry { name, parameters }: PtxEntry) -> Entry {
    let mut end = 0usize;
    let value = |PtxParameter { name, kind, count, align, bytes }: PtxParameter| {
        let element = kind.replace('b', "u").replace('s', "i");
        let array = count.map(|count| format!("[{element}; {count}]"));
        let offset = end.next_multiple_of(align as usize);
        end = offset + bytes as usize;
        let c_type = format!(".{kind}{}", count.map_or(String::new(), |count| format!("[{count}]")));
        Value { name, c_type, rust_type: array.unwrap_or(element), offset, bytes: bytes as usize }
    };
    Entry { symbol: name.clone(), name, parameters: parameters.into_iter().map(value).collect() }
}

/// File and line of a declaration.
fn place(entity: &Entity<'_>) -> String {
    let place = entity.get_location().map(|location| location.get_expansion_location());
    let line = place.map_or(0, |place| place.line);
    let file = place.and_then(|place| place.file).map(|file| file.get_path().display().to_string());
    format!("{}:{line}", file.unwrap_or_default())
}

fn entry(kernel: &Entity<'_>, instance: Option<&str>, records: &mut Records) -> Result<Entry> {
    let at = place(kernel);
    let name = kernel.get_name().unwrap_or_default();
    ensure!(
        kernel.get_linkage() == Some(Linkage::External),
        "{at}: `{name}` is static, or in a namespace without a name: machine code does not name it for others"
    );
    let symbol = kernel.get_mangled_name().ok_or_else(|| anyhow!("{at}: `{name}` has no name in machine code"))?;
    let (mut parameters, mut end) = (Vec::new(), 0usize);
    for (number, parameter) in kernel.get_arguments().unwrap_or_default().iter().enumerate() {
        let name = parameter.get_name().unwrap_or_else(|| format!("unnamed_{number}"));
        let kind = parameter.get_type().ok_or_else(|| anyhow!("{at}: `{name}` has no type"))?;
        let mut value = value(name, kind, 0, &at, records)?;
        value.offset = end.next_multiple_of(kind.get_alignof().map_err(|error| anyhow!("{at}: {error}"))?);
        end = value.offset + value.bytes;
        parameters.push(value);
    }
    let name = match instance.and_then(|instance| instance.split_once('<')) {
        None => name,
        Some((_, arguments)) => name + "<" + &arguments.replace(", ", ",").replace(' ', "_"),
    };
    Ok(Entry { name, symbol, parameters })
}

fn value(name: String, kind: Type<'_>, offset: usize, at: &str, records: &mut Records) -> Result<Value> {
    let c_type = kind.get_display_name();
    let bytes = kind.get_sizeof().map_err(|error| anyhow!("{at}: `{name}`, {c_type}: {error}"))?;
    let rust_type = rust(kind, at, records)?;
    Ok(Value { name, c_type, rust_type, offset, bytes })
}

/// Returns the Rust type of as many bytes.
fn rust(kind: Type<'_>, at: &str, records: &mut Records) -> Result<String> {
    let (canonical, shown) = (kind.get_canonical_type(), kind.get_display_name());
    let bytes = canonical.get_sizeof().unwrap_or_default();
    Ok(match canonical.get_kind() {
        TypeKind::Pointer => "address".to_owned(),
        TypeKind::Bool => "bool".to_owned(),
        TypeKind::Float => "f32".to_owned(),
        TypeKind::Double => "f64".to_owned(),
        _ if canonical.is_unsigned_integer() => format!("u{}", 8 * bytes),
        _ if canonical.is_signed_integer() => format!("i{}", 8 * bytes),
        TypeKind::Enum => format!("u{}", 8 * bytes),
        TypeKind::ConstantArray => {
            let (element, count) = (canonical.get_element_type(), canonical.get_size());
            let (Some(element), Some(count)) = (element, count) else {
                bail!("{at}: `{shown}` is an array of no size")
            };
            format!("[{}; {count}]", rust(element, at, records)?)
        }
        TypeKind::Record => record(canonical, at, records)?,
        _ => bail!("{at}: `{shown}` has no Rust type: numbers, pointers, arrays and structs of them have"),
    })
}

/// Adds a struct to the list, and returns its name.
fn record(kind: Type<'_>, at: &str, records: &mut Records) -> Result<String> {
    let shown = kind.get_display_name();
    let word = |char: char| if char.is_ascii_alphanumeric() { char } else { '_' };
    let name: String = shown.trim_start_matches("const ").chars().map(word).collect();
    let refuse = |why: &str| anyhow!("{at}: `{shown}` cannot be passed from Rust: {why}");
    let declared = kind.get_declaration().ok_or_else(|| refuse("it is not declared"))?;
    if !matches!(declared.get_kind(), EntityKind::StructDecl | EntityKind::ClassDecl) {
        return Err(refuse("it is no struct"));
    }
    let is_plain = |child: &Entity<'_>| child.get_kind() != EntityKind::BaseSpecifier && !child.is_virtual_method();
    if !declared.get_children().iter().all(is_plain) {
        return Err(refuse("it has a base or a virtual function"));
    }
    let (Ok(bytes), Ok(align)) = (kind.get_sizeof(), kind.get_alignof()) else {
        return Err(refuse("its size is not known"));
    };
    let mut fields = Vec::new();
    for field in kind.get_fields().unwrap_or_default() {
        let at = place(&field);
        let (own, of) = (field.get_name().unwrap_or_default(), field.get_type());
        let (Some(of), Ok(bits)) = (of, field.get_offset_of_field()) else {
            return Err(refuse("a field has no place"));
        };
        let is_aligned = of.get_alignof().is_ok_and(|align| (bits / 8).is_multiple_of(align));
        if own.is_empty() || field.is_bit_field() || !is_aligned {
            return Err(refuse("a field has no name, or bits for a place"));
        }
        fields.push(value(own, of, bits / 8, &at, records)?);
    }
    let new = Record { fields, bytes, align };
    match records.get(&name) {
        Some(other) if *other != new => Err(refuse("another file has another struct of its name")),
        _ => {
            records.insert(name.clone(), new);
            Ok(name)
        }
    }
}
