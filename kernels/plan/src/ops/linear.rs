//! Linear layers: `y = x w^T (+ bias) (+ residual)` with adapters, and the gradients of trained weights and of the
//! input.

use precast_kernels::abi::{ColumnSumPartialArgs, GemmDgradArgs, GemmFwdArgs, GemmSwigluArgs, GemmWgradArgs};
use precast_kernels::gemm::{GemmDgrad, GemmFwd, GemmSwiglu, GemmWgrad};
use precast_kernels::{Flag, Gate, Out, column_sum::ColumnSumPartial};

use super::adding::{GROUP, Ops};
use super::rows::ActivationRows;
use crate::weights::{Int8Rows, Linear, Matrix, Weight};
use precast_core::plan::Tensor;

/// Result of a linear layer: its output, and the ranks of its adapters, which their gradient needs.
#[derive(Clone, Copy)]
pub(crate) struct Projected {
    pub y: Tensor,
    /// None without adapters.
    pub ranks: Option<Tensor>,
}

/// Saved forward activations of a linear layer.
#[derive(Clone, Copy)]
pub(crate) struct Given {
    /// Its input; none if no part of the layer trains.
    pub x: Option<Tensor>,
    /// Ranks of its adapters.
    pub ranks: Option<Tensor>,
}

/// Operands of a GEMM, in one format.
pub(super) struct Factors {
    x: Tensor,
    w: Tensor,
    /// Scales of the rows of both, if in int8.
    scales: Option<[Tensor; 2]>,
}

impl Factors {
    pub fn dense(x: Tensor, w: Tensor) -> Self {
        Self { x, w, scales: None }
    }

    fn int8(x: Int8Rows, w: Int8Rows) -> Self {
        Self { x: x.values, w: w.values, scales: Some([x.scales, w.scales]) }
    }
}

/// Micro-batches in which a launch adds to a gradient that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adding {
    /// All but the first, which overwrites it.
    AfterFirst,
    /// All: another launch has written to it before.
    Always,
}

impl Ops<'_> {
    /// Lowers y [m, n] from x [m, k].
    pub fn linear(&mut self, name: &str, x: impl Into<ActivationRows>, linear: &Linear) -> Projected {
        self.gemm(name, x.into(), linear, (None, None))
    }

    /// Like [`Self::linear`], added to the residual stream; the sum is written to `y`, if that is given.
    pub fn linear_add(
        &mut self,
        name: &str,
        x: impl Into<ActivationRows>,
        linear: &Linear,
        residual: Tensor,
        y: Option<Tensor>,
    ) -> Projected {
        self.gemm(name, x.into(), linear, (Some(residual), y))
    }

    fn gemm(
        &mut self,
        name: &str,
        x: ActivationRows,
        linear: &Linear,
        (residual, y): (Option<Tensor>, Option<Tensor>),
    ) -> Projected {
        let factors = self.factors(name, x, linear);
        let y = y.unwrap_or_else(|| self.rows(name, linear.n));
        self.multiply(name, factors, [linear.n, linear.k], (linear.bias, residual), y);
        if linear.adapter.is_none() {
            return Projected { y, ranks: None };
        }
        let ranks = self.adapter_ranks(name, x.dense(), linear);
        self.adapter_add(name, ranks, y, linear);
        Projected { y, ranks: Some(ranks) }
    }

    /// Returns the operands of a layer in the format of its matrix.
    fn factors(&mut self, name: &str, x: ActivationRows, linear: &Linear) -> Factors {
        match linear.weight {
            Matrix::Int8(int8) => Factors::int8(self.in_int8(name, x, linear.k), int8.rows),
            Matrix::Dense(_) | Matrix::Blocks(_) => Factors::dense(x.dense(), self.matrix(name, linear)),
        }
    }

    /// `y [m, n] = x w^T (+ bias) (+ residual)`, x [m, k], w [n, k].
    pub(super) fn multiply(
        &mut self,
        name: &str,
        Factors { x, w, scales }: Factors,
        [n, k]: [u32; 2],
        (bias, residual): (Option<Weight>, Option<Tensor>),
        y: Tensor,
    ) {
        let [x_scale, w_scale] = scales.map_or([None; 2], |scales| scales.map(Some));
        let args = GemmFwdArgs {
            x,
            w,
            bias: bias.map(|bias| bias.tensor),
            residual,
            y,
            m: (x.elems / u64::from(k)) as u32,
            n,
            k,
            experts_of: 0,
            tiles: None,
            x_scale,
            w_scale,
        };
        let key = GemmFwd {
            bias: bias.is_some(),
            experts: Flag(false),
            residual: residual.is_some(),
            w: w.format,
            x: x.format,
        };
        self.launch(name, key, args);
    }

    /// Lowers the gated activation of a stacked gate and up projection, keeping only its output; one launch of the
    /// bundle if they have no adapters.
    pub fn linear_swiglu(&mut self, name: &str, gate: Gate, x: impl Into<ActivationRows>, gate_up: &Linear) -> Tensor {
        let by_cublas = self.by_cublas() && !matches!(gate_up.weight, Matrix::Int8(_));
        if gate_up.adapter.is_some() || by_cublas {
            let Projected { y, .. } = self.linear(name, x, gate_up);
            return self.swiglu("swiglu", gate, y, Out::Dense).dense();
        }
        let Linear { bias, n, k, .. } = *gate_up;
        let Factors { x, w, scales } = self.factors(name, x.into(), gate_up);
        let y = self.rows(name, n / 2);
        let [x_scale, w_scale] = scales.map_or([None; 2], |scales| scales.map(Some));
        let args = GemmSwigluArgs {
            x,
            w,
            bias: bias.map(|bias| bias.tensor),
            y,
            m: self.tokens,
            n: n / 2,
            k,
            experts_of: 0,
            tiles: None,
            x_scale,
            w_scale,
        };
        self.launch(
            name,
            GemmSwiglu { bias: bias.is_some(), experts: Flag(false), gate, w: w.format, x: x.format },
            args,
        );
        y
    }

    /// Lowers the gradients of a layer's trained weights; returns that of its adapters' ranks.
    ///
    /// # Panics
    /// If a part of the layer trains and `given` lacks its activations.
    pub fn layer_gradients(&mut self, name: &str, dy: Tensor, given: Given, linear: &Linear) -> Option<Tensor> {
        let x = || given.x.expect("a layer that trains has its input");
        if linear.weight.trained().is_some() {
            self.weight_gradient(name, dy, x(), linear, Adding::AfterFirst);
        }
        if let Some(bias) = linear.bias.as_ref().filter(|bias| bias.trained().is_some()) {
            self.bias_gradient(name, dy, linear.n, bias);
        }
        given.ranks.map(|ranks| self.adapter_backward(name, dy, (x(), ranks), linear))
    }

    /// Lowers the gradient of a layer's input, of those of its output and of its adapters' ranks.
    pub fn propagate(&mut self, name: &str, dy: ActivationRows, dranks: Option<Tensor>, linear: &Linear) -> Tensor {
        let dx = self.rows(&format!("{name}.dx"), linear.k);
        match linear.weight {
            Matrix::Int8(int8) => {
                let columns = int8.columns.expect("a matrix that gradients pass through");
                let dy = self.in_int8(&format!("{name}.dy"), dy, linear.n);
                let factors = Factors::int8(dy, columns);
                self.multiply(&format!("{name}.dgrad"), factors, [linear.k, linear.n], (None, None), dx);
            }
            Matrix::Dense(_) | Matrix::Blocks(_) => self.input_gradient(name, dy.dense(), linear, dx),
        }
        if let Some(dranks) = dranks {
            self.adapter_input_gradient(name, dranks, dx, linear);
        }
        dx
    }

    /// Lowers the weight's gradient from m rows of dy and x.
    pub fn weight_gradient(&mut self, name: &str, dy: Tensor, x: Tensor, linear: &Linear, adding: Adding) {
        let Linear { n, k, .. } = *linear;
        let kernel = GemmWgrad { x: self.x };
        let whole = GemmWgradArgs {
            dy,
            x,
            micro: self.gradients().micro,
            dw: linear.weight.trained().expect("a matrix that trains").grad,
            m: (x.elems / u64::from(k)) as u32,
            n,
            k,
            accumulate: u32::from(adding == Adding::Always),
            splits: 0,
            semaphores: None,
        };
        let (splits, semaphores) = self.divided(kernel.division(&whole.into(), self.b.arch()));
        self.launch(&format!("{name}.wgrad"), kernel, GemmWgradArgs { splits, semaphores, ..whole });
    }

    /// Lowers the input's gradient into dx, from as many rows of dy.
    pub fn input_gradient(&mut self, name: &str, dy: Tensor, linear: &Linear, dx: Tensor) {
        let Linear { n, k, .. } = *linear;
        let w = self.matrix(&format!("{name}.dgrad"), linear);
        let kernel = GemmDgrad { w: w.format, x: self.x };
        let whole = GemmDgradArgs {
            dy,
            w,
            dx,
            m: (dy.elems / u64::from(n)) as u32,
            n,
            k,
            splits: 0,
            semaphores: None,
            workspace: None,
        };
        let (splits, semaphores) = self.divided(kernel.division(&whole.into(), self.b.arch()));
        let elems = kernel.workspace(&whole.into());
        let workspace = semaphores.map(|_| self.statistics(&format!("{name}.dgrad_workspace"), elems));
        self.launch(&format!("{name}.dgrad"), kernel, GemmDgradArgs { splits, semaphores, workspace, ..whole });
    }

    /// Returns splits and semaphores of a launch that is faster divided by depth, if there are so many semaphores left.
    fn divided(&self, division: Option<(u32, u64)>) -> (u32, Option<Tensor>) {
        let divided = division.and_then(|(splits, count)| Some((splits, self.semaphores(count)?)));
        divided.map_or((0, None), |(splits, semaphores)| (splits, Some(semaphores)))
    }

    fn bias_gradient(&mut self, name: &str, dy: Tensor, n: u32, bias: &Weight) {
        let (rows, partial) = (self.tokens, format!("{name}.bias_partial"));
        let partials = self.statistics(&partial, u64::from(rows.div_ceil(GROUP)) * u64::from(n));
        let args = ColumnSumPartialArgs { x: dy, partial: partials, rows, n, group: GROUP };
        self.launch(&partial, ColumnSumPartial { x: self.x }, args);
        self.add_rows(&format!("{name}.bias"), partials, n, bias);
    }
}
