//! Kernels as they are: entries of a CUDA file that knows nothing of this project.
//!
//! `precast-aot abi FILE.cu --out FILE.rs` writes each as a [`PlainKernel`] and a function that launches it. Its key
//! has no fields, `saxpy{}`, its one variant no numbers, and whoever launches says the geometry. Without operands and
//! host reference it is in a list of [`Kernels`](crate::Kernels) that is no [`Registry`](crate::Registry): the
//! simulated GPU, the self-test and the checker take registries alone.
//!
//! A header can declare it as it does any kernel, with the name and the parameters that it has. Its key then implements
//! [`Reference`](crate::Reference), and [`Build`](crate::Build) with [`plain`](crate::Build::plain): an operation of a
//! registry, whose source is the file as it is.

use crate::digest::Digest;
use crate::geometry::Geometry;
use crate::ptx;
use crate::source::Source;
use crate::source::words::{self, Piece};

/// Options of files that are taken as they are, besides [`OPTIONS`](crate::OPTIONS): their warnings are their authors'.
/// The build finds spills in the machine code.
pub const PLAIN_OPTIONS: &[&str] = &["--disable-warnings"];

/// Stands in symbols that C++ mangles for the digits of a digest, of which there are as many.
pub const DIGITS: &str = "PLACE_OF_DIGITS_";

/// A CUDA file and its entries. All are compiled at once; in machine code the name of each ends in the digest of the
/// file and its headers.
#[derive(Debug)]
pub struct PlainUnit {
    /// The file and every header that it may read, whole.
    pub source: Source,
    /// Names of its kernels, in its order.
    pub entries: &'static [&'static str],
    /// Instances of templates among them, as C++ spells them: `scale<float, 128>`.
    pub instances: &'static [&'static str],
    /// Digest of what the generated file was made of: [`interface`] of the file and its headers.
    pub interface: &'static str,
    /// The generated file, in its package.
    pub file: &'static str,
    /// Command that writes it.
    pub command: &'static str,
}

/// An entry of a CUDA file.
#[derive(Debug)]
pub struct PlainKernel {
    /// Its name in the file; of an instance of a template, with arguments and without blanks: `scale<float,128>`.
    pub name: &'static str,
    /// Its name where C++ mangles it, with [`DIGITS`] at the end of names of entries:
    /// `_Z23scale__PLACE_OF_DIGITS_IfLi128EEvPT_`. Of an `extern "C"` one, its name.
    pub symbol: &'static str,
    /// The file.
    pub unit: &'static PlainUnit,
    /// Its parameters, in order.
    pub parameters: &'static [Parameter],
}

/// A parameter of an entry, as CUDA passes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Name in the file.
    pub name: &'static str,
    /// Place in the block of parameters that a launch passes, bytes.
    pub offset: u32,
    /// Size, bytes.
    pub bytes: u32,
    /// Alignment, bytes: a GPU may place one of more than 16 elsewhere.
    pub align: u32,
}

impl PlainUnit {
    /// True for PTX, which is assembled; else the file is compiled.
    pub fn is_ptx(&self) -> bool {
        self.source.path.ends_with(".ptx")
    }
}

impl PlainKernel {
    /// Returns the size of the parameters, bytes.
    pub fn params_bytes(&self) -> usize {
        self.parameters.last().map_or(0, |last| (last.offset + last.bytes) as usize)
    }

    /// Returns the name without the arguments of a template.
    pub fn base(&self) -> &'static str {
        self.name.split('<').next().unwrap_or_default()
    }

    /// Lays out the bytes of parameters, in order, as a launch passes them.
    ///
    /// # Panics
    /// If there are more, or of other sizes: those of another kernel.
    pub fn block(&self, values: &[&[u8]]) -> Vec<u8> {
        let mut block = vec![0; self.params_bytes()];
        for (index, value) in values.iter().enumerate() {
            let Parameter { offset, bytes, .. } = self.parameters[index];
            block[offset as usize..(offset + bytes) as usize].copy_from_slice(value);
        }
        block
    }
}

/// Launches plain kernels, on a stream and of the modules that are loaded.
pub trait LaunchPlain {
    /// A launch that is not queued.
    type Error;

    /// Queues a launch with these parameters, as [`PlainKernel::block`] lays them out.
    ///
    /// # Errors
    /// Those of the driver, of this or earlier work.
    ///
    /// # Safety
    /// The parameters are the kernel's, and with this geometry it accesses nothing but memory that the GPU can access
    /// until the launch has ended, and that nothing else touches meanwhile unless both only read.
    unsafe fn launch_plain(
        self,
        kernel: &'static PlainKernel,
        geometry: Geometry,
        parameters: &[u8],
    ) -> Result<(), Self::Error>;
}

/// Declares an entry of a file and the function that launches it: `precast-aot abi` writes it.
#[macro_export]
macro_rules! plain {
    ($(#[$doc:meta])* $unit:ident $kernel:ident = $name:literal as $symbol:literal,
        $function:ident($($parameter:ident: $type:ty = $offset:literal),* $(,)?)
    ) => {
        #[doc = concat!("The kernel `", $name, "`.")]
        pub static $kernel: $crate::plain::PlainKernel = $crate::plain::PlainKernel {
            name: $name,
            symbol: $symbol,
            unit: &$unit,
            parameters: &[$($crate::plain::Parameter {
                name: stringify!($parameter),
                offset: $offset,
                bytes: size_of::<$type>() as u32,
                align: align_of::<$type>() as u32,
            }),*],
        };

        $(#[$doc])*
        ///
        /// # Errors
        /// A launch that is not queued.
        ///
        /// # Safety
        /// With these arguments and this geometry the kernel accesses nothing but memory that the GPU can access until
        /// the launch has ended, and that nothing else touches meanwhile unless both only read.
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $function<L: $crate::plain::LaunchPlain>(
            launcher: L,
            geometry: $crate::Geometry,
            $($parameter: $type),*
        ) -> Result<(), L::Error> {
            let parameters = $kernel.block(&[$($crate::bytemuck::bytes_of(&$parameter)),*]);
            // SAFETY: they are of these types; the rest is the caller's.
            unsafe { launcher.launch_plain(&$kernel, geometry, &parameters) }
        }
    };
}

/// Digests what a declaration in Rust is made of: names and texts, without what stands in functions. Kernels can be
/// edited, and the file of their declarations stays.
pub fn interface<'a>(texts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Digest {
    let declared = |name: &str, text: &str| match name.ends_with(".ptx") {
        true => format!("{:?}", ptx::entries(text)),
        false => without_bodies(text),
    };
    let parts: Vec<(&str, String)> = texts.into_iter().map(|(name, text)| (name, declared(name, text))).collect();
    let version = [("precast-core", crate::VERSION)];
    let parts = version.into_iter().chain(parts.iter().map(|(name, text)| (*name, text.as_str())));
    Digest::of_parts("precast.interface", parts.flat_map(|(name, text)| [name.as_bytes(), text.as_bytes()]))
}

/// Returns a text's words, without comments and without what stands between the braces behind a parenthesis, unless
/// they are a type's, whose attribute it was.
fn without_bodies(text: &str) -> String {
    let (mut kept, mut depth, mut last) = (String::new(), 0u32, ' ');
    for char in words::code(text).chars() {
        let opens = char == '{' && (depth > 0 || last == ')' && !declares_type(&kept));
        depth += u32::from(opens);
        if depth == 0 && !(char.is_whitespace() && kept.ends_with(' ')) {
            kept.push(if char.is_whitespace() { ' ' } else { char });
        }
        depth -= u32::from(depth > 0 && char == '}');
        last = if char.is_whitespace() { last } else { char };
    }
    kept
}

/// True if a text ends in the head of a type: `typedef struct __align__(16)`. Words in parentheses are an attribute's
/// or a function's, and those in angles a template's.
fn declares_type(text: &str) -> bool {
    let head = text.rsplit([';', '{', '}']).next().unwrap_or_default();
    let (mut depth, mut angles, mut word) = (0u32, 0u32, "");
    for (piece, own) in words::pieces(head) {
        word = if piece == Piece::Word { own } else { word };
        match own {
            "struct" | "union" | "class" | "enum" if depth == 0 && angles == 0 => return true,
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            "<" if angles > 0 || word == "template" => angles += 1,
            ">" => angles = angles.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use crate::{Arch, Kernels, Key, source};

    use super::*;

    const TEXT: &str = "#include \"b.h\"\nextern \"C\" __global__ void scale(float* x, int n) { x[n] = TWO * x[n]; }";

    static UNIT: PlainUnit = PlainUnit {
        source: Source { path: "k/a.cu", text: TEXT, headers: &[("b.h", "#define TWO 2")], common: &source::AS_IT_IS },
        entries: &["scale", "shift"],
        instances: &[],
        interface: "",
        file: "src/kernels.rs",
        command: "precast-aot abi k/a.cu --out src/kernels.rs",
    };
    plain! {
        /// Multiplies n floats.
        UNIT SCALE = "scale" as "scale",
        scale(x: u64 = 0, n: i32 = 8)
    }

    /// The symbol of `scale` in a file.
    fn entry(unit: PlainUnit) -> String {
        let unit = Box::leak(Box::new(unit));
        let kernel = Box::leak(Box::new(PlainKernel { unit, ..SCALE }));
        Key::of_plain(kernel).built(Arch::Sm89).next().unwrap().entry(Arch::Sm89)
    }

    fn of(source: Source) -> PlainUnit {
        PlainUnit { source, ..UNIT }
    }

    #[test]
    fn the_name_in_machine_code_is_of_every_byte_that_is_compiled() {
        let own = entry(of(UNIT.source));
        assert!(own.starts_with("scale__") && own.len() == 7 + 16, "{own}");
        let others = [
            of(Source { path: "k/b.cu", ..UNIT.source }),
            of(Source { headers: &[("b.h", "#define TWO 3")], ..UNIT.source }),
            of(Source { headers: &[("c.h", "#define TWO 2")], ..UNIT.source }),
            of(Source { text: "// said of it", ..UNIT.source }),
            PlainUnit { entries: &["scale"], ..of(UNIT.source) },
            PlainUnit { instances: &["scale<float>"], ..of(UNIT.source) },
        ];
        let mut symbols: Vec<String> = others.into_iter().map(entry).chain([own]).collect();
        symbols.sort_unstable();
        symbols.dedup();
        assert_eq!(symbols.len(), 7);
    }

    #[test]
    fn a_declaration_is_of_structs_and_not_of_functions() {
        let digest = |text: &str| interface([("k/a.cu", text)]);
        let of = |kept: &str, body: &str| {
            let types = format!("#if 1 < 2\ntypedef struct {kept} pair;\n#endif\n");
            digest(&format!("{types}template <class T> __launch_bounds__(64) void f(struct q p) {{ {body} }}"))
        };
        for opens in ["__align__ (16)", "__attribute__((aligned(16)))", "OWN_ALIGN(f(16) * 2)", ""] {
            let own = of(&format!("{opens} {{ float a; int n; }}"), "g();");
            assert_eq!(own, of(&format!("{opens} {{ float a; int n; }}"), "if (h(p)) { g(); }"), "{opens}");
            assert_ne!(own, of(&format!("{opens} {{ int n; float a; }}"), "g();"), "{opens}");
        }
    }

    #[test]
    fn a_mangled_name_has_the_lengths_of_what_is_renamed() {
        const SYMBOL: &str = "_ZN1k23scale__PLACE_OF_DIGITS_IfLi128E5shiftEEvPT_";
        static SCALES: PlainKernel = PlainKernel { name: "scale<float,128>", symbol: SYMBOL, ..SCALE };
        let pair = Key::of_plain(&SCALES).built(Arch::Sm89).next().unwrap();
        let digits = &pair.source_digest(Arch::Sm89).to_string()[..16];
        assert_eq!(pair.entry(Arch::Sm89), format!("_ZN1k23scale__{digits}IfLi128E5shiftEEvPT_"));
        assert_eq!((pair.to_string(), SCALES.base()), ("scale<float,128>{}[]".to_owned(), "scale"));
    }

    #[test]
    fn every_entry_of_the_file_is_renamed_and_the_simulated_gpu_has_none() {
        let key = Key::of_plain(&SCALE);
        assert_eq!((key.text(), key.params_bytes()), ("scale{}", 12));
        let pair = key.built(Arch::Sm90a).next().unwrap();
        let digits = &pair.source_digest(Arch::Sm90a).to_string()[..16];
        let named = ["scale", "shift"].map(|name| (name.to_owned(), format!("{name}__{digits}")));
        assert_eq!(pair.defines(Arch::Sm90a), named);
        assert_eq!(key.built(Arch::Sim).count(), 0);
    }

    #[test]
    fn a_list_finds_them_by_their_keys() {
        static KERNELS: Kernels = Kernels::new("of the test", &[], &[&SCALE]);
        assert_eq!(KERNELS.examples(), [KERNELS.parse("scale{}").unwrap()]);
        assert!(KERNELS.parse("scale{n=1}").is_err() && KERNELS.parse("shift{}").is_err());
    }

    #[test]
    #[should_panic(expected = "two operations have one name")]
    fn a_name_that_an_operation_has_is_refused() {
        static OTHER: PlainKernel = PlainKernel { parameters: &[], ..SCALE };
        const TWO: &[&PlainKernel] = &[&SCALE, &OTHER];
        Kernels::new("of the test", &[], TWO);
    }

    #[test]
    fn parameters_lie_as_they_are_declared() {
        struct Kept;
        impl LaunchPlain for Kept {
            type Error = Vec<u8>;

            unsafe fn launch_plain(self, _: &'static PlainKernel, _: Geometry, block: &[u8]) -> Result<(), Vec<u8>> {
                Err(block.to_vec())
            }
        }
        // SAFETY: nothing is launched.
        let block = unsafe { scale(Kept, Geometry::linear(1, 1), 0x0807_0605_0403_0201, -2) };
        assert_eq!(block, Err(vec![1, 2, 3, 4, 5, 6, 7, 8, 254, 255, 255, 255]));
    }

    #[test]
    fn declarations_are_of_all_but_comments_and_bodies() {
        let of = |text| interface([("a.cu", text)]);
        let text = "struct s { int n; };\nextern \"C\" __global__ void f(s p) { if (p.n) { g(); } }\nint after;";
        let edited = "struct s { int n; }; // n\nextern \"C\"  __global__ void f(s p)\n{ h(); }\nint after;";
        assert_eq!(of(text), of(edited));
        for (from, to) in [("int n", "float n"), ("f(s p)", "f(s* p)"), ("after", "behind")] {
            assert_ne!(of(text), of(&*text.replace(from, to).leak()), "{from}");
        }
    }
}
