//! What a kernel family implements, once, and what every other room derives from it.

use bytemuck::{Pod, Zeroable};

use crate::arch::Arch;
use crate::digest::Digest;
use crate::dtype::Dtype;
use crate::format::Format;
use crate::host::Views;
use crate::key::{self, Fields, Key};
use crate::source::{OPTIONS, Source};
use crate::tensor_map::TensorMap;
use crate::variant::Variant;

/// Grid, block and dynamic shared memory of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads in a block.
    pub block: [u32; 3],
    /// Dynamic shared memory, bytes.
    pub shared_bytes: u32,
}

impl Geometry {
    /// A one-dimensional launch without dynamic shared memory.
    pub fn linear(blocks: u32, threads: u32) -> Self {
        Self { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 0 }
    }

    /// Blocks that stride over n elements: four elements a thread, at most 4096 blocks (enough to fill any
    /// GPU several times over).
    pub fn strided(n: u64, variant: Variant) -> Self {
        let blocks = n.div_ceil(4 * u64::from(variant.threads())).clamp(1, 4096);
        Self::linear(blocks as u32, variant.threads())
    }
}

/// What a launch does with an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads it.
    Read,
    /// Writes every element and reads none.
    Write,
    /// Reads and writes, or writes only some elements.
    ReadWrite,
    /// Works in it: what is there before means nothing to the launch, and what it leaves means nothing to others.
    Scratch,
}

impl Access {
    /// Whether the old content matters.
    pub fn reads(self) -> bool {
        matches!(self, Access::Read | Access::ReadWrite)
    }

    /// Whether the content changes.
    pub fn writes(self) -> bool {
        self != Access::Read
    }

    /// Whether what is there afterwards is a result.
    pub fn is_output(self) -> bool {
        matches!(self, Access::Write | Access::ReadWrite)
    }
}

/// What a checked launch puts into an operand: fresh random values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Content {
    /// Zeros.
    Zeros,
    /// Standard normal times a factor.
    Normal(f32),
    /// Uniform in a range.
    Uniform(f32, f32),
    /// Token ids below a bound.
    Ids(u32),
    /// Token ids below a bound, about one in four masked.
    Targets(u32),
    /// Token ids below a bound, ascending, with runs.
    SortedIds(u32),
    /// A permutation that ascends within each run of the operand named.
    PositionsOf(&'static str),
    /// A `micro_scalars` block: a loss scale, and accumulation on or off.
    Micro,
    /// An `update_scalars` block.
    Update,
    /// A `step_metrics` block that does not skip.
    Metrics,
}

/// A buffer a launch touches, and the field of the parameter block that points at it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operand {
    /// Field name.
    pub name: &'static str,
    /// Byte offset of the address in the parameter block.
    pub offset: usize,
    /// What the launch does with it.
    pub access: Access,
    /// How its elements are stored.
    pub format: Format,
    /// Number of elements.
    pub elems: u64,
    /// Random content for a checked launch.
    pub content: Content,
}

impl Operand {
    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.format.bytes(self.elems)
    }

    /// The same operand with other random content in checks.
    pub fn with(mut self, content: Content) -> Self {
        self.content = content;
        self
    }
}

/// Builds an [`Operand`] from a field of a parameter block.
#[macro_export]
macro_rules! operand {
    ($access:ident $params:ty, $field:ident: $format:expr, $elems:expr) => {
        $crate::kernel::Operand {
            name: stringify!($field),
            offset: std::mem::offset_of!($params, $field),
            access: $crate::kernel::Access::$access,
            format: $crate::Format::from($format),
            elems: $elems as u64,
            content: $crate::kernel::Content::Normal(1.0),
        }
    };
}

/// How far a kernel may be from its host reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Largest ‖out − ref‖ / ‖ref‖.
    pub norm: f64,
    /// Largest |out − ref| of one element, as a share of the largest |ref|.
    pub element: f64,
    /// Differences up to this are none: for values that are themselves differences of larger ones.
    pub absolute: f64,
}

impl Tolerance {
    /// What rounding explains for outputs of this format computed in f32.
    pub fn of(format: Format) -> Self {
        match format {
            Format::Dense(Dtype::Bf16) => Self { norm: 4e-3, element: 1e-2, absolute: 0.0 },
            Format::Dense(Dtype::F32) => Self { norm: 2e-6, element: 1e-5, absolute: 0.0 },
            Format::Dense(Dtype::U32) | Format::Block(_) => Self { norm: 0.0, element: 0.0, absolute: 0.0 },
        }
    }
}

/// One kernel: its key type, and everything that follows from a key.
///
/// The plan, the compiler, the runtime, the simulated GPU, the checks and the benchmarks all derive what
/// they need from this one implementation.
pub trait Kernel: Fields {
    /// The parameter block: the Rust twin of the C struct in `kernels/abi`.
    type Params: Pod;

    /// The CUDA source: of the plainest variants, where others have their own.
    const SOURCE: Source;

    /// The CUDA source a variant is built from.
    fn source(&self, _variant: Variant) -> Source {
        Self::SOURCE
    }

    /// The variants this key may be built as on an architecture.
    fn variants(&self, arch: Arch) -> &'static [Variant];

    /// What the table of measured launches calls this one's shape, where one variant may be faster than another.
    fn problem(&self, _params: &Self::Params) -> Option<String> {
        None
    }

    /// The variant for a launch that was not measured: a pure function.
    fn select(&self, _params: &Self::Params, arch: Arch) -> Variant {
        self.variants(arch)[0]
    }

    /// Whether a variant can run a launch: some need rows of whole vectors. `select` returns only such, and the
    /// self-test runs only such.
    fn admits(&self, _variant: Variant, _params: &Self::Params) -> bool {
        true
    }

    /// Grid, block and dynamic shared memory.
    fn geometry(&self, variant: Variant, params: &Self::Params) -> Geometry;

    /// Every buffer the launch touches. No two overlap unless both are only read.
    fn operands(&self, params: &Self::Params) -> Vec<Operand>;

    /// The tensor maps of the parameter block that a variant reads. They are zero where there is no CUDA driver.
    fn tensor_maps(&self, _variant: Variant, _params: &Self::Params) -> Vec<TensorMap> {
        Vec::new()
    }

    /// Floating-point operations of the launch, where they bound its time.
    fn flops(&self, _params: &Self::Params) -> u64 {
        0
    }

    /// Bytes the launch has to move: each input read once and each output written once, unless it touches only a part of
    /// one. What it works in is its own affair.
    fn bytes(&self, params: &Self::Params) -> u64 {
        let passes = |access: Access| u64::from(access.reads()) + u64::from(access.is_output());
        self.operands(params).iter().map(|operand| passes(operand.access) * operand.bytes()).sum()
    }

    /// The reference: what the launch must do, on the host.
    fn host(&self, params: &Self::Params, views: &mut Views<'_>);

    /// Parameter blocks (addresses left 0) of small, ragged launches that check the kernel.
    fn samples(&self) -> Vec<Self::Params>;

    /// Allowed distance between kernel and reference for an operand.
    fn tolerance(&self, operand: &Operand) -> Tolerance {
        Tolerance::of(operand.format)
    }
}

/// A [`Kernel`] with its types erased: parameter blocks are bytes.
pub trait AnyKernel: Send + Sync {
    /// Operation name.
    fn op(&self) -> &'static str;
    /// Size of the parameter block.
    fn params_size(&self) -> usize;
    /// See [`Kernel::source`].
    fn source(&self, variant: Variant) -> Source;
    /// Macro definitions: `KEY_<FIELD>`, `VARIANT_<NAME>` and `ENTRY`.
    fn defines(&self, variant: Variant, arch: Arch) -> Vec<(String, String)>;
    /// Digest of everything the machine code is a function of, the compiler apart: source, headers, options, architecture
    /// and macros. `ENTRY` is not among them: it is made from this. The simulated GPU runs the host reference of a key,
    /// whatever the source: its digest is of key and variant alone.
    fn source_digest(&self, variant: Variant, arch: Arch) -> Digest;
    /// Entry symbol: key and variant, then the first 16 digits of the source digest, so that a cubin says itself what it
    /// was made from.
    fn entry(&self, variant: Variant, arch: Arch) -> String;
    /// See [`Kernel::variants`].
    fn variants(&self, arch: Arch) -> &'static [Variant];
    /// See [`Kernel::problem`].
    fn problem(&self, params: &[u8]) -> Option<String>;
    /// See [`Kernel::select`].
    fn select(&self, params: &[u8], arch: Arch) -> Variant;
    /// See [`Kernel::admits`].
    fn admits(&self, variant: Variant, params: &[u8]) -> bool;
    /// See [`Kernel::geometry`].
    fn geometry(&self, variant: Variant, params: &[u8]) -> Geometry;
    /// See [`Kernel::operands`].
    fn operands(&self, params: &[u8]) -> Vec<Operand>;
    /// See [`Kernel::tensor_maps`].
    fn tensor_maps(&self, variant: Variant, params: &[u8]) -> Vec<TensorMap>;
    /// See [`Kernel::flops`].
    fn flops(&self, params: &[u8]) -> u64;
    /// See [`Kernel::bytes`].
    fn bytes(&self, params: &[u8]) -> u64;
    /// See [`Kernel::host`].
    fn host(&self, params: &[u8], views: &mut Views<'_>);
    /// See [`Kernel::samples`].
    fn samples(&self) -> Vec<Vec<u8>>;
    /// See [`Kernel::tolerance`].
    fn tolerance(&self, operand: &Operand) -> Tolerance;
}

impl<K: Kernel> AnyKernel for K {
    fn op(&self) -> &'static str {
        K::OP
    }

    fn params_size(&self) -> usize {
        size_of::<K::Params>()
    }

    fn source(&self, variant: Variant) -> Source {
        Kernel::source(self, variant)
    }

    fn defines(&self, variant: Variant, arch: Arch) -> Vec<(String, String)> {
        let entry = ("ENTRY".to_owned(), AnyKernel::entry(self, variant, arch));
        baked(self, variant).chain([entry]).collect()
    }

    fn source_digest(&self, variant: Variant, arch: Arch) -> Digest {
        if arch == Arch::Sim {
            let key = key::text(self);
            return Digest::of_parts("precast.simulated", [key.as_bytes(), variant.to_string().as_bytes()]);
        }
        let text = Kernel::source(self, variant).digest();
        let options = OPTIONS.join(" ");
        let defines: Vec<String> = baked(self, variant).map(|(name, value)| format!("{name}={value}")).collect();
        let parts = [&text.0[..], options.as_bytes(), arch.name().as_bytes()];
        Digest::of_parts("precast.source", parts.into_iter().chain(defines.iter().map(String::as_bytes)))
    }

    fn entry(&self, variant: Variant, arch: Arch) -> String {
        let mut symbol = K::OP.replace('.', "_");
        for field in self.fields() {
            symbol.push_str(&format!("__{}_{}", field.name, field.value));
        }
        for (name, value) in variant.0 {
            symbol.push_str(&format!("__{name}_{value}"));
        }
        let digest = AnyKernel::source_digest(self, variant, arch).to_string();
        symbol + "__" + &digest[..ENTRY_DIGITS]
    }

    fn variants(&self, arch: Arch) -> &'static [Variant] {
        Kernel::variants(self, arch)
    }

    fn problem(&self, params: &[u8]) -> Option<String> {
        Kernel::problem(self, &block(params))
    }

    fn select(&self, params: &[u8], arch: Arch) -> Variant {
        Kernel::select(self, &block(params), arch)
    }

    fn admits(&self, variant: Variant, params: &[u8]) -> bool {
        Kernel::admits(self, variant, &block(params))
    }

    fn geometry(&self, variant: Variant, params: &[u8]) -> Geometry {
        Kernel::geometry(self, variant, &block(params))
    }

    fn operands(&self, params: &[u8]) -> Vec<Operand> {
        Kernel::operands(self, &block(params))
    }

    fn tensor_maps(&self, variant: Variant, params: &[u8]) -> Vec<TensorMap> {
        Kernel::tensor_maps(self, variant, &block(params))
    }

    fn flops(&self, params: &[u8]) -> u64 {
        Kernel::flops(self, &block(params))
    }

    fn bytes(&self, params: &[u8]) -> u64 {
        Kernel::bytes(self, &block(params))
    }

    fn host(&self, params: &[u8], views: &mut Views<'_>) {
        Kernel::host(self, &block(params), views);
    }

    fn samples(&self) -> Vec<Vec<u8>> {
        Kernel::samples(self).iter().map(|params| bytemuck::bytes_of(params).to_vec()).collect()
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        Kernel::tolerance(self, operand)
    }
}

/// Hex digits of the source digest at the end of an entry symbol.
const ENTRY_DIGITS: usize = 16;

/// What key and variant define: `KEY_<FIELD>` and `VARIANT_<NAME>`.
fn baked<K: Kernel>(kernel: &K, variant: Variant) -> impl Iterator<Item = (String, String)> {
    let key = kernel.fields().into_iter().map(|field| (format!("KEY_{}", field.name.to_uppercase()), field.define));
    let built = variant.0.iter().map(|(name, value)| (format!("VARIANT_{}", name.to_uppercase()), value.to_string()));
    key.chain(built)
}

/// Reads a parameter block.
///
/// # Panics
/// If the size differs: whoever holds a key and a block of another kernel's size has a bug.
fn block<P: Pod + Zeroable>(params: &[u8]) -> P {
    bytemuck::pod_read_unaligned(params)
}

/// An operation the registry knows.
#[derive(Clone, Copy)]
pub struct Op {
    /// `family.operation`.
    pub name: &'static str,
    /// Reads the key's fields.
    pub parse: fn(&[(&str, &str)]) -> Option<Key>,
}

impl Op {
    /// The registry's row of a kernel.
    pub const fn of<K: Kernel>() -> Self {
        Self { name: K::OP, parse: |pairs| K::from_pairs(pairs).map(Key::new) }
    }
}
