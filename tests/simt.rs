//! Training steps whose launches execute the CUDA sources that ship, on the host and under the checker: their losses
//! are those of the simulated GPU, whose launches execute the host references; and PyTorch's, where the batch is the
//! case's.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};

use precast::device::fit::Choice;
use precast::device::session::Session;
use precast::device::shapes::Shapes;
use precast::inputs::data::MicroBatch;
use precast::options::{RunConfig, WeightFormat};
use precast_fatbins::Module;
use precast_kernels::abi::step_metrics;
use precast_kernels::host::Buffer;
use precast_kernels::{Arch, KeyVariant, Operand};
use precast_plan::{Precision, keys};
use precast_runtime::sim::{Faults, Sim};
use precast_runtime::{Bound, BoundWork, Driver, DriverError, GraphId, KernelId, Permit, Placement};
use precast_simt::{Program, Simt, execute};
use rayon::prelude::*;

use crate::golden::Golden;
use crate::support::prelude::*;
use crate::support::{Tap, Tapped};

/// Of the scheduler.
const SEED: u64 = 1;

static SIMT: LazyLock<Simt> = LazyLock::new(|| {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    Simt::new(&scratch.join("simt"), &scratch.join("kernels")).unwrap_or_else(|error| panic!("{error}"))
});

/// What has been compiled: kernels of several cases are the same. By architecture where a source asks for it.
type Programs = BTreeMap<(KeyVariant, Option<Arch>), Arc<Program>>;
static PROGRAMS: Mutex<Programs> = Mutex::new(BTreeMap::new());

/// A kernel, compiled for the host as an architecture would have it.
fn program(pair: &KeyVariant, arch: Arch) -> Arc<Program> {
    let source = pair.source();
    let place = (pair.clone(), source.mentions("__CUDA_ARCH__").then_some(arch));
    if let Some(program) = PROGRAMS.lock().unwrap().get(&place) {
        return Arc::clone(program);
    }
    let program = Arc::new(SIMT.compile(&source, &pair.defines(arch), arch).unwrap());
    Arc::clone(PROGRAMS.lock().unwrap().entry(place).or_insert(program))
}

/// Launches that execute the sources, in place of the simulated GPU's.
struct Executed {
    programs: BTreeMap<KeyVariant, Arc<Program>>,
    loaded: Vec<(KernelId, KeyVariant)>,
    graphs: Vec<(GraphId, Vec<Bound>)>,
}

impl Executed {
    /// Every kernel of a run, compiled for the host as an architecture would have it.
    fn new(config: &RunConfig, arch: Arch) -> Self {
        let shapes = Shapes::read(config).unwrap();
        let plan = shapes.lower(config, &config.recipe(), Choice::of(WeightFormat::Bf16), Arch::Sim).unwrap().plan;
        let compiled = keys(&plan).into_par_iter().map(|pair| {
            assert!(pair.key.kernel().variants(arch).contains(&pair.variant), "{pair} is none of {arch}");
            let program = program(&pair, arch);
            (pair, program)
        });
        let programs = compiled.collect();
        Self { programs, loaded: Vec::new(), graphs: Vec::new() }
    }

    fn launch(&self, on: &mut dyn Driver, bound: &Bound) -> Result<(), DriverError> {
        let BoundWork::Launch(launch) = &bound.work else { panic!("a plan of the bundle's kernels alone") };
        let (_, pair) = self.loaded.iter().find(|(id, _)| *id == launch.kernel).expect("a loaded kernel");
        let operands = launch.key.kernel().operands(&launch.params);
        let address = |operand: &Operand| bytemuck::pod_read_unaligned(&launch.params[operand.offset..][..8]);
        let mut memory = Vec::new();
        for operand in &operands {
            let ticket = on.read(address(operand), operand.bytes())?;
            memory.push(Buffer::from(&on.wait(ticket)?.bytes[..]));
        }
        let maps = launch.key.kernel().tensor_maps(pair.variant, &launch.params);
        execute(&self.programs[pair], &launch.geometry, &launch.params, &operands, &maps, &mut memory, SEED)
            .map_err(|report| DriverError::Launch { label: bound.label.clone(), reason: report.to_string() })?;
        let written = operands.iter().zip(&memory).filter(|(operand, _)| operand.access.writes());
        written.into_iter().try_for_each(|(operand, bytes)| on.write(address(operand), bytes))
    }
}

impl Tap for Executed {
    fn load(&mut self, on: &mut dyn Driver, module: &Module<'_>, permit: &Permit) -> Result<KernelId, DriverError> {
        let id = on.load(module, permit)?;
        self.loaded.push((id, module.pair.clone()));
        Ok(id)
    }
    fn prepare(&mut self, on: &mut dyn Driver, nodes: &[Bound]) -> Result<GraphId, DriverError> {
        let id = on.prepare(nodes)?;
        self.graphs.push((id, nodes.to_vec()));
        Ok(id)
    }
    fn run(&mut self, on: &mut dyn Driver, graph: GraphId) -> Result<(), DriverError> {
        let (_, nodes) = self.graphs.iter().find(|(id, _)| *id == graph).expect("a prepared graph");
        nodes.iter().try_for_each(|bound| self.launch(on, bound))
    }
}

/// Metrics of a golden case's first steps, and the student after them.
fn train(golden: &Golden, mut session: Session, steps: usize, config: &RunConfig) -> (Vec<step_metrics>, Vec<f32>) {
    let rows = golden.steps().concat();
    let shape = (config.shape.batch_size as usize, config.shape.seq_len as usize);
    let step = |index| {
        let batch = MicroBatch::of(&rows[index * shape.0..][..shape.0], shape);
        let step = index as u64;
        session.micro(&batch, 1.0 / batch.counted as f32, 0).unwrap();
        let lr = config.optimizer.lr_of(step, config.steps());
        let ticket = session.update(step, lr).unwrap();
        session.metrics(ticket).unwrap().0
    };
    let metrics = (0..steps).map(step).collect();
    let [(.., master), ..] = session.state();
    (metrics, floats(&session.read(master[0].1).unwrap()))
}

/// Relative differences, at most: of kd_loss, ce_loss and grad_norm, and of the weights.
struct Gates([f64; 3], f64);

const FP32: Gates = Gates([2e-5; 3], 1e-5);
const BF16: Gates = Gates([3e-3, 1e-3, 1e-2], 5e-3);

/// Steps, and rows of each batch, which are the case's first; the case's own where there are none.
struct Length {
    steps: usize,
    rows: Option<u32>,
}

const WHOLE: Length = Length { steps: 1, rows: None };
const SHORT: Length = Length { steps: 1, rows: Some(1) };
/// The second step computes with what the first has made of the weights.
const TWO_SHORT: Length = Length { steps: 2, rows: Some(1) };

fn trains_as_it_should(case: &str, precision: Precision, arch: Arch, length: &Length, gates: &Gates) {
    skip_if!(skipped(!is_sim(), "the device under test executes the kernels itself"));
    let golden = &Golden::of(case);
    let of_case = &golden.settings;
    let config = golden.config(|options| {
        options.arithmetic.precision = precision;
        options.shape.batch_size = length.rows.unwrap_or(of_case.B);
        options.optimizer.lr = of_case.lr;
        options.optimizer.weight_decay = of_case.wd;
        options.optimizer.clip = of_case.clip;
        options.steps = of_case.steps.into();
        options.optimizer.warmup = of_case.warmup;
        options.optimizer.schedule = of_case.sched.parse().unwrap();
    });
    let executed = Box::new(Tapped(Box::new(Sim::new(Faults::default())), Executed::new(&config, arch)));
    let (metrics, weights) = train(golden, session_on(executed, &config, Placement::Arena), length.steps, &config);
    let (simulated_metrics, simulated_weights) = train(golden, session(&config), length.steps, &config);
    assert_eq!(metrics.len(), length.steps);
    for ((found, simulated), reference) in metrics.iter().zip(&simulated_metrics).zip(golden.trajectory("")) {
        let values = |metrics: &step_metrics| [metrics.kd_loss, metrics.ce_loss, metrics.grad_norm].map(f64::from);
        let of_pytorch = [reference.kd_loss, reference.ce_loss, reference.grad_norm];
        let of_pytorch = length.rows.is_none().then_some(of_pytorch);
        for expected in [Some(values(simulated)), of_pytorch].into_iter().flatten() {
            let differences = values(found).into_iter().zip(expected).map(|(a, b)| (a - b).abs() / b.abs());
            let differences: Vec<f64> = differences.collect();
            assert!(differences.iter().zip(gates.0).all(|(difference, gate)| *difference <= gate), "{differences:?}");
        }
    }
    let distance = distance(&weights, &simulated_weights);
    assert!(distance <= gates.1, "{distance:e}");
}

#[test]
fn the_sources_train_in_fp32() {
    trains_as_it_should("made-qwen2", Precision::Fp32, Arch::Sm89, &WHOLE, &FP32);
}

#[test]
fn the_sources_train_in_bf16() {
    trains_as_it_should("made-qwen2", Precision::Bf16, Arch::Sm121, &TWO_SHORT, &BF16);
}

/// Norms of the heads of q and k, head_dim apart from the hidden size.
#[test]
fn the_sources_of_qwen3_train_in_fp32() {
    trains_as_it_should("made-qwen3", Precision::Fp32, Arch::Sm121, &SHORT, &FP32);
}

/// A scaled rotary embedding, of a step that warms up.
#[test]
fn the_sources_of_llama3_train_in_bf16() {
    trains_as_it_should("made-llama3", Precision::Bf16, Arch::Sm89, &SHORT, &BF16);
}

/// Adapters of two parts of a stack, and a base that stays as it is.
#[test]
fn the_sources_train_an_adapter_in_fp32() {
    trains_as_it_should("made-lora", Precision::Fp32, Arch::Sm121, &SHORT, &FP32);
}

#[test]
fn the_sources_train_an_adapter_in_bf16() {
    trains_as_it_should("made-lora", Precision::Bf16, Arch::Sm89, &TWO_SHORT, &BF16);
}
