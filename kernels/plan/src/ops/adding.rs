//! Adds operations to a plan.

use std::cell::Cell;

use precast_kernels::{Addend, Dtype, Format, Registered, abi::ColumnSumFinishArgs, column_sum::ColumnSumFinish};

use crate::cache::DecodeRows;
use crate::gemm::Workspaces;
use crate::sequences::Sequences;
use crate::weights::Weight;
use precast_core::plan::{Builder, Cublas, Tensor};

/// Rows per partial sum of a bias or gamma gradient.
pub(super) const GROUP: u32 = 32;

/// Adds operations to a plan under construction; holds shape and dtype of the activations.
pub(crate) struct Ops<'a> {
    pub(super) b: &'a mut Builder,
    pub tokens: u32,
    /// Dtype of activations, from the recipe.
    pub x: Dtype,
    /// First part of every name: `student.layers.3`.
    pub(super) scope: String,
    /// True while recomputing.
    pub(super) again: bool,
    /// Workspaces of cuBLASLt, if it computes the GEMMs.
    pub(super) workspaces: Option<Workspaces>,
    pub(super) gradients: Option<Gradients>,
    /// Places of the tokens, for operations that depend on them.
    places: Option<Places>,
}

/// Places of tokens in their sequences.
#[derive(Clone, Copy)]
enum Places {
    Sequences(Sequences),
    Slots(DecodeRows),
}

/// A forward pass, alone or before its backward pass.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForwardPass {
    Alone,
    /// Also writes what only the backward pass reads.
    Saving,
}

/// Inputs of gradients besides weights and activations.
pub(crate) struct Gradients {
    /// `micro_scalars`: overwrite or accumulate.
    pub micro: Tensor,
    /// The corresponding alpha and beta, f32.
    pub factors: Tensor,
    /// Semaphores for launches that split K, if any do.
    pub semaphores: Option<Semaphores>,
}

/// Words that are 0 between launches. Each launch has its own, so that none waits for another.
pub(crate) struct Semaphores {
    all: Tensor,
    taken: Cell<u64>,
}

impl Semaphores {
    /// Number of words. Without enough left, a launch does not split K and sums in another order. Models of 7B and more
    /// take all of them where launches split K: their bits depend on this number.
    pub const WORDS: u64 = 1 << 19;

    pub fn new(all: Tensor) -> Self {
        Self { all, taken: Cell::new(0) }
    }

    /// Takes the next `count` words, if enough are left.
    pub(super) fn take(&self, count: u64) -> Option<Tensor> {
        let start = self.taken.get();
        let end = start + count.next_multiple_of(4); // 16 bytes
        (end <= self.all.elems).then(|| {
            self.taken.set(end);
            self.all.slice(start, count)
        })
    }
}

impl<'a> Ops<'a> {
    /// Starts operations without gradients.
    pub fn new(b: &'a mut Builder, tokens: u32, x: Dtype, workspaces: Option<Workspaces>) -> Self {
        Self { b, tokens, x, scope: String::new(), again: false, workspaces, gradients: None, places: None }
    }

    /// Has later operations compute the tokens of sequences.
    pub fn of(mut self, sequences: Sequences) -> Self {
        self.set_sequences(sequences);
        self
    }

    /// Like [`Self::of`].
    pub fn set_sequences(&mut self, sequences: Sequences) {
        self.places = Some(Places::Sequences(sequences));
    }

    /// Has later operations compute a token for each of these rows.
    pub fn decode(&mut self, rows: DecodeRows) {
        (self.tokens, self.places) = (rows.slots.elems as u32, Some(Places::Slots(rows)));
    }

    /// Returns the position of each token, and the positions that there are.
    pub(super) fn positions(&self) -> (Tensor, u32) {
        match self.places.expect("tokens with places") {
            Places::Sequences(sequences) => (sequences.positions, sequences.seq_len),
            Places::Slots(rows) => (rows.positions, rows.seq_len),
        }
    }

    pub(super) fn sequences(&self) -> Sequences {
        let Some(Places::Sequences(sequences)) = self.places else { panic!("a phase of sequences") };
        sequences
    }

    pub(super) fn decode_rows(&self) -> DecodeRows {
        let Some(Places::Slots(rows)) = self.places else { panic!("a phase that decodes") };
        rows
    }

    /// Adds gradients.
    pub fn training(self, gradients: Gradients) -> Self {
        Self { gradients: Some(gradients), ..self }
    }

    /// Starts a phase; later operations go to it.
    pub fn phase(&mut self, name: &str) {
        self.b.phase(name);
    }

    /// Starts a phase of the start-up.
    pub fn startup_phase(&mut self, name: &str) {
        self.b.startup_phase(name);
    }

    /// Makes the phase one of the side stream.
    pub fn beside(&mut self) {
        self.b.beside();
    }

    /// Divides the phase: later operations read what ranks have gathered.
    pub fn cut(&mut self) {
        self.b.cut();
    }

    /// Recycles semaphores: later launches never run concurrently with earlier ones.
    pub fn restart(&mut self) {
        if let Some(semaphores) = &self.gradients().semaphores {
            semaphores.taken.set(0);
        }
    }

    /// Sets the scope of later names.
    pub fn scope(&mut self, scope: impl Into<String>) {
        self.scope = scope.into();
    }

    /// Recomputes for the backward pass what the forward pass did not keep: the same kernels, the same bits.
    pub fn recompute<T>(&mut self, operations: impl FnOnce(&mut Self) -> T) -> T {
        self.again = true;
        let result = operations(self);
        self.again = false;
        result
    }

    /// Declares a transient buffer of tokens x width activations.
    pub fn rows(&mut self, name: &str, width: u32) -> Tensor {
        let elems = u64::from(self.tokens) * u64::from(width);
        self.b.transient(self.name(name), self.x, elems)
    }

    /// Declares a column of f32, one per token, that the host reads after its phase.
    pub fn column(&mut self, name: &str) -> Tensor {
        let column = self.statistics(name, self.tokens.into());
        self.read_back(column);
        column
    }

    /// Lets the host read a transient buffer after its phase.
    pub fn read_back(&mut self, tensor: Tensor) {
        self.b.read_back(tensor);
    }

    /// Declares a buffer of activations that the host writes before its phase.
    pub fn sent(&mut self, name: &str, elems: u64) -> Tensor {
        self.b.sent(self.name(name), self.x, elems)
    }

    /// Declares a buffer of weights in a format that the host writes before its phase.
    pub fn sent_in(&mut self, name: &str, format: Format, elems: u64) -> Tensor {
        self.b.sent(self.name(name), format, elems)
    }

    /// Declares a transient buffer of weights.
    pub fn elements(&mut self, name: &str, elems: u64) -> Tensor {
        self.b.transient(self.name(name), self.x, elems)
    }

    /// Declares a transient buffer of u32.
    pub fn words(&mut self, name: &str, elems: u64) -> Tensor {
        self.b.transient(self.name(name), Dtype::U32, elems)
    }

    /// Declares a transient buffer of f32.
    pub fn statistics(&mut self, name: &str, elems: u64) -> Tensor {
        self.b.transient(self.name(name), Dtype::F32, elems)
    }

    /// Returns the full name of a buffer or launch; parts of an operation's name come after `recompute`.
    pub(super) fn name(&self, name: &str) -> String {
        let scope = &self.scope;
        match (self.again, name.split_once('.')) {
            (false, _) => format!("{scope}.{name}"),
            (true, None) => format!("{scope}.{name}.recompute"),
            (true, Some((operation, part))) => format!("{scope}.{operation}.recompute.{part}"),
        }
    }

    pub(super) fn launch<K: Registered>(&mut self, name: &str, kernel: K, args: impl Into<K::Params>) {
        let (name, params): (String, K::Params) = (self.name(name), args.into());
        let Some((workspaces, gemm)) = self.workspaces.as_ref().zip(kernel.blas_gemm(&params)) else {
            return self.b.launch(name, kernel, params);
        };
        let factors = matches!(gemm.addend, Addend::Accumulated(_)).then(|| self.gradients().factors);
        self.b.multiply(name, kernel, &params, Cublas { workspace: workspaces.take(), factors });
    }

    /// True if cuBLASLt computes the GEMMs.
    pub(super) fn by_cublas(&self) -> bool {
        self.workspaces.is_some()
    }

    /// Takes semaphores for one launch, if enough are left.
    pub(super) fn semaphores(&self, count: u64) -> Option<Tensor> {
        self.gradients().semaphores.as_ref()?.take(count)
    }

    pub(super) fn gradients(&self) -> &Gradients {
        self.gradients.as_ref().expect("a plan that trains")
    }

    /// Returns the gradient of a trained weight.
    pub(super) fn gradient_of(weight: &Weight) -> Tensor {
        weight.trained().expect("a weight that trains").grad
    }

    /// Sums rows of partial sums into the gradient of a vector of n elements.
    pub(super) fn add_rows(&mut self, name: &str, partial: Tensor, n: u32, weight: &Weight) {
        let args = ColumnSumFinishArgs {
            partial,
            micro: self.gradients().micro,
            grad: Self::gradient_of(weight),
            rows: (partial.elems / u64::from(n)) as u32,
            n,
        };
        self.launch(name, ColumnSumFinish {}, args);
    }
}
