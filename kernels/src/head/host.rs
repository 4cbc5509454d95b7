use rayon::prelude::*;

use crate::abi::{MASKED_TOKEN, head_distill_params, head_nll_params, micro_scalars, step_metrics};
use crate::host::{Views, exp, vectorized};

/// Independent partial sums, so that the loops over a vocabulary vectorise.
const LANES: usize = 16;

/// Terms a lane adds up in f32 before it spills into an f64 total.
const BLOCK: usize = 64 * LANES;

/// Sums over a row of `N` terms of each pair of logits, in f32 lanes and f64 totals.
#[inline(always)]
fn sums<const N: usize>(s: &[f32], t: &[f32], terms: impl Fn(f32, f32) -> [f32; N]) -> [f64; N] {
    let mut totals = [0.0f64; N];
    for (s, t) in s.chunks(BLOCK).zip(t.chunks(BLOCK)) {
        let mut lanes = [[0.0f32; LANES]; N];
        let (s_lanes, t_lanes) = (s.chunks_exact(LANES), t.chunks_exact(LANES));
        let rest = s_lanes.remainder().iter().zip(t_lanes.remainder());
        for (s, t) in s_lanes.zip(t_lanes) {
            for lane in 0..LANES {
                let values = terms(s[lane], t[lane]);
                (0..N).for_each(|n| lanes[n][lane] += values[n]);
            }
        }
        for (s, t) in rest {
            let values = terms(*s, *t);
            (0..N).for_each(|n| totals[n] += f64::from(values[n]));
        }
        (0..N).for_each(|n| totals[n] += lanes[n].iter().map(|lane| f64::from(*lane)).sum::<f64>());
    }
    totals
}

/// The largest element, or NaN if there is one.
#[inline(always)]
fn largest(row: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let larger = |a: f32, b: f32| if b > a || b.is_nan() { b } else { a };
    for chunk in row.chunks(LANES) {
        lanes.iter_mut().zip(chunk).for_each(|(lane, value)| *lane = larger(*lane, *value));
    }
    lanes.into_iter().fold(f32::NEG_INFINITY, larger)
}

pub(super) fn distill(p: &head_distill_params, views: &mut Views<'_>) {
    let (vocab, alpha, temperature) = (p.vocab as usize, p.alpha, p.temperature);
    let inverse = 1.0 / temperature;
    let teacher = views.load("teacher");
    let targets = views.read::<u32>("targets");
    let micro = views.read::<micro_scalars>("micro")[0];
    let kd = views.write::<f32>("kd");
    let ce = views.write::<f32>("ce");
    let mut student = views.store("student");

    let rows = student.par_chunks_mut(vocab).zip(teacher.par_chunks(vocab));
    rows.zip(kd).zip(ce).zip(targets).for_each(|((((s, t), kd), ce), target)| {
        if *target == MASKED_TOKEN {
            s.fill(0.0);
            (*kd, *ce) = (0.0, 0.0);
            return;
        }
        vectorized(|| {
            let (s_max, t_max) = (largest(s), largest(t));
            let [s_sum, s_soft, t_soft, difference] = sums(s, t, |s, t| {
                let weight = exp((t - t_max) * inverse);
                [exp(s - s_max), exp((s - s_max) * inverse), weight, weight * ((t - s) * inverse)]
            });
            let s_lse = f64::from(s_max * inverse) + s_soft.ln();
            let t_lse = f64::from(t_max * inverse) + t_soft.ln();
            let kl = difference / t_soft - (t_lse - s_lse);
            *kd = if kl < 0.0 { 0.0 } else { kl as f32 };
            *ce = (s_sum.ln() - f64::from(s[*target as usize] - s_max)) as f32;

            let kd_scale = micro.loss_scale * alpha * temperature;
            let ce_scale = micro.loss_scale * (1.0 - alpha);
            let (s_soft, t_soft) = (1.0 / s_soft as f32, 1.0 / t_soft as f32);
            let s_sum = 1.0 / s_sum as f32;
            for (s, t) in s.iter_mut().zip(t) {
                let soft = exp((*s - s_max) * inverse) * s_soft - exp((t - t_max) * inverse) * t_soft;
                *s = kd_scale * soft + ce_scale * (exp(*s - s_max) * s_sum);
            }
            s[*target as usize] -= ce_scale;
        });
    });
}

pub(super) fn nll(p: &head_nll_params, views: &mut Views<'_>) {
    let vocab = p.vocab as usize;
    let logits = views.load("logits");
    let targets = views.read::<u32>("targets");
    let nll = views.write::<f32>("nll");
    nll.par_iter_mut().zip(logits.par_chunks(vocab)).zip(targets).for_each(|((nll, row), target)| {
        *nll = if *target == MASKED_TOKEN {
            0.0
        } else {
            let max = vectorized(|| largest(row));
            let [total] = vectorized(|| sums(row, row, |logit, _| [exp(logit - max)]));
            (total.ln() - f64::from(row[*target as usize] - max)) as f32
        };
    });
}

pub(super) fn metrics(views: &mut Views<'_>) {
    let total = |values: &[f32]| values.iter().map(|value| f64::from(*value)).sum::<f64>() as f32;
    let kd = total(views.read("kd"));
    let ce = total(views.read("ce"));
    let micro = views.read::<micro_scalars>("micro")[0];
    let metrics = &mut views.write::<step_metrics>("metrics")[0];
    let (old_kd, old_ce) = if micro.accumulate == 0 { (0.0, 0.0) } else { (metrics.kd_loss, metrics.ce_loss) };
    metrics.kd_loss = old_kd + kd * micro.loss_scale;
    metrics.ce_loss = old_ce + ce * micro.loss_scale;
}
