//! A training run that every build of the program can repeat: the shapes of a built-in model, of few layers and tokens,
//! with weights from a seed. Its losses follow from the host references, in fp32; those are compared with PyTorch by
//! this project's golden cases.

use precast_fatbins::evidence::Golden;
use precast_plan::{
    Adapters, DecodeRequest, Formats, GenerationPlan, ModelConfig, Objective, Plan, Precision, Recipe, Sampling, Slots,
    Student, TrainingPlan, TrainingRequest,
};
use precast_runtime::{Device, LoadError};
use precast_system::count;

use crate::base::roles::Models;
use crate::device::run_models::RunModels;
use crate::device::session::Session;
use crate::device::{self, DeviceError};
use crate::inputs::checkpoint::Weights;
use crate::inputs::data::MicroBatch;
use crate::inputs::random::Random;
use crate::options::{DeviceOptions, Options, RunConfig, ShapeOptions, UsageError, WeightFormat};

const MODEL: &str = include_str!("smollm2-135m.json");
const CASE: &str = "smollm2-135m, 2 layers teach 1, 4 steps of 2 x 32 tokens";
const VOCAB: u32 = 512;
const TEACHER_LAYERS: u32 = 2;
const STUDENT_LAYERS: u32 = 1;
const BATCH: u32 = 2;
const SEQ_LEN: u32 = 32;
const LR: f64 = 1e-4;

/// The loss of each step, as the host references compute it in fp32.
const LOSSES: [f64; 4] = [3.865123927593231, 3.253772735595703, 2.675154983997345, 2.1509125530719757];

/// Returns the tolerance of a loss, as a share of it: what golden cases allow of losses in fp32, and of divergences in
/// bf16.
fn gate(precision: Precision) -> f64 {
    if precision == Precision::Fp32 { 2e-5 } else { 3e-3 }
}

/// A model of the case.
fn model(layers: u32, seed: u64) -> Random {
    let mut config: serde_json::Value = serde_json::from_str(MODEL).expect("a built-in model");
    config["num_hidden_layers"] = layers.into();
    config["vocab_size"] = VOCAB.into();
    Random::new(&config.to_string(), seed).expect("a built-in model").0
}

fn config(target: &DeviceOptions, precision: Precision) -> Result<RunConfig, UsageError> {
    let mut options = Options { steps: (LOSSES.len() as u64).into(), target: target.clone(), ..Options::default() };
    options.models.teacher = Some("built in".into());
    options.models.student.clone_from(&options.models.teacher);
    options.teaching.teacher.teacher_format = Some(WeightFormat::Bf16);
    options.shape = ShapeOptions { batch_size: BATCH, seq_len: SEQ_LEN };
    (options.optimizer.lr, options.arithmetic.precision) = (LR, precision);
    options.planned()
}

/// Plans the launches of the case in bf16 on a device, those of its student where it generates, and those of an
/// on-policy run.
///
/// # Errors
/// [`DeviceError`] where no build serves the device.
pub(super) fn plan(device: &Device) -> Result<Plan, DeviceError> {
    let recipe = config(&Options::default().target, Precision::Bf16)?.recipe();
    let [teacher, student]: [ModelConfig; 2] =
        [TEACHER_LAYERS, STUDENT_LAYERS].map(|layers| model(layers, 0).config().clone());
    let (dense, arch) = (Formats::dense(), device::rows(device)?.launches);
    let slots = Slots { count: 1, seq_len: SEQ_LEN };
    let decode = DecodeRequest { slots, sampling: Sampling::PLAIN };
    let request = TrainingRequest::new(&student, &recipe, arch).taught_by(Some((&teacher, &dense)));
    let TrainingPlan { mut plan, .. } = TrainingPlan::new(request)?;
    let objective = Objective::Distill { alpha: 1.0, temperature: 1.0, beta: 1.0 };
    let recipe = Recipe { objective, ..recipe };
    let on_policy = TrainingRequest { recipe, decode: Some(decode), on_policy: true, ..request };
    let student = Student { config: &student, formats: &dense, adapters: &Adapters::none() };
    let generation = GenerationPlan::new(student, decode, Precision::Bf16, arch)?;
    // Kernels are found by it, and nothing else.
    plan.phases.extend([TrainingPlan::new(on_policy)?.plan, generation.plan].into_iter().flat_map(|plan| plan.phases));
    Ok(plan)
}

/// Trains the case in each precision.
///
/// # Errors
/// [`DeviceError`] of the device; what came of the runs, and kernels that are missing, are in the result.
pub(super) fn run(target: &DeviceOptions) -> Result<Vec<Golden>, DeviceError> {
    [Precision::Fp32, Precision::Bf16].into_iter().map(|precision| one(target, precision)).collect()
}

fn one(target: &DeviceOptions, precision: Precision) -> Result<Golden, DeviceError> {
    let gate = gate(precision);
    let (fault, losses) = match losses(&config(target, precision)?) {
        Ok(losses) => (fault(&losses, gate), losses),
        Err(error) => (Some(missing(&error).ok_or(error)?), Vec::new()),
    };
    Ok(Golden { case: CASE.to_owned(), precision: precision.to_string(), losses, gate, fault })
}

/// That a run needs kernels which are not there; no path of a bundle is in it.
fn missing(error: &DeviceError) -> Option<String> {
    let load = match error {
        DeviceError::Load(error) => error,
        DeviceError::NotInBundle { error, .. } => error,
        _ => return None,
    };
    let LoadError::Missing(coverage) = load else { return None };
    Some(format!("it did not run: {} are not in the bundle", count(coverage.missing.len(), "of its kernels")))
}

fn losses(config: &RunConfig) -> Result<Vec<f64>, DeviceError> {
    let model = |layers, seed| -> Box<dyn Weights> { Box::new(model(layers, seed)) };
    let models = Models { teacher: Some(model(TEACHER_LAYERS, 1)), student: model(STUDENT_LAYERS, 2) };
    let mut session = Session::of(&RunModels { models, adapter: None, same_files: false, cache: None }, config)?;
    let batch = batch();
    let steps = 0..LOSSES.len() as u64;
    let losses = steps.map(|step| {
        session.micro(&batch, (1.0 / f64::from(batch.counted)) as f32, 0)?;
        let ticket = session.update(step, LR)?;
        Ok(config.loss(&session.metrics(ticket)?.0))
    });
    losses.collect()
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
    use precast_plan::decoding::PREFILL;
    use precast_plan::keys;
    use precast_plan::training::MICRO;
    use precast_runtime::Driver;
    use precast_runtime::sim::{Faults, Sim};

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

    /// A bundle that lacks a kernel of any of them is not the one that a device's evidence is of.
    #[test]
    fn kernels_are_found_by_training_generation_and_rollouts() {
        let sim = Sim::new(Faults::default());
        let plan = plan(sim.device()).unwrap();
        let names: Vec<&str> = plan.phases.iter().map(|phase| phase.name.as_str()).collect();
        assert_eq!(names.iter().filter(|name| **name == MICRO).count(), 2);
        assert_eq!(names.iter().filter(|name| **name == PREFILL).count(), 2);
        let keys: Vec<String> = keys(&plan).iter().map(|pair| pair.key.to_string()).collect();
        for start in ["sample.score{", "sample{", "head.distill{reverse=false", "head.distill{reverse=true"] {
            assert!(keys.iter().any(|key| key.starts_with(start)), "{start}: {keys:?}");
        }
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
