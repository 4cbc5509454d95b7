//! Layout of the adapters' matrices in flat buffers.
//!
//! Adapters of projections that one GEMM computes are computed together, and so share one rank: the largest of
//! theirs, padded. Their A's are stacked, `[parts * rank, in]`, and so are their B's, `[out of all parts, rank]`. Rows
//! of an A and columns of a B beyond a projection's own rank are padding, which is 0 and gets gradients that are
//! exactly 0.

use std::collections::BTreeSet;

use super::projections::{Adapter, Adapters};
use crate::config::ModelConfig;
use crate::parameters::{ALIGN, Stack, all_stacks};
use crate::recipe::PlanError;
use crate::sections::Sections;

/// One of the two matrices of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Factor {
    /// `[rank, in]`
    A,
    /// `[out, rank]`
    B,
}

/// One matrix of an adapter, with its offset in flat buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterParameter {
    /// Hugging Face name of the adapted matrix.
    pub projection: String,
    pub factor: Factor,
    /// PEFT's shape: `[rank, in]` or `[out, rank]`.
    pub shape: [u64; 2],
    /// Index of its first element in the buffer.
    pub start: u64,
    /// Elements from one row to the next.
    pub row: u64,
}

/// The matrices of a model's adapters, laid out. All other elements are padding, and 0.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterParameters {
    /// By layer, then by GEMM; of a GEMM the A's, then the B's.
    pub list: Vec<AdapterParameter>,
    /// Elements of the buffer, padding included.
    pub elems: u64,
    /// Adapters of each GEMM of each layer; none if it has none.
    pub(crate) stacks: Vec<[Option<StackLayout>; 4]>,
    /// End of the adapters of each layer.
    layers: Vec<u64>,
}

/// An adapted range of a GEMM's output columns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptedPart {
    pub scale: f32,
    pub start: u32,
    pub width: u32,
}

/// Offsets of the adapters of one GEMM.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StackLayout {
    pub parts: Vec<AdaptedPart>,
    /// Padded rank of each part.
    pub rank: u32,
    /// Offset of A, elements; A is `[parts * rank, in]`.
    pub a: u64,
    pub a_elems: u64,
    /// Offset of B, elements; B is `[width of all parts, rank]`.
    pub b: u64,
    pub b_elems: u64,
}

/// Alignment of ranks: rows of B are whole vectors of 16 bytes in bf16.
const ALIGN_RANK: u32 = 8;

impl AdapterParameters {
    /// Lays out a model's adapters.
    ///
    /// # Errors
    /// [`PlanError`] if a rank is out of bounds, or an adapted matrix is no projection of this model.
    pub fn new(config: &ModelConfig, adapters: &Adapters) -> Result<Self, PlanError> {
        for (name, Adapter { rank, .. }) in adapters.iter() {
            if !(1..=Adapter::MOST_RANK).contains(&rank) {
                return Err(PlanError::Rank { name: name.to_owned(), rank });
            }
        }
        let mut all = Self { list: Vec::new(), elems: 0, stacks: Vec::new(), layers: Vec::new() };
        for (layer, stacks) in (0..).zip(all_stacks(config)) {
            let of_layer = stacks.map(|stack| all.add(adapters, layer, &stack));
            all.stacks.push(of_layer);
            all.layers.push(all.elems);
        }
        all.align();
        let known: BTreeSet<&str> = all.list.iter().map(|one| one.projection.as_str()).collect();
        match adapters.iter().find(|(name, _)| !known.contains(name)) {
            Some((name, _)) => Err(PlanError::UnknownProjection { name: name.to_owned() }),
            None => Ok(all),
        }
    }

    /// Returns the sections in which gradients become complete.
    pub(crate) fn sections(&self) -> Sections {
        Sections::new(vec![self.layers.iter().copied().chain([self.elems]).collect()])
    }

    /// Returns the number of elements without padding.
    pub fn count(&self) -> u64 {
        self.list.iter().map(|one| one.shape.iter().product::<u64>()).sum()
    }

    fn align(&mut self) {
        self.elems = self.elems.next_multiple_of(ALIGN);
    }

    fn add(&mut self, adapters: &Adapters, layer: u32, stack: &Stack) -> Option<StackLayout> {
        let mut column = 0;
        let mut adapted = Vec::new();
        for part in &stack.parts {
            let name = part.parameter(layer, "weight");
            if let Some(adapter) = adapters.of(&name) {
                adapted.push((name, adapter, AdaptedPart { scale: adapter.scale, start: column, width: part.rows }));
            }
            column += part.rows;
        }
        let rank = adapted.iter().map(|(_, adapter, _)| adapter.rank).max()?.next_multiple_of(ALIGN_RANK);
        let columns = u64::from(stack.columns);
        self.align();
        let a = self.elems;
        for (name, adapter, _) in &adapted {
            self.push(name, Factor::A, [adapter.rank.into(), columns], columns);
            self.elems += u64::from(rank) * columns;
        }
        self.align();
        let b = self.elems;
        for (name, adapter, part) in &adapted {
            self.push(name, Factor::B, [part.width.into(), adapter.rank.into()], rank.into());
            self.elems += u64::from(part.width) * u64::from(rank);
        }
        let parts: Vec<AdaptedPart> = adapted.iter().map(|(_, _, part)| *part).collect();
        let a_elems = parts.len() as u64 * u64::from(rank) * columns;
        Some(StackLayout { parts, rank, a, a_elems, b, b_elems: self.elems - b })
    }

    fn push(&mut self, projection: &str, factor: Factor, shape: [u64; 2], row: u64) {
        let projection = projection.to_owned();
        self.list.push(AdapterParameter { projection, factor, shape, start: self.elems, row });
    }
}
