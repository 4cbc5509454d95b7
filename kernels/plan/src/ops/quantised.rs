//! Products of 8 bits: what they read is rotated and quantised, a scale for each row, by what makes it.

use precast_kernels::abi::{
    int8_columns_params, int8_fwd_params, int8_quantize_params, int8_rmsnorm_params, int8_swiglu_params,
};
use precast_kernels::int8::{Int8Columns, Int8Fwd, Int8Quantize, Int8Rmsnorm, Int8Swiglu};
use precast_kernels::{Dtype, Format};

use super::{Ops, Rows};
use crate::buffer::Tensor;
use crate::weights::{Layer, Linear, Norm, Quantised, Scaled, Weight, Weights};

impl Ops<'_> {
    /// Rows of a width that something quantises.
    pub(super) fn quantised_rows(&mut self, name: &str, width: u32) -> Quantised {
        let elems = u64::from(self.tokens()) * u64::from(width);
        let values = self.b.transient(self.name(&format!("{name}.int8")), Dtype::I8, elems);
        Quantised { values, scales: self.statistics(&format!("{name}.scales"), self.tokens().into()) }
    }

    /// Activations as what made them gave them, or quantised behind that.
    pub fn quantised(&mut self, name: &str, x: Rows, width: u32) -> Quantised {
        x.int8.unwrap_or_else(|| self.quantise(name, x.dense(), width))
    }

    /// Activations `[tokens, width]`.
    pub fn quantise(&mut self, name: &str, x: Tensor, width: u32) -> Quantised {
        let quantised = self.quantised_rows(name, width);
        self.quantise_into(&format!("{name}.quantise"), x, quantised);
        quantised
    }

    /// A matrix: its rows, and where gradients pass its columns.
    pub fn quantise_matrix(&mut self, name: &str, w: Tensor, Scaled { rows, columns, .. }: Scaled) {
        self.quantise_into(&format!("{name}.quantise"), w, rows);
        if let Some(columns) = columns {
            self.quantise_columns(&format!("{name}.columns"), w, columns);
        }
    }

    /// The matrices of a layer, which lie one behind the other as in flat buffers, from `dense` on.
    pub fn quantise_layer(&mut self, weights: &Weights, layer: usize, dense: Tensor) {
        let start = weights.parameters.layer(layer).start;
        let products = Layer::PRODUCTS.into_iter().zip(weights.layers[layer].products());
        for ((name, linear), range) in products.zip(&weights.parameters.layers[layer]) {
            let w = dense.slice(range.start - start, range.end - range.start);
            self.quantise_matrix(&format!("layers.{layer}.{name}"), w, linear.weight.scaled());
        }
    }

    fn quantise_columns(&mut self, name: &str, x: Tensor, Quantised { values, scales }: Quantised) {
        let Format::Dense(dtype) = x.format else { panic!("{name}: what is quantised is dense") };
        let params = int8_columns_params {
            x: x.address(),
            q: values.address(),
            scale: scales.address(),
            columns: scales.elems as u32,
            ..Default::default()
        };
        self.launch(name, Int8Columns { n: (x.elems / scales.elems) as u32, x: dtype }, &params);
    }

    fn quantise_into(&mut self, name: &str, x: Tensor, Quantised { values, scales }: Quantised) {
        let Format::Dense(dtype) = x.format else { panic!("{name}: what is quantised is dense") };
        let params = int8_quantize_params {
            x: x.address(),
            q: values.address(),
            scale: scales.address(),
            rows: scales.elems as u32,
            ..Default::default()
        };
        self.launch(name, Int8Quantize { k: (x.elems / scales.elems) as u32, x: dtype }, &params);
    }

    /// RMSNorm of `x`, `[tokens, hidden]`.
    pub fn norm_quantised(&mut self, name: &str, x: Tensor, norm: &Norm) -> Quantised {
        self.normalise_quantised(name, x, None, norm)
    }

    /// Adds a branch to the residual stream, and normalises the sum; returns both.
    pub fn add_norm_quantised(&mut self, name: &str, x: Tensor, branch: Tensor, norm: &Norm) -> (Tensor, Quantised) {
        let sum = self.rows(&format!("{name}.sum"), norm.width());
        (sum, self.normalise_quantised(name, x, Some((branch, sum)), norm))
    }

    fn normalise_quantised(
        &mut self,
        name: &str,
        x: Tensor,
        added: Option<(Tensor, Tensor)>,
        norm: &Norm,
    ) -> Quantised {
        let h = norm.width();
        let quantised = self.quantised_rows(name, h);
        let params = int8_rmsnorm_params {
            x: x.address(),
            delta: added.map_or(0, |(branch, _)| branch.address()),
            sum: added.map_or(0, |(_, sum)| sum.address()),
            gamma: norm.gamma.tensor.address(),
            q: quantised.values.address(),
            scale: quantised.scales.address(),
            eps: norm.eps,
            tokens: self.tokens(),
        };
        self.launch(name, Int8Rmsnorm { h, residual: added.is_some(), x: self.x }, &params);
        quantised
    }

    /// A linear layer of quantised rows, added to the residual stream if there is one.
    pub fn linear_quantised(&mut self, name: &str, x: Quantised, linear: &Linear, residual: Option<Tensor>) -> Tensor {
        let y = self.rows(name, linear.n);
        self.product_quantised(name, (x, linear.weight.scaled().rows), linear.bias, residual, y);
        y
    }

    /// The gradient of the input of a linear layer into dx, from quantised rows of dy.
    ///
    /// # Panics
    /// If no gradient passes through the layer.
    pub fn input_gradient_quantised(&mut self, name: &str, dy: Quantised, linear: &Linear, dx: Tensor) {
        let columns = linear.weight.scaled().columns.expect("a matrix that gradients pass through");
        self.product_quantised(&format!("{name}.dgrad"), (dy, columns), None, None, dx);
    }

    /// `y [m, n] = x w^T (+ bias) (+ residual)`, x [m, k], w [n, k].
    fn product_quantised(
        &mut self,
        name: &str,
        (x, w): (Quantised, Quantised),
        bias: Option<Weight>,
        residual: Option<Tensor>,
        y: Tensor,
    ) {
        let (m, n) = (x.scales.elems, w.scales.elems);
        let params = int8_fwd_params {
            x: x.values.address(),
            w: w.values.address(),
            x_scale: x.scales.address(),
            w_scale: w.scales.address(),
            bias: bias.map_or(0, |bias| bias.tensor.address()),
            residual: residual.map_or(0, Tensor::address),
            y: y.address(),
            m: m as u32,
            n: n as u32,
            k: (x.values.elems / m) as u32,
            ..Default::default()
        };
        let key = Int8Fwd { bias: bias.is_some(), residual: residual.is_some(), y: self.x };
        self.launch(name, key, &params);
    }

    /// SwiGLU of a stacked gate and up projection of quantised rows.
    pub fn linear_swiglu_quantised(&mut self, name: &str, x: Quantised, gate_up: &Linear) -> Tensor {
        let Linear { bias, n, k, .. } = *gate_up;
        let w = gate_up.weight.scaled().rows;
        let y = self.rows(name, n / 2);
        let params = int8_swiglu_params {
            x: x.values.address(),
            w: w.values.address(),
            x_scale: x.scales.address(),
            w_scale: w.scales.address(),
            bias: bias.map_or(0, |bias| bias.tensor.address()),
            y: y.address(),
            m: self.tokens(),
            n: n / 2,
            k,
            ..Default::default()
        };
        self.launch(name, Int8Swiglu { bias: bias.is_some(), y: self.x }, &params);
        y
    }
}
