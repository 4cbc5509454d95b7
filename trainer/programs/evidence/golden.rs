//! A training run that every build of the program can repeat: the shapes of a built-in model, of few layers and tokens,
//! with weights from a seed. Its losses follow from the host references, in fp32; those are compared with PyTorch by
//! this project's golden cases.

use precast_fatbins::evidence::Golden;
use precast_plan::{Plan, Precision};
use precast_runtime::Device;

use crate::base::roles::Models;
use crate::device::DeviceError;
use crate::device::run_models::RunModels;
use crate::device::session::Session;
use crate::device::training::Training;
use crate::inputs::checkpoint::Weights;
use crate::inputs::data::MicroBatch;
use crate::inputs::random::Random;
use crate::options::{DeviceOptions, Options, RunConfig, ShapeOptions, TaughtBy, UsageError, WeightFormat};

const MODEL: &str = include_str!("smollm2-135m.json");
const CASE: &str = "smollm2-135m, 2 layers teach 1, 4 steps of 2 x 32 tokens";
const VOCAB: u32 = 512;
const BATCH: u32 = 2;
const SEQ_LEN: u32 = 32;
const LR: f64 = 1e-4;

/// The loss of each step, as the host references compute it in fp32.
const LOSSES: [f64; 4] = [3.865123927593231, 3.253772735595703, 2.675154983997345, 2.1509125530719757];

/// Returns the models of the case, with random weights.
fn models() -> RunModels<Box<dyn Weights>> {
    let model = |layers: u32, seed| -> Box<dyn Weights> {
        let mut config: serde_json::Value = serde_json::from_str(MODEL).expect("a built-in model");
        config["num_hidden_layers"] = layers.into();
        config["vocab_size"] = VOCAB.into();
        Box::new(Random::new(&config.to_string(), seed).expect("a built-in model").0)
    };
    let models = Models { teachers: vec![model(2, 1)], student: model(1, 2) };
    let (by, same_files, caches) = (vec![TaughtBy::Weights], vec![false], vec![None]);
    RunModels { models, adapter: None, by, same_files, caches }
}

fn config(target: &DeviceOptions, precision: Precision) -> Result<RunConfig, UsageError> {
    let mut options = Options { steps: (LOSSES.len() as u64).into(), target: target.clone(), ..Options::default() };
    options.models.teacher = vec!["built in".into()];
    options.models.student = Some("built in".into());
    options.teaching.teacher.teacher_format = Some(WeightFormat::Bf16);
    options.shape = ShapeOptions { batch_size: BATCH, seq_len: SEQ_LEN };
    (options.optimizer.lr, options.arithmetic.precision) = (LR, precision);
    options.planned()
}

/// Plans the case in bf16 on a device.
///
/// # Errors
/// [`DeviceError`] where no build serves the device.
pub(super) fn plan(target: &DeviceOptions, device: &Device) -> Result<Plan, DeviceError> {
    let config = config(target, Precision::Bf16)?;
    Ok(Training::fit_device(&models().shapes(), &config, device)?.plan.plan)
}

/// Trains the case in each precision.
///
/// # Errors
/// [`DeviceError`] of the device; what came of the runs is in the result.
pub(super) fn run(target: &DeviceOptions) -> Result<Vec<Golden>, DeviceError> {
    // The tolerance of a loss, as a share: that of golden cases, in fp32 for losses and in bf16 for divergences.
    let gates = [(Precision::Fp32, 2e-5), (Precision::Bf16, 3e-3)];
    gates.into_iter().map(|(precision, gate)| one(target, precision, gate)).collect()
}

fn one(target: &DeviceOptions, precision: Precision, gate: f64) -> Result<Golden, DeviceError> {
    let config = config(target, precision)?;
    let mut session = Session::of(&models(), &config)?;
    let batch = batch();
    let steps = (0..LOSSES.len() as u64).map(|step| {
        session.micro(&batch, (1.0 / f64::from(batch.counted)) as f32, 0)?;
        let ticket = session.update(step, LR)?;
        Ok(config.loss(&session.metrics(ticket)?.0))
    });
    let losses = steps.collect::<Result<Vec<f64>, DeviceError>>()?;
    let (case, precision) = (CASE.to_owned(), precision.to_string());
    Ok(Golden { case, precision, fault: fault(&losses, gate), losses, gate })
}

/// The tokens of every step.
fn batch() -> MicroBatch {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % VOCAB
    };
    let rows: Vec<Vec<u32>> = (0..BATCH).map(|_| (0..=SEQ_LEN).map(|_| next()).collect()).collect();
    MicroBatch::new(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>(), SEQ_LEN as usize)
}

/// The first loss that is too far from what the case says.
fn fault(losses: &[f64], gate: f64) -> Option<String> {
    let far = |(found, expected): &(&f64, &f64)| {
        let difference = (*found - *expected).abs() / expected.abs();
        !difference.is_finite() || difference > gate
    };
    let (step, (found, expected)) = losses.iter().zip(&LOSSES).enumerate().find(|(_, pair)| far(pair))?;
    Some(format!("the loss of step {} is {found}, the case says {expected} within {gate:e} of it", step + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::DeviceChoice;

    #[test]
    fn the_case_is_what_the_references_compute() {
        let sim = DeviceOptions { device: DeviceChoice::Sim, ..Options::default().target };
        for golden in run(&sim).unwrap() {
            assert_eq!(golden.fault, None, "{}: {:?}", golden.precision, golden.losses);
            assert_eq!(golden.losses.len(), LOSSES.len());
        }
        // It learns: losses that do not move would say nothing of gradients.
        const { assert!(LOSSES[3] < 0.99 * LOSSES[0]) };
    }

    #[test]
    fn a_loss_beyond_its_gate_is_a_fault() {
        let mut losses = LOSSES;
        losses[2] *= 1.0 + 3e-5;
        assert!(fault(&losses, 2e-5).is_some_and(|fault| fault.starts_with("the loss of step 3 is ")));
        assert_eq!(fault(&losses, 1e-3), None);
        losses[1] = f64::NAN;
        assert!(fault(&losses, 1.0).is_some_and(|fault| fault.starts_with("the loss of step 2 is NaN")));
    }
}
