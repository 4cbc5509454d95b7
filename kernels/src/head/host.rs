use rayon::prelude::*;

use super::{HeadDistill, HeadMetrics};
use crate::abi::{
    MASKED_TOKEN, head_ce_params, head_compare_params, head_distill_params, head_jsd_params, head_nll_params,
    micro_scalars, step_metrics,
};
use crate::host::{Views, exp, vectorized};

/// Independent partial sums, so that the loops over a vocabulary vectorize.
const LANES: usize = 16;

/// Terms that a lane adds up in f32 before it spills into an f64 total.
const BLOCK: usize = 64 * LANES;

/// Sums `N` terms of each pair of logits over a row, in f32 lanes and f64 totals.
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

/// Returns the largest element, or NaN if there is one.
#[inline(always)]
fn largest(row: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let larger = |a: f32, b: f32| if b > a || b.is_nan() { b } else { a };
    for chunk in row.chunks(LANES) {
        lanes.iter_mut().zip(chunk).for_each(|(lane, value)| *lane = larger(*lane, *value));
    }
    lanes.into_iter().fold(f32::NEG_INFINITY, larger)
}

pub(super) fn distill(key: &HeadDistill, p: &head_distill_params, views: &mut Views<'_>) {
    let reverse = key.reverse;
    let (temperature, inverse) = (p.temperature, 1.0 / p.temperature);
    rows(p.vocab, views, |s, t, loss_scale, target| {
        let [s_max, t_max] = [largest(s), largest(t)];
        let [s_sum, s_soft, t_soft, difference] = sums(s, t, |s, t| {
            let (soft, weight) = (exp((s - s_max) * inverse), exp((t - t_max) * inverse));
            let difference = if reverse { soft * ((s - t) * inverse) } else { weight * ((t - s) * inverse) };
            [exp(s - s_max), soft, weight, difference]
        });
        let s_lse = f64::from(s_max * inverse) + s_soft.ln();
        let t_lse = f64::from(t_max * inverse) + t_soft.ln();
        let mean = difference / if reverse { s_soft } else { t_soft };
        let kl = mean - if reverse { s_lse - t_lse } else { t_lse - s_lse };
        let ce = s_sum.ln() - f64::from(s[target] - s_max);
        let kd_scale = loss_scale * p.alpha * temperature;
        let ce_scale = loss_scale * (1.0 - p.alpha);
        let (s_soft, t_soft, s_sum) = (1.0 / s_soft as f32, 1.0 / t_soft as f32, 1.0 / s_sum as f32);
        let mean = mean as f32;
        for (s, t) in s.iter_mut().zip(t) {
            let soft = exp((*s - s_max) * inverse) * s_soft;
            let of_logit = match reverse {
                true => soft * ((*s - t) * inverse - mean),
                false => soft - exp((t - t_max) * inverse) * t_soft,
            };
            *s = kd_scale * of_logit + ce_scale * (exp(*s - s_max) * s_sum);
        }
        s[target] -= ce_scale;
        (kl, ce)
    });
}

/// Probabilities p of the teacher and q of the student beside their mixture `m = beta p + (1 - beta) q`.
struct Mixed {
    /// `ln(q / m)`.
    of_student: f32,
    /// `beta p ln(p / m) + (1 - beta) q ln(q / m)`, over the larger of the two.
    divergence: f32,
}

impl Mixed {
    /// Computes from `x = ln(p / q)`, by the smaller over the larger: nothing overflows, and equal ones give exactly 0.
    #[inline(always)]
    fn new(x: f32, beta: f32) -> Self {
        let (gap, of_smaller) = (x.abs(), if x > 0.0 { 1.0 - beta } else { beta });
        let smaller = exp(-gap);
        let share = 1.0 + of_smaller * (smaller - 1.0);
        let log_share = share.ln();
        Self { of_student: -log_share - x.max(0.0), divergence: -(of_smaller * smaller * gap + share * log_share) }
    }
}

pub(super) fn jsd(p: &head_jsd_params, views: &mut Views<'_>) {
    let (temperature, inverse, beta) = (p.temperature, 1.0 / p.temperature, p.beta);
    rows(p.vocab, views, |s, t, loss_scale, target| {
        let [s_max, t_max] = [largest(s), largest(t)];
        let [s_sum, s_soft, t_soft] =
            sums(s, t, |s, t| [exp(s - s_max), exp((s - s_max) * inverse), exp((t - t_max) * inverse)]);
        let s_lse = f64::from(s_max * inverse) + s_soft.ln();
        let t_lse = f64::from(t_max * inverse) + t_soft.ln();
        let ce = s_sum.ln() - f64::from(s[target] - s_max);
        let apart = (t_lse - s_lse) as f32;
        let (s_log, t_log) = (s_soft.ln() as f32, t_soft.ln() as f32);
        let ratio = |s: f32, t: f32| (t - s) * inverse - apart;
        let [divergence, of_student] = sums(s, t, |s, t| {
            let mixed = Mixed::new(ratio(s, t), beta);
            let soft = exp((s - s_max) * inverse - s_log);
            let larger = soft.max(exp((t - t_max) * inverse - t_log));
            [larger * mixed.divergence, soft * mixed.of_student]
        });
        let kd_scale = loss_scale * p.alpha * temperature * (1.0 - beta);
        let ce_scale = loss_scale * (1.0 - p.alpha);
        let (s_sum, of_student) = (1.0 / s_sum as f32, of_student as f32);
        for (s, t) in s.iter_mut().zip(t) {
            let soft = exp((*s - s_max) * inverse - s_log);
            let of_logit = soft * (Mixed::new(ratio(*s, *t), beta).of_student - of_student);
            *s = kd_scale * of_logit + ce_scale * (exp(*s - s_max) * s_sum);
        }
        s[target] -= ce_scale;
        (divergence, ce)
    });
}

/// Runs `of_row` on every counted row: it replaces the student's logits by their gradient, given the teacher's, the
/// loss scale and the target, and returns the divergence and the cross entropy.
fn rows(
    vocab: u32,
    views: &mut Views<'_>,
    of_row: impl Fn(&mut [f32], &[f32], f32, usize) -> (f64, f64) + Sync + Send,
) {
    let vocab = vocab as usize;
    let teacher = views.load("teacher");
    let targets = views.read::<u32>("targets");
    let loss_scale = views.read::<micro_scalars>("micro")[0].loss_scale;
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
        let (divergence, of_target) = vectorized(|| of_row(s, t, loss_scale, *target as usize));
        *kd = if divergence < 0.0 { 0.0 } else { divergence as f32 };
        *ce = of_target as f32;
    });
}

pub(super) fn ce(p: &head_ce_params, views: &mut Views<'_>) {
    let vocab = p.vocab as usize;
    let targets = views.read::<u32>("targets");
    let loss_scale = views.read::<micro_scalars>("micro")[0].loss_scale;
    let ce = views.write::<f32>("ce");
    let mut logits = views.store("logits");
    logits.par_chunks_mut(vocab).zip(ce).zip(targets).for_each(|((row, ce), target)| {
        if *target == MASKED_TOKEN {
            row.fill(0.0);
            *ce = 0.0;
            return;
        }
        let target = *target as usize;
        vectorized(|| {
            let max = largest(row);
            let [sum] = sums(row, row, |logit, _| [exp(logit - max)]);
            *ce = (sum.ln() - f64::from(row[target] - max)) as f32;
            let factor = loss_scale / sum as f32;
            row.iter_mut().for_each(|logit| *logit = factor * exp(*logit - max));
            row[target] -= loss_scale;
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

pub(super) fn compare(p: &head_compare_params, views: &mut Views<'_>) {
    let vocab = p.vocab as usize;
    let (reference, logits) = (views.load("reference"), views.load("logits"));
    let targets = views.read::<u32>("targets");
    let rows = reference.par_chunks(vocab).zip(logits.par_chunks(vocab)).zip(targets);
    let of_rows: Vec<[f32; 4]> = rows
        .map(|((r, s), target)| {
            if *target == MASKED_TOKEN {
                return [0.0; 4];
            }
            let target = *target as usize;
            vectorized(|| {
                let [r_max, s_max] = [largest(r), largest(s)];
                let [r_sum, s_sum, difference] = sums(r, s, |r, s| {
                    let weight = exp(r - r_max);
                    [weight, exp(s - s_max), weight * (r - s)]
                });
                let (r_log, s_log) = (r_sum.ln(), s_sum.ln());
                let divergence = difference / r_sum - (f64::from(r_max) - f64::from(s_max) + (r_log - s_log));
                let kl = if divergence < 0.0 { 0.0 } else { divergence as f32 };
                let first = |row: &[f32], max: f32| row.iter().position(|logit| *logit == max);
                let agrees = if first(r, r_max) == first(s, s_max) { 1.0 } else { 0.0 };
                let nll = |log: f64, row: &[f32], max: f32| (log - f64::from(row[target] - max)) as f32;
                [kl, agrees, nll(r_log, r, r_max), nll(s_log, s, s_max)]
            })
        })
        .collect();
    for (index, name) in ["kl", "agrees", "reference_nll", "nll"].into_iter().enumerate() {
        views.write::<f32>(name).iter_mut().zip(&of_rows).for_each(|(out, row)| *out = row[index]);
    }
}

pub(super) fn metrics(key: &HeadMetrics, views: &mut Views<'_>) {
    let total = |values: &[f32]| values.iter().map(|value| f64::from(*value)).sum::<f64>() as f32;
    let kd = if key.kd { total(views.read("kd")) } else { 0.0 };
    let ce = total(views.read("ce"));
    let micro = views.read::<micro_scalars>("micro")[0];
    let metrics = &mut views.write::<step_metrics>("metrics")[0];
    let (old_kd, old_ce) = if micro.accumulate == 0 { (0.0, 0.0) } else { (metrics.kd_loss, metrics.ce_loss) };
    metrics.kd_loss = old_kd + kd * micro.loss_scale;
    metrics.ce_loss = old_ce + ce * micro.loss_scale;
}
