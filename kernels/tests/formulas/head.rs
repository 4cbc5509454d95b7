use precast_kernels::Key;
use precast_kernels::abi::{
    MASKED_TOKEN, head_ce_params, head_compare_params, head_distill_params, head_jsd_params, head_metrics_params,
    head_nll_params,
};

use super::calculus::{gradient, log_sum_exp};
use super::launch::{Launch, field};

const MASKED: f64 = MASKED_TOKEN as f64;

/// (divergence of teacher and student at temperature, cross entropy) of one token. The divergence is forward KL for a beta
/// of 0, reverse KL for 1, and between them that of both from their mixture.
fn losses([teacher, student]: [&[f64]; 2], target: f64, temperature: f64, beta: f64) -> (f64, f64) {
    let [p, q] = [teacher, student].map(|row| {
        let scaled: Vec<f64> = row.iter().map(|logit| logit / temperature).collect();
        let total = log_sum_exp(&scaled);
        scaled.into_iter().map(|logit| logit - total).collect::<Vec<_>>()
    });
    let kl = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a.exp() * (a - b)).sum::<f64>();
    let mixture: Vec<f64> = p.iter().zip(&q).map(|(p, q)| (beta * p.exp() + (1.0 - beta) * q.exp()).ln()).collect();
    let divergence = match beta {
        0.0 => kl(&p, &q),
        1.0 => kl(&q, &p),
        _ => beta * kl(&p, &mixture) + (1.0 - beta) * kl(&q, &mixture),
    };
    (divergence, log_sum_exp(student) - student[target as usize])
}

/// Losses of each token and the gradient of a row's logits; nothing where it is masked. With alpha 0 the teacher is not
/// looked at.
fn trained(launch: &Launch, rows: [&str; 2], [alpha, temperature, beta]: [f64; 3]) -> [Vec<f64>; 3] {
    let (loss_scale, _) = launch.micro();
    let targets = launch.before("targets");
    assert!(targets.contains(&MASKED) && targets.iter().any(|target| *target != MASKED));
    let [teacher, student] = rows.map(|name| launch.before(name));
    let vocab = student.len() / targets.len();
    let mut out = [Vec::new(), Vec::new(), Vec::new()];
    for ((teacher, student), target) in teacher.chunks(vocab).zip(student.chunks(vocab)).zip(targets) {
        if target == MASKED {
            out[0].push(0.0);
            out[1].push(0.0);
            out[2].extend(vec![0.0; vocab]);
            continue;
        }
        let (kd, ce) = losses([teacher, student], target, temperature, beta);
        out[0].push(kd);
        out[1].push(ce);
        out[2].extend(gradient(student, |student| {
            let (kd, ce) = losses([teacher, student], target, temperature, beta);
            loss_scale * (alpha * temperature * temperature * kd + (1.0 - alpha) * ce)
        }));
    }
    out
}

pub fn distill(key: &Key) {
    let (tokens, vocab, alpha, temperature) = (9, 23, 0.3f32, 1.75f32);
    let launch = Launch::new(key, head_distill_params { tokens, vocab, alpha, temperature, ..Default::default() });
    let beta = if field(key, "reverse") == "true" { 1.0 } else { 0.0 };
    let [kd, ce, gradients] =
        trained(&launch, ["teacher", "student"], [f64::from(alpha), f64::from(temperature), beta]);
    launch.is("kd", &kd);
    launch.is("ce", &ce);
    launch.is("student", &gradients);
}

pub fn jsd(key: &Key) {
    let (tokens, vocab, alpha, temperature, beta) = (9, 23, 0.3f32, 1.75f32, 0.25f32);
    let launch = Launch::new(key, head_jsd_params { tokens, vocab, alpha, temperature, beta, ..Default::default() });
    let [kd, ce, gradients] =
        trained(&launch, ["teacher", "student"], [f64::from(alpha), f64::from(temperature), f64::from(beta)]);
    launch.is("kd", &kd);
    launch.is("ce", &ce);
    launch.is("student", &gradients);
}

pub fn ce(key: &Key) {
    let launch = Launch::new(key, head_ce_params { tokens: 9, vocab: 23, ..Default::default() });
    let [_, ce, gradients] = trained(&launch, ["logits", "logits"], [0.0, 1.0, 0.0]);
    launch.is("ce", &ce);
    launch.is("logits", &gradients);
}

pub fn nll(key: &Key) {
    let launch = Launch::new(key, head_nll_params { tokens: 9, vocab: 23, ..Default::default() });
    let logits = launch.before("logits");
    let rows = logits.chunks(23).zip(launch.before("targets"));
    let nll = rows.map(|(row, target)| if target == MASKED { 0.0 } else { losses([row, row], target, 1.0, 0.0).1 });
    launch.is("nll", &nll.collect::<Vec<_>>());
}

pub fn compare(key: &Key) {
    let launch = Launch::new(key, head_compare_params { tokens: 9, vocab: 23, ..Default::default() });
    let (reference, logits) = (launch.before("reference"), launch.before("logits"));
    let rows = reference.chunks(23).zip(logits.chunks(23)).zip(launch.before("targets"));
    let first = |row: &[f64]| (0..row.len()).reduce(|best, at| if row[at] > row[best] { at } else { best });
    let of_rows: Vec<[f64; 4]> = rows
        .map(|((r, s), target)| {
            if target == MASKED {
                return [0.0; 4];
            }
            let (kl, nll) = losses([r, s], target, 1.0, 0.0);
            let agrees = if first(r) == first(s) { 1.0 } else { 0.0 };
            [kl, agrees, losses([r, r], target, 1.0, 0.0).1, nll]
        })
        .collect();
    for (index, name) in ["kl", "agrees", "reference_nll", "nll"].into_iter().enumerate() {
        launch.is(name, &of_rows.iter().map(|row| row[index]).collect::<Vec<_>>());
    }
}

pub fn metrics(key: &Key) {
    let launch = Launch::new(key, head_metrics_params { tokens: 301, ..Default::default() });
    let ((loss_scale, adds), before) = (launch.micro(), launch.before("metrics"));
    let mean =
        |name: &str, old: f64| loss_scale * launch.before(name).iter().sum::<f64>() + if adds { old } else { 0.0 };
    let mut expected = before.clone();
    // Without a teacher there is no divergence to add.
    let kept = if adds { before[0] } else { 0.0 };
    let kd = if field(key, "kd") == "true" { mean("kd", before[0]) } else { kept };
    (expected[0], expected[1]) = (kd, mean("ce", before[1]));
    launch.is("metrics", &expected);
}
