//! The gated delta rule: convolution, rule and gated norm of rows that one GEMM computes.

use precast_kernels::abi::{
    ConvBwdArgs, ConvDecodeArgs, ConvDgradArgs, ConvFwdArgs, DeltaRuleBwdArgs, DeltaRuleDecodeArgs, DeltaRuleFwdArgs,
    DeltaRuleSolveArgs, DeltaRuleStateBwdArgs, GatedNormBwdArgs, GatedNormDgradArgs, GatedNormFwdArgs,
};
use precast_kernels::conv::{self, ConvBwd, ConvDecode, ConvDgrad, ConvFwd};
use precast_kernels::delta_rule::{
    self, CHUNK, DeltaRuleBwd, DeltaRuleDecode, DeltaRuleFwd, DeltaRuleSolve, DeltaRuleStateBwd, HEAD,
};
use precast_kernels::gated_norm::{GatedNormBwd, GatedNormDgrad, GatedNormFwd};

use super::adding::{ForwardPass, GROUP, Ops};
use crate::cache::{DecodeRows, DeltaRuleCache};
use crate::config::DeltaHeads;
use crate::weights::DeltaRuleWeights;
use precast_core::plan::Tensor;

/// Heads of a layer, and places in a row of its first GEMM.
#[derive(Clone, Copy)]
pub(crate) struct DeltaRuleHeads {
    keys: u32,
    values: u32,
    /// Convolved channels, first in a row; behind them gates, step sizes and decays.
    channels: u32,
    /// Elements of a row.
    columns: u32,
}

impl DeltaRuleHeads {
    pub fn of(heads: DeltaHeads) -> Self {
        Self { keys: heads.keys, values: heads.values, channels: heads.channels(), columns: heads.projected() }
    }

    /// Width of the output.
    fn width(self) -> u32 {
        self.values * HEAD
    }

    /// First column of step sizes.
    fn b_column(self) -> u32 {
        self.channels + self.width()
    }
}

/// Tensors that gradients need besides the rows of the first GEMM.
pub(crate) struct DeltaRuleSaved {
    /// Queries, keys and values behind their convolution.
    qkv: Tensor,
    solved: Solved,
    /// Outputs before the norm.
    o: Tensor,
    /// `v_new` and the states, of a forward pass that saves them.
    written: Option<[Tensor; 2]>,
}

/// Results of `delta_rule.solve`.
#[derive(Clone, Copy)]
struct Solved {
    decay: Tensor,
    beta: Tensor,
    scale: Tensor,
    inverse: Tensor,
    scores: Tensor,
}

impl Ops<'_> {
    /// Lowers the output of a layer's heads, `[tokens, value heads, 128]`, of the rows of its first GEMM.
    pub fn delta_rule(
        &mut self,
        name: &str,
        projected: Tensor,
        (heads, weights): (DeltaRuleHeads, &DeltaRuleWeights),
        pass: ForwardPass,
    ) -> (Tensor, DeltaRuleSaved) {
        let qkv = self.convolve("conv", projected, heads, weights);
        let solved = self.solve(&format!("{name}.solve"), qkv, projected, heads, weights);
        let keep = pass == ForwardPass::Saving;
        let o = self.rows(name, heads.width());
        let written = keep.then(|| {
            let states = u64::from(self.tokens.div_ceil(CHUNK)) * u64::from(heads.width() * HEAD);
            [self.rows(&format!("{name}.v_new"), heads.width()), self.elements(&format!("{name}.states"), states)]
        });
        let sequences = self.sequences();
        let Solved { decay, beta, scale, inverse, scores } = solved;
        let args = DeltaRuleFwdArgs {
            qkv,
            sequences: sequences.list,
            decay,
            beta,
            scale,
            inverse,
            scores,
            o,
            v_new: written.map(|[v_new, _]| v_new),
            states: written.map(|[_, states]| states),
            tokens: self.tokens,
            count: sequences.count(),
            seq_len: sequences.seq_len,
            key_heads: heads.keys,
            value_heads: heads.values,
        };
        self.launch(name, DeltaRuleFwd { keep, x: self.x }, args);
        let y = self.gated_norm("gated_norm", o, projected, (heads, weights));
        (y, DeltaRuleSaved { qkv, solved, o, written })
    }

    /// Like [`Self::delta_rule`], of rows in slots, which it moves on.
    pub fn delta_rule_decode(
        &mut self,
        name: &str,
        projected: Tensor,
        (heads, weights): (DeltaRuleHeads, &DeltaRuleWeights),
        cache: DeltaRuleCache,
    ) -> Tensor {
        let DecodeRows { slots: slot, positions: position, seq_len, .. } = self.decode_rows();
        let DeltaRuleCache { history, states, rounded, keys, scale, decay, inverse, change, slots } = cache;
        let (rows, qkv) = (self.tokens, self.rows("conv", heads.channels));
        let args = ConvDecodeArgs {
            x: projected,
            weight: weights.conv.tensor,
            slot,
            position,
            history,
            y: qkv,
            rows,
            slots,
            seq_len,
            channels: heads.channels,
            row_columns: heads.columns,
        };
        self.launch("conv", ConvDecode { x: self.x }, args);
        let o = self.rows(name, heads.width());
        let args = DeltaRuleDecodeArgs {
            qkv,
            gates: projected,
            rates: weights.decay.in_f32(),
            slot,
            position,
            states,
            rounded,
            keys,
            scale,
            decay,
            inverse,
            change,
            o,
            rows,
            slots,
            seq_len,
            key_heads: heads.keys,
            value_heads: heads.values,
            gate_columns: heads.columns,
            b_column: heads.b_column(),
        };
        self.launch(name, DeltaRuleDecode { x: self.x }, args);
        self.gated_norm("gated_norm", o, projected, (heads, weights))
    }

    /// Lowers the norm of heads, each times its gate.
    fn gated_norm(
        &mut self,
        name: &str,
        x: Tensor,
        gates: Tensor,
        (heads, weights): (DeltaRuleHeads, &DeltaRuleWeights),
    ) -> Tensor {
        let y = self.rows(name, heads.width());
        let args = GatedNormFwdArgs {
            x,
            gates,
            gamma: weights.norm.gamma.tensor,
            y,
            eps: weights.norm.eps,
            tokens: self.tokens,
            heads: heads.values,
            gate_columns: heads.columns,
            column: heads.channels,
        };
        self.launch(name, GatedNormFwd { d: HEAD, x: self.x }, args);
        y
    }

    fn convolve(&mut self, name: &str, x: Tensor, heads: DeltaRuleHeads, weights: &DeltaRuleWeights) -> Tensor {
        let (position, seq_len) = self.positions();
        let y = self.rows(name, heads.channels);
        let args = ConvFwdArgs {
            x,
            weight: weights.conv.tensor,
            position,
            y,
            tokens: self.tokens,
            seq_len,
            channels: heads.channels,
            row_columns: heads.columns,
        };
        self.launch(name, ConvFwd { x: self.x }, args);
        y
    }

    fn solve(
        &mut self,
        name: &str,
        qkv: Tensor,
        gates: Tensor,
        heads: DeltaRuleHeads,
        weights: &DeltaRuleWeights,
    ) -> Solved {
        let tokens = u64::from(self.tokens);
        let mut statistics =
            |part: &str, width: u32| self.statistics(&format!("{name}.{part}"), tokens * u64::from(width));
        let (decay, beta) = (statistics("decay", heads.values), statistics("beta", heads.values));
        let scale = statistics("scale", 2 * heads.keys);
        let [inverse, scores] =
            ["inverse", "scores"].map(|part| self.rows(&format!("{name}.{part}"), heads.values * CHUNK));
        let sequences = self.sequences();
        let args = DeltaRuleSolveArgs {
            qkv,
            gates,
            rates: weights.decay.in_f32(),
            sequences: sequences.list,
            decay,
            beta,
            scale,
            inverse,
            scores,
            tokens: self.tokens,
            count: sequences.count(),
            seq_len: sequences.seq_len,
            key_heads: heads.keys,
            value_heads: heads.values,
            gate_columns: heads.columns,
            b_column: heads.b_column(),
        };
        self.launch(name, DeltaRuleSolve { x: self.x }, args);
        Solved { decay, beta, scale, inverse, scores }
    }

    /// Lowers the gradient of the rows of the first GEMM, and of the weights that train.
    ///
    /// # Panics
    /// If the forward pass has saved no states.
    pub fn delta_rule_backward(
        &mut self,
        name: &str,
        dy: Tensor,
        projected: Tensor,
        (heads, weights): (DeltaRuleHeads, &DeltaRuleWeights),
        saved: DeltaRuleSaved,
    ) -> Tensor {
        let DeltaRuleSaved { qkv, solved, o, written } = saved;
        let [v_new, states] = written.expect("a forward pass that saves states");
        let dprojected = self.rows(&format!("{name}.dprojected"), heads.columns);
        let d_o = self.gated_norm_backward("gated_norm", dy, (o, projected), dprojected, (heads, weights));
        let [dvb, dstates] = self.state_gradients(&format!("{name}.state_bwd"), (qkv, d_o, states), solved, heads);
        let dqkv = self.rows(&format!("{name}.dqkv"), heads.channels);
        let sequences = self.sequences();
        let chunks = delta_rule::chunks(self.tokens, sequences.count());
        let partial =
            self.statistics(&format!("{name}.decay_partial"), u64::from(chunks) * u64::from(2 * heads.values));
        let args = DeltaRuleBwdArgs {
            qkv,
            gates: projected,
            rates: weights.decay.in_f32(),
            sequences: sequences.list,
            decay: solved.decay,
            beta: solved.beta,
            scale: solved.scale,
            scores: solved.scores,
            v_new,
            states,
            d_o,
            dvb,
            dstates,
            dqkv,
            dgates: dprojected,
            partial,
            tokens: self.tokens,
            count: sequences.count(),
            seq_len: sequences.seq_len,
            key_heads: heads.keys,
            value_heads: heads.values,
            gate_columns: heads.columns,
            b_column: heads.b_column(),
            chunks,
        };
        self.launch(&format!("{name}.bwd"), DeltaRuleBwd { x: self.x }, args);
        if weights.decay.trained().is_some() {
            self.add_rows(&format!("{name}.ddecay"), partial, 2 * heads.values, &weights.decay);
        }
        self.convolve_backward("conv", (dqkv, dprojected), projected, heads, weights);
        dprojected
    }

    /// Lowers the gradients of what is written to states, and of the states.
    fn state_gradients(
        &mut self,
        name: &str,
        (qkv, d_o, states): (Tensor, Tensor, Tensor),
        solved: Solved,
        heads: DeltaRuleHeads,
    ) -> [Tensor; 2] {
        let dvb = self.rows(&format!("{name}.dvb"), heads.width());
        let dstates = self.elements(&format!("{name}.dstates"), states.elems);
        let sequences = self.sequences();
        let Solved { decay, beta, scale, inverse, scores } = solved;
        let args = DeltaRuleStateBwdArgs {
            qkv,
            sequences: sequences.list,
            decay,
            beta,
            scale,
            inverse,
            scores,
            d_o,
            dvb,
            dstates,
            tokens: self.tokens,
            count: sequences.count(),
            seq_len: sequences.seq_len,
            key_heads: heads.keys,
            value_heads: heads.values,
        };
        self.launch(name, DeltaRuleStateBwd { x: self.x }, args);
        [dvb, dstates]
    }

    /// Lowers the gradients through the gated norm: of heads, which it returns, of gates, and of gamma if it trains.
    fn gated_norm_backward(
        &mut self,
        name: &str,
        dy: Tensor,
        (x, gates): (Tensor, Tensor),
        dgates: Tensor,
        (heads, weights): (DeltaRuleHeads, &DeltaRuleWeights),
    ) -> Tensor {
        let (norm, tokens, column, gate_columns) = (&weights.norm, self.tokens, heads.channels, heads.columns);
        let dx = self.rows(&format!("{name}.dx"), heads.width());
        let (gamma, eps, heads) = (norm.gamma.tensor, norm.eps, heads.values);
        if norm.gamma.trained().is_none() {
            let args = GatedNormDgradArgs { x, gates, gamma, dy, dx, dgates, eps, tokens, heads, gate_columns, column };
            self.launch(&format!("{name}.dgrad"), GatedNormDgrad { d: HEAD, x: self.x }, args);
            return dx;
        }
        let groups = u64::from(tokens.div_ceil(GROUP));
        let partial = self.statistics(&format!("{name}.dgamma_partial"), groups * u64::from(HEAD));
        #[rustfmt::skip]
        let args = GatedNormBwdArgs {
            x, gates, gamma, dy, dx, dgates, dgamma_partial: partial, eps, tokens, heads, gate_columns, column,
            rows: GROUP,
        };
        self.launch(&format!("{name}.bwd"), GatedNormBwd { d: HEAD, x: self.x }, args);
        self.add_rows(&format!("{name}.dgamma"), partial, HEAD, &norm.gamma);
        dx
    }

    /// Lowers the gradient of the convolved channels, and of the convolution's weight if it trains.
    fn convolve_backward(
        &mut self,
        name: &str,
        (dy, dx): (Tensor, Tensor),
        x: Tensor,
        heads: DeltaRuleHeads,
        weights: &DeltaRuleWeights,
    ) {
        let ((position, seq_len), tokens, conv) = (self.positions(), self.tokens, &weights.conv);
        let (weight, channels, row_columns) = (conv.tensor, heads.channels, heads.columns);
        if conv.trained().is_none() {
            let args = ConvDgradArgs { x, weight, position, dy, dx, tokens, seq_len, channels, row_columns };
            return self.launch(&format!("{name}.dgrad"), ConvDgrad { x: self.x }, args);
        }
        let (width, groups) = (channels * conv::TAPS, u64::from(tokens.div_ceil(GROUP)));
        let partial = self.statistics(&format!("{name}.dweight_partial"), groups * u64::from(width));
        #[rustfmt::skip]
        let args = ConvBwdArgs {
            x, weight, position, dy, dx, dweight_partial: partial, tokens, seq_len, channels, row_columns, rows: GROUP,
        };
        self.launch(&format!("{name}.bwd"), ConvBwd { x: self.x }, args);
        self.add_rows(&format!("{name}.dweight"), partial, width, conv);
    }
}
