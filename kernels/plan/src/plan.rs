//! Plans: buffers in one arena, and phases of launches with their dependencies.
//!
//! A launch's parameter block holds *virtual addresses*: a buffer's number in the upper 24 bits and an offset
//! in the lower 40. Binding replaces them by real ones; nothing else about a plan changes when it runs.

use precast_kernels::{Access, Arch, Dtype, Geometry, Kernel, Key, Operand, Variant};

use crate::arena;
use crate::memory::Category;

/// Offset bits of a virtual address: a buffer may be as large as 1 TiB.
const OFFSET_BITS: u32 = 40;

/// A buffer of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(pub u32);

/// A range of device memory with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// Name for messages and tests: `student.layers.3.qkv`.
    pub name: String,
    /// What it is for.
    pub category: Category,
    /// Element type.
    pub dtype: Dtype,
    /// Number of elements.
    pub elems: u64,
    /// Whether it keeps its content between phases. Others share memory as their lifetimes allow.
    pub persistent: bool,
    /// Where it starts in the arena, bytes.
    pub offset: u64,
}

impl Buffer {
    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.elems * self.dtype.bytes()
    }

    /// Bytes it takes in the arena: padded, so that the next buffer is aligned.
    pub fn reserved_bytes(&self) -> u64 {
        self.bytes().next_multiple_of(arena::ALIGN)
    }
}

/// A range of elements of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// The buffer.
    pub buffer: BufferId,
    /// First byte.
    pub offset: u64,
    /// Element type.
    pub dtype: Dtype,
    /// Number of elements.
    pub elems: u64,
}

impl Tensor {
    /// The virtual address of the first element.
    pub fn address(self) -> u64 {
        (u64::from(self.buffer.0) + 1) << OFFSET_BITS | self.offset
    }

    /// A range of its elements.
    ///
    /// # Panics
    /// If the range reaches past the tensor.
    pub fn slice(self, start: u64, elems: u64) -> Self {
        assert!(start + elems <= self.elems, "slice {start}+{elems} of {} elements", self.elems);
        Self { offset: self.offset + start * self.dtype.bytes(), elems, ..self }
    }
}

/// One kernel launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// What for: `student.layers.3.qkv`.
    pub label: String,
    /// What it computes.
    pub key: Key,
    /// How that is built.
    pub variant: Variant,
    /// Grid, block and dynamic shared memory.
    pub geometry: Geometry,
    /// The parameter block, with virtual addresses.
    pub params: Vec<u8>,
    /// Earlier launches of the phase that must have finished.
    pub dependencies: Vec<u32>,
}

/// An operand of a launch, resolved to its buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Touch {
    /// The operand.
    pub operand: Operand,
    /// The buffer.
    pub buffer: BufferId,
    /// First byte in the buffer.
    pub offset: u64,
}

impl Launch {
    /// The buffers it touches.
    pub fn touches(&self) -> Vec<Touch> {
        let operands = self.key.kernel().operands(&self.params);
        operands
            .into_iter()
            .map(|operand| {
                let address = address_at(&self.params, operand.offset);
                let buffer = (address >> OFFSET_BITS).checked_sub(1);
                let Some(buffer) = buffer else {
                    panic!("{}: operand `{}` of {} has no buffer", self.label, operand.name, self.key)
                };
                let offset = address & ((1 << OFFSET_BITS) - 1);
                Touch { operand, buffer: BufferId(buffer as u32), offset }
            })
            .collect()
    }

    /// The parameter block with each address 0: what is left is the launch's shape.
    pub fn shape(&self) -> Vec<u8> {
        let mut params = self.params.clone();
        for operand in self.key.kernel().operands(&self.params) {
            params[operand.offset..operand.offset + 8].fill(0);
        }
        params
    }

    /// Bytes it has to move.
    pub fn bytes(&self) -> u64 {
        self.key.kernel().bytes(&self.params)
    }

    /// Its floating-point operations, where they bound its time.
    pub fn flops(&self) -> u64 {
        self.key.kernel().flops(&self.params)
    }

    /// The parameter block with each virtual address replaced by a real one.
    pub fn bind(&self, address: impl Fn(BufferId) -> u64) -> Vec<u8> {
        let mut params = self.params.clone();
        for touch in self.touches() {
            let real = address(touch.buffer) + touch.offset;
            let field = touch.operand.offset;
            params[field..field + 8].copy_from_slice(&real.to_ne_bytes());
        }
        params
    }
}

fn address_at(params: &[u8], offset: usize) -> u64 {
    bytemuck::pod_read_unaligned(&params[offset..offset + 8])
}

/// Launches that run as one: on a GPU, one graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// In an order that respects the dependencies.
    pub launches: Vec<Launch>,
}

/// Buffers and launches, as data.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The architecture variants were selected for.
    pub arch: Arch,
    /// Buffers.
    pub buffers: Vec<Buffer>,
    /// Phases.
    pub phases: Vec<Phase>,
    /// Size of the one allocation that holds every buffer.
    pub arena_bytes: u64,
}

impl Plan {
    /// A buffer.
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.0 as usize]
    }

    /// A whole buffer, by name.
    pub fn tensor(&self, name: &str) -> Option<Tensor> {
        let (buffer, id) = self.buffers.iter().zip(0..).find(|(buffer, _)| buffer.name == name)?;
        Some(Tensor { buffer: BufferId(id), offset: 0, dtype: buffer.dtype, elems: buffer.elems })
    }

    /// A phase's launches.
    ///
    /// # Panics
    /// If there is no such phase.
    pub fn phase(&self, name: &str) -> &[Launch] {
        match self.phases.iter().find(|phase| phase.name == name) {
            Some(phase) => &phase.launches,
            None => panic!("the plan has no phase `{name}`"),
        }
    }

    /// Every launch of every phase.
    pub fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.phases.iter().flat_map(|phase| &phase.launches)
    }
}

/// Makes a plan: declare buffers, add launches, finish.
pub struct Builder {
    arch: Arch,
    buffers: Vec<Buffer>,
    phases: Vec<Phase>,
}

impl Builder {
    /// An empty plan for an architecture.
    pub fn new(arch: Arch) -> Self {
        Self { arch, buffers: Vec::new(), phases: Vec::new() }
    }

    fn declare(&mut self, name: String, category: Category, dtype: Dtype, elems: u64, persistent: bool) -> Tensor {
        assert!(elems > 0, "{name} is empty");
        let id = BufferId(self.buffers.len() as u32);
        let buffer = Buffer { name, category, dtype, elems, persistent, offset: 0 };
        assert!(buffer.bytes() < 1 << OFFSET_BITS, "{} is larger than 1 TiB", buffer.name);
        self.buffers.push(buffer);
        Tensor { buffer: id, offset: 0, dtype, elems }
    }

    /// A buffer that keeps its content.
    pub fn persistent(&mut self, name: impl Into<String>, category: Category, dtype: Dtype, elems: u64) -> Tensor {
        self.declare(name.into(), category, dtype, elems, true)
    }

    /// A buffer that lives from its first launch to its last, in one phase.
    pub fn transient(&mut self, name: impl Into<String>, dtype: Dtype, elems: u64) -> Tensor {
        self.declare(name.into(), Category::Activations, dtype, elems, false)
    }

    /// Starts a phase; launches go to the phase started last.
    pub fn phase(&mut self, name: &str) {
        self.phases.push(Phase { name: name.to_owned(), launches: Vec::new() });
    }

    /// Adds a launch.
    ///
    /// # Panics
    /// If an operand has no buffer, another dtype than its buffer, or reaches past it: a lowering that does
    /// that is wrong.
    pub fn launch<K: Kernel>(&mut self, label: impl Into<String>, kernel: K, params: &K::Params) {
        let (key, params) = (Key::new(kernel), bytemuck::bytes_of(params).to_vec());
        let variant = key.select(&params, self.arch);
        let geometry = key.kernel().geometry(variant, &params);
        let launch = Launch { label: label.into(), key, variant, geometry, params, dependencies: Vec::new() };
        for touch in launch.touches() {
            let buffer = &self.buffers[touch.buffer.0 as usize];
            let (label, name) = (&launch.label, touch.operand.name);
            let fits = touch.offset + touch.operand.bytes() <= buffer.bytes();
            assert!(fits, "{label}: operand `{name}` reaches past buffer {}", buffer.name);
            let words = buffer.dtype == Dtype::U32 || touch.operand.format == buffer.dtype;
            assert!(words, "{label}: operand `{name}` is {}, {} is {}", touch.operand.format, buffer.name, buffer.dtype);
            assert!(touch.offset.is_multiple_of(16), "{label}: operand `{name}` is not aligned to 16 bytes");
        }
        let phase = self.phases.last_mut().expect("a phase has been started");
        phase.launches.push(launch);
    }

    /// Places the buffers in the arena and finds the dependencies.
    ///
    /// # Panics
    /// If a transient buffer is read before it is written, or used in two phases.
    pub fn finish(self) -> Plan {
        let mut plan = Plan { arch: self.arch, buffers: self.buffers, phases: self.phases, arena_bytes: 0 };
        let touches: Vec<Vec<Vec<Touch>>> =
            plan.phases.iter().map(|phase| phase.launches.iter().map(Launch::touches).collect()).collect();
        arena::place(&mut plan, &touches);
        for (phase, touches) in plan.phases.iter_mut().zip(&touches) {
            let ranges: Vec<Vec<Range>> = touches
                .iter()
                .map(|touches| touches.iter().map(|touch| Range::of(touch, &plan.buffers)).collect())
                .collect();
            for (launch, dependencies) in phase.launches.iter_mut().zip(dependencies(&ranges)) {
                launch.dependencies = dependencies;
            }
        }
        plan
    }
}

/// Arena bytes a launch touches.
#[derive(Clone, Copy)]
struct Range {
    start: u64,
    end: u64,
    access: Access,
}

impl Range {
    fn of(touch: &Touch, buffers: &[Buffer]) -> Self {
        let start = buffers[touch.buffer.0 as usize].offset + touch.offset;
        Self { start, end: start + touch.operand.bytes(), access: touch.operand.access }
    }

    fn conflicts(self, other: Self) -> bool {
        let overlaps = self.start < other.end && other.start < self.end;
        overlaps && (self.access.writes() || other.access.writes())
    }
}

/// For each launch the earlier ones it must wait for: those that touch the same bytes of the arena, one of
/// the two writing. They are found in physical memory, so that buffers which share memory are ordered too.
/// Edges that follow from others are left out.
fn dependencies(launches: &[Vec<Range>]) -> Vec<Vec<u32>> {
    let words = launches.len().div_ceil(64);
    let mut before: Vec<Vec<u64>> = Vec::with_capacity(launches.len());
    let mut result = Vec::with_capacity(launches.len());
    for (index, ranges) in launches.iter().enumerate() {
        let mut known = vec![0u64; words];
        let mut edges = Vec::new();
        for earlier in (0..index).rev() {
            if known[earlier / 64] >> (earlier % 64) & 1 == 1 {
                continue;
            }
            if ranges.iter().any(|range| launches[earlier].iter().any(|other| range.conflicts(*other))) {
                edges.push(earlier as u32);
                known[earlier / 64] |= 1 << (earlier % 64);
                known.iter_mut().zip(&before[earlier]).for_each(|(known, before)| *known |= before);
            }
        }
        edges.reverse();
        result.push(edges);
        before.push(known);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64, access: Access) -> Range {
        Range { start, end, access }
    }

    #[test]
    fn dependencies_are_conflicts_without_the_implied_ones() {
        use Access::{Read, Write};
        let launches = [
            vec![range(0, 10, Write)],
            vec![range(20, 30, Write)],
            vec![range(0, 10, Read), range(10, 20, Write)],
            vec![range(10, 20, Read), range(0, 5, Read), range(30, 40, Write)],
            vec![range(5, 6, Write), range(20, 30, Read)],
        ];
        assert_eq!(dependencies(&launches), [vec![], vec![], vec![0], vec![2], vec![1, 2]]);
    }
}
