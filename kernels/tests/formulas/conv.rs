use precast_kernels::abi::{IDLE_SLOT, conv_bwd_params, conv_decode_params, conv_dgrad_params, conv_fwd_params};

use super::calculus::{dot, dots, sigmoid};
use super::launch::Launch;

/// Tokens that a convolution reads.
const TAPS: usize = 4;

/// Rows of channels, and of others behind them.
struct Rows {
    channels: usize,
    columns: usize,
    positions: Vec<usize>,
}

impl Rows {
    fn new(launch: &Launch, channels: u32, columns: u32) -> Self {
        let positions = launch.before("position").into_iter().map(|position| position as usize).collect();
        Self { channels: channels as usize, columns: columns as usize, positions }
    }

    /// `y[t, c] = silu(sum over j of w[c, j] x[t - 3 + j, c])` over the tokens of the sequence of t.
    fn at(&self, x: &[f64], weight: &[f64], token: usize, channel: usize) -> f64 {
        let taps = weight[channel * TAPS..][..TAPS].iter().zip((0..TAPS).rev());
        let there = taps.filter(|(_, before)| *before <= token.min(self.positions[token]));
        let sum: f64 = there.map(|(tap, before)| tap * x[(token - before) * self.columns + channel]).sum();
        sum * sigmoid(sum)
    }

    fn forward(&self, x: &[f64], weight: &[f64]) -> Vec<f64> {
        let tokens = 0..self.positions.len();
        tokens.flat_map(|t| (0..self.channels).map(move |c| self.at(x, weight, t, c))).collect()
    }

    /// Asserts the gradient of the channels, and that what is behind them is as before.
    fn have_gradient(&self, launch: &Launch) {
        let [x, weight, dy, mut kept] = ["x", "weight", "dy", "dx"].map(|name| launch.before(name));
        let rest =
            |rows: &[f64]| rows.chunks(self.columns).flat_map(|row| row[self.channels..].to_vec()).collect::<Vec<_>>();
        assert_eq!(rest(&launch.after("dx")), rest(&kept));
        kept.chunks_mut(self.columns).for_each(|row| row[..self.channels].fill(0.0));
        // One loss of all tokens: neighbors read each other.
        launch.is_gradient("dx", &x, |x| vec![dot(&self.forward(x, &weight), &dy) + dot(x, &kept)]);
    }
}

pub fn fwd(launch: &mut Launch) {
    let conv_fwd_params { channels, row_columns, .. } = launch.params();
    let rows = Rows::new(launch, channels, row_columns);
    launch.goes("wide rows", row_columns > channels);
    launch.is("y", &rows.forward(&launch.before("x"), &launch.before("weight")));
}

/// The last row of the slot's tokens, of which it keeps three.
pub fn decode(launch: &mut Launch) {
    let conv_decode_params { channels, row_columns, .. } = launch.params();
    let (channels, kept) = (channels as usize, TAPS - 1);
    let [x, weight, slots, positions] = ["x", "weight", "slot", "position"].map(|name| launch.before(name));
    let (mut history, mut y) = (launch.before("history"), Vec::new());
    for (row, (slot, position)) in x.chunks(row_columns as usize).zip(slots.iter().zip(&positions)) {
        if launch.goes("idle", *slot == f64::from(IDLE_SLOT)) {
            y.extend(vec![0.0; channels]);
            continue;
        }
        let history = &mut history[*slot as usize * kept * channels..][..kept * channels];
        let tokens = [&*history, &row[..channels]].concat();
        let there = kept - kept.min(*position as usize);
        y.extend((0..channels).map(|channel| {
            let taps = (there..TAPS).map(|tap| weight[channel * TAPS + tap] * tokens[tap * channels + channel]);
            let sum: f64 = taps.sum();
            sum * sigmoid(sum)
        }));
        history.copy_from_slice(&tokens[channels..]);
    }
    launch.is("y", &y);
    launch.is("history", &history);
}

pub fn dgrad(launch: &mut Launch) {
    let conv_dgrad_params { channels, row_columns, .. } = launch.params();
    Rows::new(launch, channels, row_columns).have_gradient(launch);
}

pub fn bwd(launch: &mut Launch) {
    let conv_bwd_params { tokens, channels, row_columns, rows: group, .. } = launch.params();
    let rows = Rows::new(launch, channels, row_columns);
    rows.have_gradient(launch);
    let [x, weight, dy] = ["x", "weight", "dy"].map(|name| launch.before(name));
    let groups = tokens.div_ceil(group) as usize;
    launch.is_gradient("dweight_partial", &weight.repeat(groups), |weights| {
        let of_group = |(index, weight): (usize, &[f64])| {
            let mut losses = vec![0.0; rows.channels];
            for token in (index * group as usize..(index + 1) * group as usize).take_while(|t| *t < tokens as usize) {
                let y: Vec<f64> = (0..rows.channels).map(|c| rows.at(&x, weight, token, c)).collect();
                let shares = dots(&y, &dy[token * rows.channels..][..rows.channels], 1);
                losses.iter_mut().zip(shares).for_each(|(loss, share)| *loss += share);
            }
            losses
        };
        weights.chunks(weight.len()).enumerate().flat_map(of_group).collect()
    });
}
