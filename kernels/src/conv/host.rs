use rayon::prelude::*;

use super::{ConvBwd, ConvDecode, ConvDgrad, ConvFwd};
use crate::abi::{CONV_TAPS, IDLE_SLOT, conv_bwd_params, conv_decode_params, conv_dgrad_params, conv_fwd_params};
use crate::host::{Views, round_to, sigmoid};

const TAPS: usize = CONV_TAPS as usize;

/// Rows of channels of a launch.
struct Rows<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    position: &'a [u32],
    row_columns: usize,
}

impl Rows<'_> {
    /// Returns the tokens before one that its convolution reads.
    fn before(&self, token: usize) -> usize {
        (TAPS - 1).min(token).min(self.position[token] as usize)
    }

    /// Returns a channel's convolution at a token, before it is rounded.
    fn sum(&self, token: usize, channel: usize) -> f32 {
        let taps = &self.weight[channel * TAPS..][..TAPS];
        let terms = (0..=self.before(token)).rev();
        terms.map(|before| taps[TAPS - 1 - before] * self.x[(token - before) * self.row_columns + channel]).sum()
    }
}

/// The slope of SiLU.
fn slope(x: f32) -> f32 {
    let s = sigmoid(x);
    s * (1.0 + x * (1.0 - s))
}

pub(super) fn fwd(key: ConvFwd, p: &conv_fwd_params, views: &mut Views<'_>) {
    let (x, weight, position) = (views.load("x"), views.load("weight"), views.read("position"));
    let rows = Rows { x: &x, weight: &weight, position, row_columns: p.row_columns as usize };
    let mut y = views.store("y");
    y.par_chunks_mut(p.channels as usize).enumerate().for_each(|(token, row)| {
        for (channel, y) in row.iter_mut().enumerate() {
            let sum = round_to(key.x, rows.sum(token, channel));
            *y = sum * sigmoid(sum);
        }
    });
}

pub(super) fn decode(key: ConvDecode, p: &conv_decode_params, views: &mut Views<'_>) {
    let (x, weight) = (views.load("x"), views.load("weight"));
    let (slots, positions) = (views.read::<u32>("slot"), views.read::<u32>("position"));
    let [mut history, mut y] = ["history", "y"].map(|name| views.store(name));
    let (channels, before) = (p.channels as usize, TAPS - 1);
    let rows = x.chunks(p.row_columns as usize).zip(y.chunks_mut(channels));
    for ((x, y), (slot, position)) in rows.zip(slots.iter().zip(positions)) {
        y.fill(0.0);
        if *slot == IDLE_SLOT {
            continue;
        }
        let history = &mut history[*slot as usize * before * channels..][..before * channels];
        for (channel, (y, x)) in y.iter_mut().zip(x).enumerate() {
            let token = |back: usize| if back == 0 { *x } else { history[(before - back) * channels + channel] };
            let taps = &weight[channel * TAPS..][..TAPS];
            let terms = (0..=before.min(*position as usize)).rev().map(|back| taps[before - back] * token(back));
            let sum = round_to(key.x, terms.sum());
            *y = sum * sigmoid(sum);
        }
        history.rotate_left(channels);
        history[(before - 1) * channels..].copy_from_slice(&x[..channels]);
    }
}

/// Writes the gradient of the channels; returns that of each convolution.
fn gradient(x: crate::Dtype, rows: &Rows<'_>, dy: &[f32], dx: &mut [f32], channels: usize) -> Vec<f32> {
    let mut dsum = dy.to_vec();
    dsum.par_chunks_mut(channels).enumerate().for_each(|(token, row)| {
        for (channel, dsum) in row.iter_mut().enumerate() {
            *dsum *= slope(round_to(x, rows.sum(token, channel)));
        }
    });
    let tokens = dy.len() / channels;
    dx.par_chunks_mut(rows.row_columns).enumerate().for_each(|(token, row)| {
        for (channel, dx) in row[..channels].iter_mut().enumerate() {
            let readers = (token..tokens.min(token + TAPS)).filter(|reader| rows.before(*reader) >= reader - token);
            let taps = &rows.weight[channel * TAPS..][..TAPS];
            let terms = readers.map(|reader| taps[TAPS - 1 - (reader - token)] * dsum[reader * channels + channel]);
            *dx = terms.sum();
        }
    });
    dsum
}

pub(super) fn bwd(key: ConvBwd, p: &conv_bwd_params, views: &mut Views<'_>) {
    let (x, weight, position) = (views.load("x"), views.load("weight"), views.read("position"));
    let rows = Rows { x: &x, weight: &weight, position, row_columns: p.row_columns as usize };
    let (channels, group) = (p.channels as usize, p.rows as usize);
    let (dy, mut dx) = (views.load("dy"), views.store("dx"));
    let dsum = gradient(key.x, &rows, &dy, &mut dx, channels);
    let partial = views.write::<f32>("dweight_partial");
    partial.par_chunks_mut(channels * TAPS).zip(dsum.par_chunks(group * channels)).enumerate().for_each(
        |(index, (partial, dsum))| {
            for (channel, taps) in partial.chunks_mut(TAPS).enumerate() {
                for (tap, out) in taps.iter_mut().enumerate() {
                    let before = TAPS - 1 - tap;
                    let tokens = index * group..index * group + dsum.len() / channels;
                    let readers = tokens.filter(|token| rows.before(*token) >= before);
                    let terms = readers.map(|token| {
                        let dsum = dsum[(token - index * group) * channels + channel];
                        f64::from(dsum) * f64::from(x[(token - before) * rows.row_columns + channel])
                    });
                    *out = terms.sum::<f64>() as f32;
                }
            }
        },
    );
}

pub(super) fn dgrad(key: ConvDgrad, p: &conv_dgrad_params, views: &mut Views<'_>) {
    let (x, weight, position) = (views.load("x"), views.load("weight"), views.read("position"));
    let rows = Rows { x: &x, weight: &weight, position, row_columns: p.row_columns as usize };
    let (dy, mut dx) = (views.load("dy"), views.store("dx"));
    gradient(key.x, &rows, &dy, &mut dx, p.channels as usize);
}
