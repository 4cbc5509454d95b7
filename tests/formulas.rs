//! What golden cases do not reach, against formulas in f64: masks, temperature and weights of the loss, its slope, and
//! the optimizer with clip and decay.

use precast::inputs::checkpoint::{Checkpoint, CheckpointError, Scratch, Weights};
use precast::inputs::data::MicroBatch;
use precast::options::schedule::Schedule;
use precast_plan::{Precision, Recipe};
use precast_system::files::Existing;

use crate::support::prelude::*;

/// A teacher with a wider vocabulary and biases everywhere, an untied student without any.
fn models() -> Case {
    Case::of([&model_config("wide"), &tiny_config(&[("tie_word_embeddings", false.into())])], 0)
}

/// Rows of different lengths: the rest of each is masked.
fn ragged() -> Vec<Vec<u32>> {
    vec![(1..=17).collect(), vec![5, 9, 2], vec![90, 91, 92, 93, 94, 95, 0, 7], vec![3]]
}

fn batch(rows: &[Vec<u32>], seq_len: usize) -> MicroBatch {
    let rows: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
    MicroBatch::new(&rows, seq_len)
}

fn log_softmax(row: &[f32], temperature: f64) -> Vec<f64> {
    let scaled: Vec<f64> = row.iter().map(|value| f64::from(*value) / temperature).collect();
    let largest = scaled.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let lse = largest + scaled.iter().map(|value| (value - largest).exp()).sum::<f64>().ln();
    scaled.iter().map(|value| value - lse).collect()
}

/// The divergence of two softmaxes, by their logarithms.
fn divergence(beta: f64, t: &[f64], s: &[f64]) -> f64 {
    let kl = |p: &[f64], q: &[f64]| p.iter().zip(q).map(|(p, q)| p.exp() * (p - q)).sum::<f64>();
    let m: Vec<f64> = t.iter().zip(s).map(|(t, s)| (beta * t.exp() + (1.0 - beta) * s.exp()).ln()).collect();
    match beta {
        0.0 => kl(t, s),
        1.0 => kl(s, t),
        beta => beta * kl(t, &m) + (1.0 - beta) * kl(s, &m),
    }
}

/// (divergence at temperature, cross entropy), means over the tokens that count.
fn losses(models: [&Path; 2], rows: &[Vec<u32>], (temperature, beta): (f64, f64), vocab: usize) -> (f64, f64) {
    let (mut kd, mut ce, mut counted) = (0.0, 0.0, 0);
    for row in rows.iter().filter(|row| row.len() > 1) {
        let inputs = &row[..row.len() - 1];
        let [teacher, student] = models.map(|model| logits(model, inputs));
        let width = teacher.len() / inputs.len();
        for (position, target) in row[1..].iter().enumerate() {
            // The teacher's logits are truncated to the student's vocabulary before the softmax.
            let t = log_softmax(&teacher[position * width..][..vocab], temperature);
            let s = log_softmax(&student[position * vocab..][..vocab], temperature);
            kd += divergence(beta, &t, &s);
            ce -= log_softmax(&student[position * vocab..][..vocab], 1.0)[*target as usize];
            counted += 1;
        }
    }
    (kd / f64::from(counted), ce / f64::from(counted))
}

fn close(found: f32, expected: f64, gate: f64) {
    let difference = (f64::from(found) - expected).abs() / expected.abs();
    assert!(difference <= gate, "{found} is not {expected}: {difference:e}");
}

#[test]
fn masked_losses_are_means_over_the_tokens_that_count() {
    let models = models();
    let rows = ragged();
    for beta in BETAS {
        let config = config(&models.teacher, &models.student, |options| {
            options.shape.batch_size = 4;
            options.teaching.temperature = 3.0.into();
            options.teaching.alpha = 0.3.into();
            options.teaching.teacher.beta = beta.into();
        });
        let mut session = session(&config);
        let batch = batch(&rows, 16);
        assert_eq!(batch.counted, 16 + 2 + 7);
        session.micro(&batch, 1.0 / batch.counted as f32, 0).unwrap();
        let ticket = session.update(0, 1e-3).unwrap();
        let (metrics, _) = session.metrics(ticket).unwrap();
        // A process has one GPU open.
        drop(session);
        let (kd, ce) = losses([&models.teacher, &models.student], &rows, (3.0, beta.into()), 96);
        close(metrics.kd_loss, kd, 1e-5);
        close(metrics.ce_loss, ce, 1e-5);
    }
}

/// Divergences of all three forms.
const BETAS: [f32; 3] = [0.0, 1.0, 0.3];

/// The gradient of the loss along a random direction equals the loss's own change along it.
#[test]
fn the_gradient_is_that_of_the_loss() {
    BETAS.into_iter().for_each(has_the_slope_of_the_loss);
}

fn has_the_slope_of_the_loss(beta: f32) {
    let models = models();
    let rows = ragged();
    let (temperature, alpha) = (3.0f64, 0.3f64);
    let config = config(&models.teacher, &models.student, |options| {
        options.shape.batch_size = 4;
        options.teaching.temperature = (temperature as f32).into();
        options.teaching.alpha = (alpha as f32).into();
        options.teaching.teacher.beta = beta.into();
    });
    let mut session = session(&config);
    let batch = batch(&rows, 16);
    session.micro(&batch, 1.0 / batch.counted as f32, 0).unwrap();
    // The head's weight is linear in the logits: a step along its gradient, small enough for first order.
    let parameter = session.plan.student.weights.parameters.list.iter().find(|p| p.name == "lm_head.weight").cloned();
    let parameter = parameter.unwrap();
    let gradient = floats(&session.read(session.trained_of(&parameter).grad).unwrap());
    drop(session);
    let square: f64 = gradient.iter().map(|g| f64::from(*g) * f64::from(*g)).sum();
    let loss = |shift: f64| {
        let dir = tempfile::tempdir().unwrap();
        let shifted = dir.path().join("shifted");
        let source = Checkpoint::open(&models.student).unwrap();
        let parameters = precast_plan::Parameters::new(source.config()).list;
        let model = precast::inputs::checkpoint::ModelSource {
            config: &source.json,
            parameters: &parameters,
            dtype: precast::inputs::checkpoint::stored(precast_kernels::Dtype::F32),
            tokenizer_from: &[],
        };
        precast::inputs::checkpoint::write_model(
            &shifted,
            Existing::Keep,
            &model,
            |p, write| -> Result<(), CheckpointError> {
                let mut values = floats(source.read(p, precast_kernels::Dtype::F32.into(), &mut Scratch::default())?);
                if p.name == parameter.name {
                    values.iter_mut().zip(&gradient).for_each(|(value, g)| *value += (shift * f64::from(*g)) as f32);
                }
                write(bytemuck::cast_slice(&values))
            },
        )
        .unwrap();
        let (kd, ce) = losses([&models.teacher, &shifted], &rows, (temperature, beta.into()), 96);
        alpha * temperature * temperature * kd + (1.0 - alpha) * ce
    };
    let step = 1e-2 / square.sqrt();
    let slope = (loss(step) - loss(-step)) / (2.0 * step);
    assert!((slope / square - 1.0).abs() < 2e-3, "slope {slope}, gradient squared {square}");
}

#[test]
fn the_optimizer_is_adamw_with_clip_and_decay_of_matrices() {
    let models = models();
    let (clip, decay) = (0.05f64, 0.1f64);
    let config = config(&models.teacher, &models.student, |options| {
        options.optimizer.clip = clip as f32;
        options.optimizer.weight_decay = decay as f32;
        (options.optimizer.lr, options.optimizer.warmup) = (1e-2, 2);
        (options.optimizer.schedule, options.steps) = (Schedule::Cosine, 4.into());
    });
    let mut session = session(&config);
    let parameters = session.plan.student.weights.parameters.list.clone();
    let read = |bytes: Vec<u8>| -> Vec<f64> { floats(&bytes).into_iter().map(f64::from).collect() };
    let mut weights: Vec<Vec<f64>> = parameters.iter().map(|p| read(session.master(p).unwrap())).collect();
    let mut m: Vec<Vec<f64>> = weights.iter().map(|w| vec![0.0; w.len()]).collect();
    let mut v = m.clone();
    for step in 0..4u64 {
        let start = 5 * step as u32;
        let rows = vec![(start..start + 17).collect(), (start + 40..start + 57).collect()];
        session.micro(&batch(&rows, 16), 1.0 / 32.0, 0).unwrap();
        let gradients: Vec<Vec<f64>> =
            parameters.iter().map(|p| read(session.read(session.trained_of(p).grad).unwrap())).collect();
        let norm = gradients.iter().flatten().map(|g| g * g).sum::<f64>().sqrt();
        let lr = config.optimizer.lr_of(step, config.steps());
        let ticket = session.update(step, lr).unwrap();
        let (metrics, _) = session.metrics(ticket).unwrap();
        close(metrics.grad_norm, norm, 1e-6);
        let scale = (clip / (norm + 1e-6)).min(1.0);
        assert!(scale < 1.0, "the clip is not reached");
        let correction = |beta: f64| 1.0 - beta.powi(step as i32 + 1);
        for (index, parameter) in parameters.iter().enumerate() {
            let decay = if parameter.shape.len() > 1 { decay } else { 0.0 };
            for i in 0..weights[index].len() {
                let g = scale * gradients[index][i];
                let (m, v) = (&mut m[index][i], &mut v[index][i]);
                *m = 0.9 * *m + 0.1 * g;
                *v = 0.999 * *v + 0.001 * g * g;
                let change = *m / correction(0.9) / ((*v / correction(0.999)).sqrt() + f64::from(Recipe::EPS));
                weights[index][i] -= lr * (decay * weights[index][i] + change);
            }
            let found = floats(&session.master(parameter).unwrap());
            let expected: Vec<f32> = weights[index].iter().map(|w| *w as f32).collect();
            // A gradient of nearly zero makes Adam's quotient sensitive to its rounding.
            let distance = distance(&found, &expected);
            assert!(distance < 5e-6, "step {step}, {}: {distance:e}", parameter.name);
        }
    }
}

#[test]
fn a_teacher_equal_to_the_student_gives_exactly_zero() {
    // In int8 the student is another model than its teacher.
    let (models, exact) = (models(), [Precision::Fp32, Precision::Bf16]);
    for (precision, beta) in exact.into_iter().flat_map(|precision| BETAS.map(|beta| (precision, beta))) {
        let config = config(&models.student, &models.student, |options| {
            options.teaching.teacher.beta = beta.into();
            options.teaching.alpha = 1.0.into();
            options.optimizer.weight_decay = 0.0;
            options.teaching.temperature = 1.7.into();
            options.arithmetic.precision = precision;
        });
        let mut session = session(&config);
        // Without cross entropy or decay nothing moves, so it stays zero.
        for step in 0..3 {
            let rows = vec![(step..step + 17).collect(), (step + 30..step + 47).collect()];
            session.micro(&batch(&rows, 16), 1.0 / 32.0, 0).unwrap();
            let ticket = session.update(u64::from(step), 1e-3).unwrap();
            let (metrics, _) = session.metrics(ticket).unwrap();
            assert_eq!((metrics.kd_loss, metrics.grad_norm), (0.0, 0.0), "{precision}");
        }
    }
}
