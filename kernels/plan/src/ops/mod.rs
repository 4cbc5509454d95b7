//! The operations of a model: the only place that fills parameter blocks.
//!
//! An operation and its gradient stand together, a file each. An operation declares its outputs and launches what computes
//! them; its name is the last part of labels and of buffer names.

mod attention;
mod dequant;
mod embedding;
mod fill;
mod grad_distance;
mod head;
mod linear;
mod lora;
mod norm;
mod optimizer;
mod qk_norm;
mod quantize;
mod ranks;
mod replicas;
mod rope;
mod rows;
mod swiglu;

use std::cell::Cell;

use precast_kernels::abi::ColumnSumFinishArgs;
use precast_kernels::column_sum::ColumnSumFinish;
use precast_kernels::{Addend, Dtype, Registered};

pub(crate) use attention::{Attended, Heads};
pub(crate) use embedding::Sorted;
pub(crate) use linear::{Given, Projected};
pub(crate) use norm::Normed;
pub(crate) use optimizer::{State, StepTensors};
pub(crate) use replicas::Sums;
pub(crate) use rows::Rows;

use crate::buffer::Tensor;
use crate::builder::Builder;
use crate::gemm::Workspaces;
use crate::node::Cublas;
use crate::weights::Weight;

/// Rows that share one partial sum of a bias or gamma gradient.
const GROUP: u32 = 32;

/// Where operations go: a plan in the making, and the shape and dtype of the activations.
pub(crate) struct Ops<'a> {
    b: &'a mut Builder,
    pub batch: u32,
    /// Tokens in each.
    pub seq_len: u32,
    /// Dtype of activations: the recipe's.
    pub x: Dtype,
    /// First part of every name: `student.layers.3`.
    scope: String,
    /// Whether what is launched has been launched before.
    again: bool,
    /// Where cuBLASLt works, if it computes the products.
    workspaces: Option<Workspaces>,
    gradients: Option<Gradients>,
}

/// What gradients need besides weights and activations.
pub(crate) struct Gradients {
    /// `micro_scalars`: whether to overwrite or to add.
    pub micro: Tensor,
    /// The same as factors, f32.
    pub factors: Tensor,
    /// For the launches that split K, where there are such.
    pub semaphores: Option<Semaphores>,
}

/// Words that are 0 between launches. Each launch has its own, so that none waits for another.
pub(crate) struct Semaphores {
    all: Tensor,
    taken: Cell<u64>,
}

impl Semaphores {
    /// A launch that finds none left does not split K and adds up in another order. Models of 7B and more take all of them where
    /// launches split K: their bits depend on this number.
    pub const WORDS: u64 = 1 << 19;

    pub fn new(all: Tensor) -> Self {
        Self { all, taken: Cell::new(0) }
    }

    /// The next `count`, if there are so many left.
    fn take(&self, count: u64) -> Option<Tensor> {
        let start = self.taken.get();
        let end = start + count.next_multiple_of(4); // 16 bytes
        (end <= self.all.elems).then(|| {
            self.taken.set(end);
            self.all.slice(start, count)
        })
    }
}

impl<'a> Ops<'a> {
    /// Operations without gradients.
    pub fn new(b: &'a mut Builder, (batch, seq_len): (u32, u32), x: Dtype, workspaces: Option<Workspaces>) -> Self {
        Self { b, batch, seq_len, x, scope: String::new(), again: false, workspaces, gradients: None }
    }

    /// The same with gradients.
    pub fn training(self, gradients: Gradients) -> Self {
        Self { gradients: Some(gradients), ..self }
    }

    /// Starts a phase; operations go to the phase started last.
    pub fn phase(&mut self, name: &str) {
        self.b.phase(name);
    }

    /// Starts a phase of the start-up.
    pub fn startup_phase(&mut self, name: &str) {
        self.b.startup_phase(name);
    }

    /// What comes next reads what ranks have gathered.
    pub fn cut(&mut self) {
        self.b.cut();
    }

    /// What comes next is never under way together with what came before: it may use the same semaphores.
    pub fn restart(&mut self) {
        if let Some(semaphores) = &self.gradients().semaphores {
            semaphores.taken.set(0);
        }
    }

    /// Says what the operations that follow belong to.
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

    pub fn tokens(&self) -> u32 {
        self.batch * self.seq_len
    }

    /// A transient buffer of tokens x width activations.
    pub fn rows(&mut self, name: &str, width: u32) -> Tensor {
        let elems = u64::from(self.tokens()) * u64::from(width);
        self.b.transient(self.name(name), self.x, elems)
    }

    /// A column of f32, one a token, that the host reads when its phase has ended.
    pub fn column(&mut self, name: &str) -> Tensor {
        let column = self.statistics(name, self.tokens().into());
        self.read_back(column);
        column
    }

    /// Lets the host read a transient buffer when its phase has ended.
    pub fn read_back(&mut self, tensor: Tensor) {
        self.b.read_back(tensor);
    }

    /// A buffer of activations that the host writes before its phase.
    pub fn sent(&mut self, name: &str, elems: u64) -> Tensor {
        self.b.sent(self.name(name), self.x, elems)
    }

    /// A transient buffer of so many weights.
    pub fn elements(&mut self, name: &str, elems: u64) -> Tensor {
        self.b.transient(self.name(name), self.x, elems)
    }

    /// A transient buffer of f32.
    pub fn statistics(&mut self, name: &str, elems: u64) -> Tensor {
        self.b.transient(self.name(name), Dtype::F32, elems)
    }

    /// The full name of a buffer or launch; parts of an operation's name come after `recompute`.
    fn name(&self, name: &str) -> String {
        let scope = &self.scope;
        match (self.again, name.split_once('.')) {
            (false, _) => format!("{scope}.{name}"),
            (true, None) => format!("{scope}.{name}.recompute"),
            (true, Some((operation, part))) => format!("{scope}.{operation}.recompute.{part}"),
        }
    }

    fn launch<K: Registered>(&mut self, name: &str, kernel: K, args: impl Into<K::Params>) {
        let (name, params): (String, K::Params) = (self.name(name), args.into());
        let Some((workspaces, product)) = self.workspaces.as_ref().zip(kernel.product(&params)) else {
            return self.b.launch(name, kernel, params);
        };
        let factors = (product.addend == Addend::Accumulated).then(|| self.gradients().factors);
        self.b.multiply(name, kernel, &params, Cublas { workspace: workspaces.take(), factors });
    }

    /// Whether cuBLASLt computes the products.
    fn by_cublas(&self) -> bool {
        self.workspaces.is_some()
    }

    /// Semaphores of a launch's own, if there are so many left.
    fn semaphores(&self, count: u64) -> Option<Tensor> {
        self.gradients().semaphores.as_ref()?.take(count)
    }

    fn gradients(&self) -> &Gradients {
        self.gradients.as_ref().expect("a plan that trains")
    }

    /// Where the gradient of a weight goes.
    fn gradient_of(weight: &Weight) -> Tensor {
        weight.trained().expect("a weight that trains").grad
    }

    /// Adds the rows of partial sums up into the gradient of a vector of n elements.
    fn add_rows(&mut self, name: &str, partial: Tensor, n: u32, weight: &Weight) {
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
