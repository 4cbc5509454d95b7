//! RMSNorm of the residual stream, and of what is added to it.

use precast_kernels::Out;
use precast_kernels::abi::{PostNormFwdArgs, RmsnormBwdArgs, RmsnormDgradArgs, RmsnormFwdArgs};
use precast_kernels::post_norm::PostNormFwd;
use precast_kernels::rmsnorm::{RmsnormBwd, RmsnormDgrad, RmsnormFwd};

use super::adding::{GROUP, Ops};
use super::rows::ActivationRows;
use crate::weights::Norm;
use precast_core::plan::Tensor;

/// Result of a norm.
#[derive(Clone, Copy)]
pub(crate) struct Normed {
    pub rows: ActivationRows,
    /// Reciprocal root mean square of each row, which the gradient needs; none if rows are in int8 alone.
    pub rstd: Option<Tensor>,
}

/// A branch of the residual stream before the norm behind it.
#[derive(Clone, Copy)]
pub(crate) struct NormedBranch {
    pub y: Tensor,
    /// As that of [`Normed`].
    pub rstd: Option<Tensor>,
}

impl Norm {
    fn width(&self) -> u32 {
        self.gamma.tensor.elems as u32
    }
}

impl Ops<'_> {
    /// Lowers RMSNorm of `x`, `[tokens, hidden]`.
    pub fn norm(&mut self, name: &str, x: Tensor, norm: &Norm, out: Out) -> Normed {
        self.normalize(name, x, None, norm, out)
    }

    /// Adds a branch to the residual stream, and normalizes the sum; returns both.
    pub fn add_norm(&mut self, name: &str, x: Tensor, branch: Tensor, norm: &Norm, out: Out) -> (Tensor, Normed) {
        let sum = self.rows(&format!("{name}.sum"), norm.width());
        (sum, self.normalize(name, x, Some((branch, sum)), norm, out))
    }

    /// Adds a normalized branch to the residual stream, and normalizes the sum if there is a `next` norm, of this name,
    /// to these formats; writes the sum to `output`, if that is given. Returns it, and what the gradients need.
    pub fn add_normed(
        &mut self,
        name: &str,
        (x, branch): (Tensor, Tensor),
        norm: &Norm,
        next: Option<(&str, &Norm, Out)>,
        output: Option<Tensor>,
    ) -> (Tensor, NormedBranch, Option<Normed>) {
        let (h, out) = (norm.width(), next.map_or(Out::Dense, |(_, _, out)| out));
        let mut kept =
            |name: &str| out.is_dense().then(|| self.statistics(&format!("{name}.rstd"), self.tokens.into()));
        let (rstd, next_rstd) = (kept(&format!("{name}_norm")), next.and_then(|(name, ..)| kept(name)));
        let sum = output.unwrap_or_else(|| self.rows(&format!("{name}.sum"), h));
        let rows = next.map(|(name, _, out)| self.rows_in(out, name, h));
        let [y, q, scale] = rows.map_or([None; 3], ActivationRows::tensors);
        let args = PostNormFwdArgs {
            x,
            branch,
            gamma: norm.gamma.tensor,
            next_gamma: next.map(|(_, next, _)| next.gamma.tensor),
            rstd,
            sum,
            next_rstd,
            y,
            eps: norm.eps,
            tokens: self.tokens,
            q,
            scale,
        };
        let key = PostNormFwd { gamma: norm.gamma_form, h, next: next.is_some(), out, x: self.x };
        self.launch(&format!("{name}_norm"), key, args);
        (sum, NormedBranch { y: branch, rstd }, rows.map(|rows| Normed { rows, rstd: next_rstd }))
    }

    fn normalize(&mut self, name: &str, x: Tensor, added: Option<(Tensor, Tensor)>, norm: &Norm, out: Out) -> Normed {
        let h = norm.width();
        let rstd = out.is_dense().then(|| self.statistics(&format!("{name}.rstd"), self.tokens.into()));
        let rows = self.rows_in(out, name, h);
        let [y, q, scale] = rows.tensors();
        let args = RmsnormFwdArgs {
            x,
            delta: added.map(|(branch, _)| branch),
            sum: added.map(|(_, sum)| sum),
            gamma: norm.gamma.tensor,
            y,
            rstd,
            eps: norm.eps,
            tokens: self.tokens,
            q,
            scale,
        };
        self.launch(name, RmsnormFwd { gamma: norm.gamma_form, h, out, residual: added.is_some(), x: self.x }, args);
        Normed { rows, rstd }
    }

    /// Lowers the gradient through a norm of x, added to the residual stream's gradient if given; and gamma's if it
    /// trains. `out`: the requested formats, of which one launch may not give all.
    pub fn norm_backward(
        &mut self,
        name: &str,
        dy: Tensor,
        (x, rstd): (Tensor, Option<Tensor>),
        norm: &Norm,
        dresidual: Option<Tensor>,
        out: Out,
    ) -> ActivationRows {
        let (h, tokens, residual) = (norm.width(), self.tokens, dresidual.is_some());
        let out = RmsnormBwd::writes(h, out);
        let rows = self.rows_in(out, &format!("{name}.dx"), h);
        let (dx, [_, q, scale]) = (rows.dense(), rows.tensors());
        let (gamma, form, rstd) =
            (norm.gamma.tensor, norm.gamma_form, rstd.expect("a gradient is of rows in their own dtype"));
        if norm.gamma.trained().is_none() {
            let args = RmsnormDgradArgs { dy, x, gamma, rstd, dresidual, dx, tokens, q, scale };
            self.launch(&format!("{name}.dgrad"), RmsnormDgrad { gamma: form, h, out, residual, x: self.x }, args);
            return rows;
        }
        let groups = tokens.div_ceil(GROUP);
        let partial = self.statistics(&format!("{name}.dgamma_partial"), u64::from(groups) * u64::from(h));
        #[rustfmt::skip]
        let args = RmsnormBwdArgs {
            dy, x, gamma, rstd, dresidual, dx, dgamma_partial: partial, tokens, rows: GROUP, q, scale,
        };
        self.launch(&format!("{name}.bwd"), RmsnormBwd { gamma: form, h, out, residual, x: self.x }, args);
        self.add_rows(&format!("{name}.dgamma"), partial, h, &norm.gamma);
        rows
    }
}
