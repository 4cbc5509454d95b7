//! The trainer's library on the device under test.

use std::path::Path;

use precast::base::startup_times::Startup;
use precast::device::run_models::RunModels;
use precast::device::session::Session;
use precast::inputs::adapter::{Adapter, extent, gathered};
use precast::inputs::checkpoint::{Checkpoint, Scratch, Weights};
use precast::options::Kernels;
use precast::options::{ModelOptions, Options, RunConfig};
use precast_kernels::Dtype;
use precast_plan::{AdapterParameter, Adapters, EvaluationPlan, Formats, Precision, Student, evaluation};
use precast_runtime::{Driver, Loading, Placement};

use super::{bundle, device, gemm};

/// A configuration for the device under test.
pub fn config(teacher: &Path, student: &Path, change: impl FnOnce(&mut Options)) -> RunConfig {
    complete(|options| {
        options.models =
            ModelOptions { teacher: vec![teacher.into()], student: Some(student.to_owned()), ..Default::default() };
        change(options);
    })
}

/// The same of a model that trains without a teacher.
pub fn config_alone(model: &Path, change: impl FnOnce(&mut Options)) -> RunConfig {
    complete(|options| {
        options.models.model = Some(model.to_owned());
        change(options);
    })
}

fn complete(change: impl FnOnce(&mut Options)) -> RunConfig {
    let mut options = Options::default();
    (options.arithmetic.precision, options.arithmetic.gemm) = (Precision::Fp32, gemm());
    (options.shape.batch_size, options.shape.seq_len) = (2, 16);
    (options.steps, options.optimizer.lr) = (4.into(), 1e-3);
    options.target.device = device().parse().expect("PRECAST_TEST_DEVICE names a device");
    options.target.kernels.bundle = bundle();
    options.output.checkpoint_every = 0;
    change(&mut options);
    options.planned().expect("a complete configuration")
}

/// A sealed session with its weights up.
pub fn session(config: &RunConfig) -> Session {
    session_placed(config, Placement::Arena)
}

pub fn session_placed(config: &RunConfig, placement: Placement) -> Session {
    session_on(precast::device::open_for(config).expect("a device"), config, placement)
}

pub fn session_on(driver: Box<dyn Driver>, config: &RunConfig, placement: Placement) -> Session {
    let models = RunModels::open(config).expect("models");
    let startup = &mut Startup::default();
    let (mut session, ()) = Session::open(driver, &models, config, placement, startup, |_| ()).expect("a session");
    session.upload(&models, |_| Ok(())).expect("weights that are sent");
    session
}

/// The gradient of a matrix of the adapter, row by row, before clipping.
pub fn adapter_gradient(session: &mut Session, parameter: &AdapterParameter) -> Vec<f32> {
    let grad = session.plan.trained().trained().expect("an adapter trains").grad;
    let placed = session.read(grad.slice(parameter.start, extent(parameter))).expect("gradients");
    gathered(parameter, &bytemuck::pod_collect_to_vec::<u8, f32>(&placed))
}

/// Logits of one sequence under a model, fp32, tokens x vocabulary: what the evaluation plan leaves behind.
pub fn logits(model: &Path, ids: &[u32]) -> Vec<f32> {
    logits_adapted(model, None, ids)
}

/// The same under a model with an adapter.
pub fn logits_adapted(model: &Path, adapter: Option<&Path>, ids: &[u32]) -> Vec<f32> {
    let checkpoint = Checkpoint::open(model).expect("a model");
    let kernels = Kernels { bundle: bundle(), ..Kernels::default() };
    let driver = precast::device::open(device().parse().expect("a device name"), &kernels).expect("a device");
    let arch = driver.device().arch().expect("an architecture");
    let (config, seq_len) = (checkpoint.config(), ids.len() as u32);
    let adapter = adapter.map(|path| Adapter::open(path, (model, config)).expect("an adapter"));
    let adapters = adapter.as_ref().map_or_else(Adapters::none, |adapter| adapter.layout.adapters());
    let adapted = Student { config, formats: &Formats::dense(), adapters: &adapters };
    let plan = EvaluationPlan::with(adapted, (1, seq_len), Precision::Fp32, arch).expect("a plan");
    let source = kernels.find(arch, &plan.plan).expect("kernels");
    let mut loading = Loading::new(driver);
    loading.load(&source.open().expect("a bundle"), &plan.plan).expect("kernels load");
    let mut sealed = loading.seal(&plan.plan, Placement::Arena).expect("memory");
    let mut write = |tensor, bytes: &[u8]| sealed.write(tensor, bytes).expect("a copy");
    for (rope, tables) in plan.model.ropes.iter().zip(config.rope_tables(seq_len)) {
        write(rope.cos, bytemuck::cast_slice(&tables.cos));
        write(rope.sin, bytemuck::cast_slice(&tables.sin));
    }
    for (parameter, weight) in plan.model.weights.list() {
        let mut scratch = Scratch::default();
        let mut bytes = checkpoint.read(parameter, Dtype::F32.into(), &mut scratch).expect("weights").to_vec();
        bytes.resize(weight.tensor.bytes() as usize, 0);
        write(weight.tensor, &bytes);
    }
    if let Some((adapter, weights)) = adapter.as_ref().zip(plan.adapters.as_ref()) {
        let placed = adapter.all_placed(&weights.parameters).expect("its matrices");
        write(weights.all.tensor, bytemuck::cast_slice(&placed));
    }
    write(plan.ids, bytemuck::cast_slice(ids));
    write(plan.targets, bytemuck::cast_slice(ids));
    write(plan.sequences.all, bytemuck::cast_slice(&plan.sequences.words(&[seq_len])));
    sealed.run(evaluation::SCORE).expect("a forward pass");
    let all = floats(&sealed.read(plan.plan.tensor("head.logits").expect("a buffer")).expect("a copy"));
    let rows = all.chunks(config.logit_columns() as usize);
    rows.flat_map(|row| &row[..config.vocab as usize]).copied().collect()
}

/// f32 values of little-endian bytes.
pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytemuck::pod_collect_to_vec(bytes)
}

/// ‖a − b‖ / ‖b‖.
pub fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let difference = square(&mut a.iter().zip(b).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    (difference / square(&mut b.iter().map(|b| f64::from(*b)))).sqrt()
}

/// Gradients of all parameters, in their order.
pub fn gradients(session: &mut Session) -> Vec<Vec<u8>> {
    let parameters = session.plan.student.weights.parameters.list.clone();
    parameters.iter().map(|parameter| session.read(session.trained_of(parameter).grad).expect("gradients")).collect()
}
