//! The references of the head against the definitions of its losses in f64: divergences as sums over the vocabulary, gradients
//! as central differences of the loss.

use precast_kernels::Key;
use precast_kernels::abi::{MASKED_TOKEN, micro_scalars};
use precast_kernels::check::Case;
use precast_kernels::host::Buffer;

/// Terms of a row's loss.
#[derive(Clone, Copy)]
struct Loss {
    alpha: f64,
    temperature: f64,
    /// None where there is no teacher.
    beta: Option<f64>,
}

fn log_softmax(row: &[f64], temperature: f64) -> Vec<f64> {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let scaled: Vec<f64> = row.iter().map(|logit| (logit - largest) / temperature).collect();
    let lse = scaled.iter().map(|value| value.exp()).sum::<f64>().ln();
    scaled.iter().map(|value| value - lse).collect()
}

/// `KL(p || q)` of logarithms.
fn kl(p: &[f64], q: &[f64]) -> f64 {
    p.iter().zip(q).map(|(p, q)| if *p < -700.0 { 0.0 } else { p.exp() * (p - q) }).sum()
}

impl Loss {
    /// (divergence, cross entropy) of a row.
    fn parts(self, s: &[f64], t: &[f64], target: usize) -> (f64, f64) {
        let ce = -log_softmax(s, 1.0)[target];
        let Some(beta) = self.beta else { return (0.0, ce) };
        let (s, t) = (log_softmax(s, self.temperature), log_softmax(t, self.temperature));
        let kd = match beta {
            0.0 => kl(&t, &s),
            1.0 => kl(&s, &t),
            beta => {
                // ln m by the larger of the two.
                let mixed = |(t, s): (&f64, &f64)| {
                    let larger = t.max(*s);
                    larger + (beta * (t - larger).exp() + (1.0 - beta) * (s - larger).exp()).ln()
                };
                let m: Vec<f64> = t.iter().zip(&s).map(mixed).collect();
                beta * kl(&t, &m) + (1.0 - beta) * kl(&s, &m)
            }
        };
        (kd, ce)
    }

    fn total(self, s: &[f64], t: &[f64], target: usize) -> f64 {
        let (kd, ce) = self.parts(s, t, target);
        self.alpha * self.temperature * self.temperature * kd + (1.0 - self.alpha) * ce
    }
}

/// A launch with its key, and what it minimizes.
fn launches() -> Vec<(Key, Vec<u8>, Loss, usize)> {
    let mut launches = Vec::new();
    for (text, is_mixture, form) in [
        ("head.ce{x=f32}", false, None),
        ("head.distill{reverse=false,x=f32}", false, Some(0.0)),
        ("head.distill{reverse=true,x=f32}", false, Some(1.0)),
        ("head.jsd{x=f32}", true, Some(f64::NAN)),
    ] {
        let key = Key::parse(text).unwrap();
        for params in key.kernel().samples() {
            let is_ce = form.is_none();
            let word = |at: usize| u32::from_ne_bytes(params[at..at + 4].try_into().unwrap());
            let addresses = if is_ce { 32 } else { 48 };
            let vocab = word(addresses + 4) as usize;
            if vocab > 1100 {
                continue;
            }
            let number = |at: usize| f64::from(f32::from_bits(word(addresses + at)));
            let loss = match is_ce {
                true => Loss { alpha: 0.0, temperature: 1.0, beta: None },
                false => {
                    let beta = if is_mixture { Some(number(16)) } else { form };
                    Loss { alpha: number(8), temperature: number(12), beta }
                }
            };
            launches.push((key.clone(), params, loss, vocab));
        }
    }
    assert_eq!(launches.len(), 5 * 3 + 3, "samples have changed");
    launches
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytemuck::pod_collect_to_vec(bytes)
}

fn doubles(bytes: &[u8]) -> Vec<f64> {
    floats(bytes).into_iter().map(f64::from).collect()
}

fn at(case: &Case, name: &str) -> Option<usize> {
    case.operands.iter().position(|operand| operand.name == name)
}

/// Multiplies every logit: softmaxes of one token.
fn sharpen(buffer: &mut Buffer, factor: f32) {
    let sharp: Vec<f32> = floats(buffer).into_iter().map(|logit| factor * logit).collect();
    *buffer = Buffer::from(bytemuck::cast_slice(&sharp));
}

fn losses_and_gradients(factor: f32) {
    for (key, params, loss, vocab) in launches() {
        let mut case = Case::new(&key, &params, 7);
        let logits = at(&case, "student").or(at(&case, "logits")).unwrap();
        let teacher = at(&case, "teacher");
        for index in [Some(logits), teacher].into_iter().flatten() {
            sharpen(&mut case.before[index], factor);
        }
        let read = |index: usize| doubles(&case.before[index]);
        let (s, t) = (read(logits), teacher.map(read));
        let targets: Vec<u32> = bytemuck::pod_collect_to_vec(&case.before[at(&case, "targets").unwrap()]);
        let micro: micro_scalars = bytemuck::pod_read_unaligned(&case.before[at(&case, "micro").unwrap()]);
        let scale = f64::from(micro.loss_scale);
        let after = case.reference();
        let gradients = doubles(&after[logits]);
        let ce = floats(&after[at(&case, "ce").unwrap()]);
        let kd = at(&case, "kd").map(|index| floats(&after[index]));
        for (row, target) in targets.iter().enumerate() {
            let of_row = |all: &[f64]| all[row * vocab..][..vocab].to_vec();
            let found = of_row(&gradients);
            if *target == MASKED_TOKEN {
                assert!(found.iter().all(|gradient| *gradient == 0.0) && ce[row] == 0.0, "{key}");
                assert!(kd.as_ref().is_none_or(|kd| kd[row] == 0.0), "{key}");
                continue;
            }
            let (mut s, target) = (of_row(&s), *target as usize);
            let t = t.as_ref().map(|t| of_row(t)).unwrap_or_default();
            let (expected_kd, expected_ce) = loss.parts(&s, &t, target);
            let close = |found: f32, expected: f64| (f64::from(found) - expected).abs() <= 2e-5 * expected.abs() + 1e-6;
            assert!(close(ce[row], expected_ce), "{key}: ce {} is not {expected_ce}", ce[row]);
            if let Some(kd) = &kd {
                assert!(close(kd[row], expected_kd), "{key}: kd {} is not {expected_kd}", kd[row]);
            }
            let largest = found.iter().fold(1e-3f64, |largest, gradient| largest.max(gradient.abs()));
            // A difference is two sums over the vocabulary.
            for index in (0..vocab).step_by(1 + vocab / 100) {
                let (logit, step) = (s[index], 1e-5);
                s[index] = logit + step;
                let above = loss.total(&s, &t, target);
                s[index] = logit - step;
                let below = loss.total(&s, &t, target);
                s[index] = logit;
                let expected = scale * (above - below) / (2.0 * step);
                let apart = (found[index] - expected).abs() / largest;
                assert!(apart <= 2e-5, "{key}: gradient {index} of {vocab}: {} is not {expected}", found[index]);
            }
        }
    }
}

#[test]
fn losses_and_gradients_are_those_of_their_definitions() {
    losses_and_gradients(1.0);
}

#[test]
fn softmaxes_of_one_token_lose_nothing() {
    losses_and_gradients(40.0);
}

#[test]
fn equal_rows_diverge_by_exactly_nothing() {
    for (key, params, loss, _) in launches().into_iter().filter(|launch| launch.2.beta.is_some()) {
        let mut case = Case::new(&key, &params, 3);
        let (student, teacher) = (at(&case, "student").unwrap(), at(&case, "teacher").unwrap());
        case.before[teacher] = case.before[student].clone();
        let after = case.reference();
        assert!(floats(&after[at(&case, "kd").unwrap()]).iter().all(|kd| *kd == 0.0), "{key}");
        if loss.alpha == 1.0 {
            assert!(floats(&after[student]).iter().all(|gradient| *gradient == 0.0), "{key}");
        }
    }
}
