use precast_kernels::abi::{MASKED_TOKEN, NO_TOKEN, head_distill_params, head_jsd_params, head_topk_params};

use super::calculus::log_sum_exp;
use super::launch::Launch;

const MASKED: f64 = MASKED_TOKEN as f64;

/// (divergence of teacher and student at temperature, cross entropy) of one token. The divergence is forward KL for a
/// beta of 0, reverse KL for 1, and between them that of both from their mixture.
fn losses([teacher, student]: [&[f64]; 2], target: f64, temperature: f64, beta: f64) -> (f64, f64) {
    let [p, q] = [teacher, student].map(|row| {
        let scaled: Vec<f64> = row.iter().map(|logit| logit / temperature).collect();
        let total = log_sum_exp(&scaled);
        scaled.into_iter().map(|logit| logit - total).collect::<Vec<_>>()
    });
    let kl = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a.exp() * (a - b)).sum::<f64>();
    // By the larger of the two: both may vanish.
    let mixed = |p: f64, q: f64| p.max(q) + (beta * (p - p.max(q)).exp() + (1.0 - beta) * (q - p.max(q)).exp()).ln();
    let mixture: Vec<f64> = p.iter().zip(&q).map(|(p, q)| mixed(*p, *q)).collect();
    let divergence = match beta {
        0.0 => kl(&p, &q),
        1.0 => kl(&q, &p),
        _ => beta * kl(&p, &mixture) + (1.0 - beta) * kl(&q, &mixture),
    };
    (divergence, log_sum_exp(student) - student[target as usize])
}

/// (teacher, student, target) of each token as a closure makes of them, nothing where it is masked.
fn of_tokens<const N: usize>(
    launch: &Launch,
    [teacher, student]: [&[f64]; 2],
    of_token: impl Fn([&[f64]; 2], f64) -> [f64; N],
) -> [Vec<f64>; N] {
    let targets = launch.before("targets");
    let vocab = student.len() / targets.len();
    let rows = teacher.chunks(vocab).zip(student.chunks(vocab)).zip(targets);
    let of_token = |((teacher, student), target)| {
        if launch.goes("masked", target == MASKED) { [0.0; N] } else { of_token([teacher, student], target) }
    };
    let all: Vec<[f64; N]> = rows.map(of_token).collect();
    std::array::from_fn(|index| all.iter().map(|one| one[index]).collect())
}

/// Factor of logits whose softmaxes are of one token.
const SHARP: f64 = 40.0;

/// Asserts losses of each token and the gradient of its logits, also of sharp softmaxes. With alpha 0 the teacher is
/// not looked at.
fn is_trained(launch: &mut Launch, names: [&str; 2], options: [f32; 3]) {
    are_losses(launch, names, options);
    let sharp = names.map(|name| launch.before(name).iter().map(|logit| SHARP * logit).collect::<Vec<_>>());
    launch.again();
    names.iter().zip(&sharp).for_each(|(name, logits)| launch.set(name, logits));
    are_losses(launch, names, options);
    let [teacher, student] = names;
    if teacher != student {
        launch.again();
        launch.set(teacher, &sharp[1]);
        assert!(launch.after("kd").iter().all(|kd| *kd == 0.0), "equal rows diverge by exactly nothing");
        let has_gradient = launch.after(student).iter().any(|gradient| *gradient != 0.0);
        assert!(!launch.goes("divergence alone", options[0] == 1.0) || !has_gradient, "equal rows teach nothing");
    }
}

fn are_losses(launch: &Launch, [teacher, student]: [&str; 2], options: [f32; 3]) {
    let ([alpha, temperature, beta], loss_scale) = (options.map(f64::from), launch.loss_scale());
    let (taught, logits) = (launch.before(teacher), launch.before(student));
    let losses = |[teacher, student]: [&[f64]; 2], target| {
        let (kd, ce) = losses([teacher, student], target, temperature, beta);
        [kd, ce, loss_scale * (alpha * temperature * temperature * kd + (1.0 - alpha) * ce)]
    };
    let [kd, ce, _] = of_tokens(launch, [&taught, &logits], losses);
    if teacher != student {
        launch.is("kd", &kd);
    }
    launch.is("ce", &ce);
    launch.is_gradient(student, &logits, |logits| {
        let [_, _, loss] = of_tokens(launch, [&taught, logits], losses);
        loss
    });
    let (targets, gradient) = (launch.before("targets"), launch.after(student));
    let mut rows = targets.iter().zip(gradient.chunks(gradient.len() / targets.len()));
    let is_still = |row: &[f64]| row.iter().all(|gradient| *gradient == 0.0);
    assert!(rows.all(|(target, row)| *target != MASKED || is_still(row)), "a masked token has a gradient");
}

pub fn distill(launch: &mut Launch) {
    let head_distill_params { alpha, temperature, .. } = launch.params();
    let beta = if launch.flag("reverse") { 1.0 } else { 0.0 };
    is_trained(launch, ["teacher", "student"], [alpha, temperature, beta]);
}

pub fn jsd(launch: &mut Launch) {
    let head_jsd_params { alpha, temperature, beta, .. } = launch.params();
    is_trained(launch, ["teacher", "student"], [alpha, temperature, beta]);
}

/// The divergence of one token over known tokens and all others as one, and the cross entropy.
fn losses_of_known(
    (ids, log_probs): (&[f64], &[f64]),
    student: &[f64],
    target: f64,
    [temperature, beta]: [f64; 2],
) -> (f64, f64) {
    let known: Vec<usize> = ids.iter().filter(|id| **id != f64::from(NO_TOKEN)).map(|id| *id as usize).collect();
    let log_probs = [&log_probs[..known.len()], &log_probs[ids.len()..]].concat();
    let (mut few, mut rest) = (Vec::new(), Vec::new());
    known.iter().for_each(|id| few.push(student[*id] / temperature));
    (0..student.len()).filter(|id| !known.contains(id)).for_each(|id| rest.push(student[id] / temperature));
    few.push(log_sum_exp(&rest));
    // Logarithms of probabilities are logits at temperature 1.
    let (divergence, _) = losses([&log_probs, &few], 0.0, 1.0, beta);
    (divergence, log_sum_exp(student) - student[target as usize])
}

pub fn topk(launch: &mut Launch) {
    let p: head_topk_params = launch.params();
    let ([alpha, temperature, beta], loss_scale) =
        ([p.alpha, p.temperature, p.beta].map(f64::from), launch.loss_scale());
    launch.goes("forward", beta == 0.0);
    launch.goes("reverse", beta == 1.0);
    let (ids, log_probs, targets) = (launch.before("ids"), launch.before("log_probs"), launch.before("targets"));
    let (keep, vocab) = (p.keep as usize, p.vocab as usize);
    for factor in [1.0, SHARP] {
        let student: Vec<f64> = launch.before("student").iter().map(|logit| factor * logit).collect();
        if factor > 1.0 {
            launch.again();
            launch.set("student", &student);
        }
        let student = launch.before("student");
        let of_token = |launch: &Launch, token: usize, row: &[f64]| {
            let known = (&ids[token * keep..][..keep], &log_probs[token * (keep + 1)..][..keep + 1]);
            match launch.goes("masked", targets[token] == MASKED) {
                true => (0.0, 0.0),
                false => {
                    launch.goes("the target is known", known.0.contains(&targets[token]));
                    launch.goes("tokens are lacking", known.0.contains(&f64::from(NO_TOKEN)));
                    losses_of_known(known, row, targets[token], [temperature, beta])
                }
            }
        };
        let of_rows = |launch: &Launch, rows: &[f64]| -> Vec<(f64, f64)> {
            rows.chunks(vocab).enumerate().map(|(token, row)| of_token(launch, token, row)).collect()
        };
        let expected = of_rows(launch, &student);
        launch.is("kd", &expected.iter().map(|(kd, _)| *kd).collect::<Vec<_>>());
        launch.is("ce", &expected.iter().map(|(_, ce)| *ce).collect::<Vec<_>>());
        launch.is_gradient("student", &student, |rows| {
            let loss =
                |(kd, ce): (f64, f64)| loss_scale * (alpha * temperature * temperature * kd + (1.0 - alpha) * ce);
            of_rows(launch, rows).into_iter().map(loss).collect()
        });
    }
}

pub fn ce(launch: &mut Launch) {
    is_trained(launch, ["logits", "logits"], [0.0, 1.0, 0.0]);
}

pub fn nll(launch: &mut Launch) {
    let logits = launch.before("logits");
    let [nll] = of_tokens(launch, [&logits, &logits], |rows, target| [losses(rows, target, 1.0, 0.0).1]);
    launch.is("nll", &nll);
}

pub fn compare(launch: &mut Launch) {
    let (reference, logits) = (launch.before("reference"), launch.before("logits"));
    let first = |row: &[f64]| (0..row.len()).reduce(|best, at| if row[at] > row[best] { at } else { best });
    let of_rows = of_tokens(launch, [&reference, &logits], |[r, s], target| {
        let (kl, nll) = losses([r, s], target, 1.0, 0.0);
        let agrees = if launch.goes("agrees", first(r) == first(s)) { 1.0 } else { 0.0 };
        [kl, agrees, losses([r, r], target, 1.0, 0.0).1, nll]
    });
    for (name, of_rows) in ["kl", "agrees", "reference_nll", "nll"].into_iter().zip(of_rows) {
        launch.is(name, &of_rows);
    }
}

pub fn metrics(launch: &mut Launch) {
    let old = launch.kept("metrics", launch.is_later());
    let mean = |name: &str| launch.loss_scale() * launch.before(name).iter().sum::<f64>();
    let mut expected = launch.before("metrics");
    // Without a teacher there is no divergence to add.
    let kd = if launch.flag("kd") { mean("kd") } else { 0.0 };
    (expected[0], expected[1]) = (old[0] + kd, old[1] + mean("ce"));
    launch.is("metrics", &expected);
}
