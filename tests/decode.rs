//! Decoding by a pool of keys and values: the bits of the forward pass.

use std::path::Path;

use precast::inputs::checkpoint::{Checkpoint, Scratch, Weights};
use precast::options::Kernels;
use precast_kernels::abi::IDLE_SLOT;
use precast_plan::decoding::{PREFILL, bucket, decode_phase};
use precast_plan::{
    Adapters, DecodeRequest, EvaluationPlan, Formats, GenerationPlan, Plan, Precision, Resident, Sampling, Slots,
    Student, evaluation, rope,
};
use precast_runtime::{Loading, Placement, Sealed};

use crate::support::{bundle, device, fixture, random_model, tiny_config};

/// A plan sealed on the device under test, with the weights of a model.
fn sealed(plan: &Plan, resident: &Resident, model: &Checkpoint, (seq_len, precision): (u32, Precision)) -> Sealed {
    let kernels = Kernels { bundle: bundle(), ..Kernels::default() };
    let driver = precast::device::open(device().parse().unwrap(), &kernels).unwrap();
    let arch = driver.device().arch().unwrap();
    let source = kernels.find(arch, plan).unwrap();
    let mut loading = Loading::new(driver);
    loading.load(&source.open().unwrap(), plan, &[]).unwrap();
    let mut sealed = loading.seal(plan, Placement::Arena).unwrap();
    let tables = rope::tables(&model.config().rope_frequencies(), seq_len);
    sealed.write(resident.rope.cos, bytemuck::cast_slice(&tables.cos)).unwrap();
    sealed.write(resident.rope.sin, bytemuck::cast_slice(&tables.sin)).unwrap();
    let mut scratch = Scratch::default();
    for (parameter, weight) in resident.weights.list() {
        let bytes = model.read(parameter, precision.dtype().into(), &mut scratch).unwrap();
        sealed.write(weight.tensor, bytes).unwrap();
    }
    sealed
}

fn student(model: &Checkpoint) -> (Formats, Adapters, &precast_plan::ModelConfig) {
    (Formats::dense(), Adapters::none(), model.config())
}

/// Logits of all tokens of a sequence, as bytes, by the plan of an evaluation.
fn evaluated(model: &Checkpoint, ids: &[u32], precision: Precision) -> Vec<u8> {
    let (formats, adapters, config) = student(model);
    let student = Student { config, formats: &formats, adapters: &adapters };
    let arch = precast::device::open(device().parse().unwrap(), &Kernels::default()).unwrap().device().arch().unwrap();
    let plan = EvaluationPlan::with(student, (1, ids.len() as u32), precision, arch).unwrap();
    let mut sealed = sealed(&plan.plan, &plan.model, model, (ids.len() as u32, precision));
    sealed.write(plan.ids, bytemuck::cast_slice(ids)).unwrap();
    sealed.write(plan.targets, bytemuck::cast_slice(ids)).unwrap();
    sealed.run(evaluation::SCORE).unwrap();
    sealed.read(plan.plan.tensor("head.logits").unwrap()).unwrap()
}

/// Rows as a phase reads them: slot, position and token.
fn write_rows(sealed: &mut Sealed, plan: &GenerationPlan, rows: &[(u32, u32, u32)]) {
    let column = |of: fn(&(u32, u32, u32)) -> u32, idle: u32| -> Vec<u32> {
        rows.iter().map(of).chain(std::iter::repeat(idle)).take(plan.decoding.most_rows as usize).collect()
    };
    let columns = [
        (plan.decoding.rows.slots, column(|row| row.0, IDLE_SLOT)),
        (plan.decoding.rows.positions, column(|row| row.1, 0)),
        (plan.decoding.ids, column(|row| row.2, 0)),
    ];
    for (tensor, values) in columns {
        sealed.write(tensor, bytemuck::cast_slice(&values)).unwrap();
    }
}

/// Decodes sequences of several lengths, each in a slot, in an order of their own, from prompts that were stored before.
fn check(model: &Path, precision: Precision) {
    let model = Checkpoint::open(model).unwrap();
    let (formats, adapters, config) = student(&model);
    let sequences: Vec<Vec<u32>> = (0..5u32)
        .map(|one| (0..8 * one + 3).map(|at| (7 + 31 * one + 17 * at * at) % config.vocab).collect())
        .collect();
    let expected: Vec<Vec<u8>> = sequences.iter().map(|ids| evaluated(&model, ids, precision)).collect();
    let student = Student { config, formats: &formats, adapters: &adapters };
    let seq_len = 40;
    let arch = precast::device::open(device().parse().unwrap(), &Kernels::default()).unwrap().device().arch().unwrap();
    let slots = Slots { count: 5, seq_len };
    let plan =
        GenerationPlan::new(student, DecodeRequest { slots, sampling: Sampling::LIKELIEST }, precision, arch).unwrap();
    let mut sealed = sealed(&plan.plan, &plan.model, &model, (seq_len, precision));
    let prompt = |one: usize| sequences[one].len() / 2;
    let slot_of = |one: usize| 4 - one as u32;
    let stored: Vec<(u32, u32, u32)> = (0..5)
        .flat_map(|one| (0..prompt(one)).map(move |at| (one, at)))
        .map(|(one, at)| (slot_of(one), at as u32, sequences[one][at]))
        .collect();
    // Rows of prompts need no order, and idle ones may be anywhere.
    let mut shuffled: Vec<_> = stored.iter().rev().copied().collect();
    shuffled.insert(3, (IDLE_SLOT, 0, 0));
    write_rows(&mut sealed, &plan, &shuffled);
    sealed.run(PREFILL).unwrap();
    let row_bytes = config.vocab as usize * precision.dtype().bytes() as usize;
    let phase = decode_phase(bucket(5));
    let logits = plan.plan.tensor("head.logits").unwrap();
    let mut compared = 0;
    for step in 0.. {
        let active = |one: &usize| prompt(*one) + step < sequences[*one].len();
        let rows: Vec<(usize, usize)> = (0..5).filter(active).map(|one| (one, prompt(one) + step)).collect();
        if rows.is_empty() {
            break;
        }
        let of_rows: Vec<_> = rows.iter().map(|(one, at)| (slot_of(*one), *at as u32, sequences[*one][*at])).collect();
        write_rows(&mut sealed, &plan, &of_rows);
        sealed.run(&phase).unwrap();
        let found = sealed.read(logits).unwrap();
        for (row, (one, at)) in rows.iter().enumerate() {
            let [found, expected] =
                [(&found, row), (&expected[*one], *at)].map(|(bytes, at)| &bytes[at * row_bytes..][..row_bytes]);
            assert!(found == expected, "sequence {one} at {at}");
            compared += 1;
        }
    }
    assert!(compared > 40, "{compared}");
}

#[test]
fn a_decoded_row_has_the_bits_of_the_forward_pass() {
    let dir = tempfile::tempdir().unwrap();
    let tiny = random_model(dir.path(), "model", 3, &tiny_config(&[]));
    let golden = ["qwen3-tied", "llama3-rope"].map(|name| fixture("golden").join(name).join("student"));
    for model in [tiny].iter().chain(&golden) {
        for precision in [Precision::Fp32, Precision::Bf16] {
            check(model, precision);
        }
    }
}
