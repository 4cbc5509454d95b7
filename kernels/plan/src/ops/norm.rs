//! RMSNorm of the residual stream.

use precast_kernels::abi::{
    int8_rmsnorm_bwd_params, int8_rmsnorm_dgrad_params, int8_rmsnorm_fwd_params, rmsnorm_bwd_params,
    rmsnorm_dgrad_params, rmsnorm_fwd_params,
};
use precast_kernels::int8::{Int8RmsnormBwd, Int8RmsnormDgrad, Int8RmsnormFwd};
use precast_kernels::rmsnorm::{RmsnormBwd, RmsnormDgrad, RmsnormFwd};

use super::{GROUP, Ops, Rows};
use crate::buffer::Tensor;
use crate::weights::{Norm, Quantised};

/// What a norm gives: the normalised rows, and the scale of each, which its gradient needs.
#[derive(Clone, Copy)]
pub(crate) struct Normed {
    pub y: Tensor,
    pub rstd: Tensor,
    /// The rows for products of 8 bits.
    int8: Option<Quantised>,
}

impl Normed {
    pub fn rows(self) -> Rows {
        Rows { dense: Some(self.y), int8: self.int8 }
    }
}

impl Norm {
    pub(super) fn width(&self) -> u32 {
        self.gamma.tensor.elems as u32
    }
}

impl Ops<'_> {
    /// RMSNorm of `x`, `[tokens, hidden]`; with `int8` for a product of 8 bits, too.
    pub fn norm(&mut self, name: &str, x: Tensor, norm: &Norm, int8: bool) -> Normed {
        self.normalise(name, x, None, norm, int8)
    }

    /// Adds a branch to the residual stream, and normalises the sum; returns both.
    pub fn add_norm(&mut self, name: &str, x: Tensor, branch: Tensor, norm: &Norm, int8: bool) -> (Tensor, Normed) {
        let sum = self.rows(&format!("{name}.sum"), norm.width());
        (sum, self.normalise(name, x, Some((branch, sum)), norm, int8))
    }

    fn normalise(&mut self, name: &str, x: Tensor, added: Option<(Tensor, Tensor)>, norm: &Norm, int8: bool) -> Normed {
        let h = norm.width();
        let rstd = self.statistics(&format!("{name}.rstd"), self.tokens().into());
        let y = self.rows(name, h);
        if int8 {
            let int8 = self.quantised_rows(name, h);
            let params = int8_rmsnorm_fwd_params {
                x: x.address(),
                delta: added.map_or(0, |(branch, _)| branch.address()),
                sum: added.map_or(0, |(_, sum)| sum.address()),
                gamma: norm.gamma.tensor.address(),
                y: y.address(),
                rstd: rstd.address(),
                q: int8.values.address(),
                scale: int8.scales.address(),
                eps: norm.eps,
                tokens: self.tokens(),
            };
            self.launch(name, Int8RmsnormFwd { h, residual: added.is_some(), x: self.x }, &params);
            return Normed { y, rstd, int8: Some(int8) };
        }
        let params = rmsnorm_fwd_params {
            x: x.address(),
            delta: added.map_or(0, |(branch, _)| branch.address()),
            sum: added.map_or(0, |(_, sum)| sum.address()),
            gamma: norm.gamma.tensor.address(),
            y: y.address(),
            rstd: rstd.address(),
            eps: norm.eps,
            tokens: self.tokens(),
        };
        self.launch(name, RmsnormFwd { h, residual: added.is_some(), x: self.x }, &params);
        Normed { y, rstd, int8: None }
    }

    /// Gradient through a norm of x, added to the residual stream's gradient if there is one; and gamma's if that trains. With
    /// `int8` for a product of 8 bits, too, where one launch gives both.
    pub fn norm_backward(
        &mut self,
        name: &str,
        dy: Tensor,
        (x, normed): (Tensor, Normed),
        norm: &Norm,
        dresidual: Option<Tensor>,
        int8: bool,
    ) -> Rows {
        let (h, tokens) = (norm.width(), self.tokens());
        let dx = self.rows(&format!("{name}.dx"), h);
        let residual = dresidual.is_some();
        let int8 = (int8 && Int8RmsnormBwd::fits(h)).then(|| self.quantised_rows(&format!("{name}.dx"), h));
        let rows = Rows { dense: Some(dx), int8 };
        if norm.gamma.trained().is_none() {
            let label = format!("{name}.dgrad");
            if let Some(int8) = int8 {
                let params = int8_rmsnorm_dgrad_params {
                    dy: dy.address(),
                    x: x.address(),
                    gamma: norm.gamma.tensor.address(),
                    rstd: normed.rstd.address(),
                    dresidual: dresidual.map_or(0, Tensor::address),
                    dx: dx.address(),
                    q: int8.values.address(),
                    scale: int8.scales.address(),
                    tokens,
                    reserved: 0,
                };
                self.launch(&label, Int8RmsnormDgrad { h, residual, x: self.x }, &params);
                return rows;
            }
            let params = rmsnorm_dgrad_params {
                dy: dy.address(),
                x: x.address(),
                gamma: norm.gamma.tensor.address(),
                rstd: normed.rstd.address(),
                dresidual: dresidual.map_or(0, Tensor::address),
                dx: dx.address(),
                tokens,
                reserved: 0,
            };
            self.launch(&label, RmsnormDgrad { h, residual, x: self.x }, &params);
            return rows;
        }
        let groups = tokens.div_ceil(GROUP);
        let partial = self.statistics(&format!("{name}.dgamma_partial"), u64::from(groups) * u64::from(h));
        let label = format!("{name}.bwd");
        if let Some(int8) = int8 {
            let params = int8_rmsnorm_bwd_params {
                dy: dy.address(),
                x: x.address(),
                gamma: norm.gamma.tensor.address(),
                rstd: normed.rstd.address(),
                dresidual: dresidual.map_or(0, Tensor::address),
                dx: dx.address(),
                dgamma_partial: partial.address(),
                q: int8.values.address(),
                scale: int8.scales.address(),
                tokens,
                rows: GROUP,
            };
            self.launch(&label, Int8RmsnormBwd { h, residual, x: self.x }, &params);
        } else {
            let params = rmsnorm_bwd_params {
                dy: dy.address(),
                x: x.address(),
                gamma: norm.gamma.tensor.address(),
                rstd: normed.rstd.address(),
                dresidual: dresidual.map_or(0, Tensor::address),
                dx: dx.address(),
                dgamma_partial: partial.address(),
                tokens,
                rows: GROUP,
            };
            self.launch(&label, RmsnormBwd { h, residual, x: self.x }, &params);
        }
        self.add_rows(&format!("{name}.dgamma"), partial, h, &norm.gamma);
        rows
    }
}
