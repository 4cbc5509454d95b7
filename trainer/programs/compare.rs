//! Measuring a model in one form against the same model in another: one after the other, so that each has the device's
//! memory to itself. The last hidden states of the first wait in host memory; the head, which both have, is applied to
//! both beside the second.

use precast_fatbins::Digest;
use precast_kernels::Arch;
use precast_plan::{ComparisonPlan, PlanError, Precision, Side, Student};

use crate::device::fit::{Choice, Fit, formats};
use crate::device::frozen::Forward;
use crate::device::host_memory::HostMemory;
use crate::device::memory::Memory;
use crate::device::seal::SealedDevice;
use crate::device::session::read_columns;
use crate::device::{self, tuning};
use crate::inputs::checkpoint::{self, Checkpoint, Weights};
use crate::inputs::data::MicroBatch;
use crate::options::WeightFormat;
use crate::programs::evaluate::{Evaluation, Text, batches, ids_sha256};
use crate::run::certificate::{Certificate, Subject, Tally};
use crate::run::failure::Failure;

/// Scores documents by themselves under a model in the form that is asked for, and in an exact one.
///
/// # Errors
/// [`Failure`]. `progress` is told how many of how many batches are done.
pub fn compare(
    request: &Evaluation,
    against: WeightFormat,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Certificate, Failure> {
    let model = Checkpoint::open(&request.forward.model)?;
    let text = Text::read(request, &model)?;
    let (format, stored) = (request.forward.format, model.formats());
    let of_form = |format| formats(format, Some(&stored));
    let batches: Vec<MicroBatch> = batches(&text.dataset.chunks, text.batch, text.longest).collect();
    let all = 2 * batches.len();

    let (plan, mut sealed) = open(request, (&model, &text, batches.len()), against, ComparisonPlan::reference)?;
    let Side::Reference { hidden } = plan.side else { unreachable!("a plan of the reference") };
    let mut states = Vec::with_capacity(batches.len());
    for (index, micro) in batches.iter().enumerate() {
        sealed.score([plan.ids, plan.targets], plan.sequences, micro)?;
        states.push(sealed.read(hidden)?);
        progress(index + 1, all);
    }
    drop(sealed);

    let (plan, mut sealed) = open(request, (&model, &text, batches.len()), format, ComparisonPlan::other)?;
    let Side::Other { reference, compared, .. } = plan.side else { unreachable!("a plan of the other form") };
    let mut tally = Tally::default();
    for (index, (micro, hidden)) in batches.iter().zip(&states).enumerate() {
        sealed.write(reference, hidden)?;
        sealed.score([plan.ids, plan.targets], plan.sequences, micro)?;
        tally.add(&micro.targets, &read_columns(&mut sealed, compared)?);
        progress(batches.len() + index + 1, all);
    }
    let device = sealed.device();
    let weights_sha256 = checkpoint::digest(&model.weight_files())?;
    let certificate = Certificate {
        subject: Subject::new(&model, weights_sha256, (format, &of_form(format)))?,
        against: against.to_string(),
        measured: tally.measured(),
        vocab: model.config().vocab,
        data: request.data.iter().map(|path| path.display().to_string()).collect(),
        ids_sha256: ids_sha256(&text.dataset),
        arch: device::rows(device)?.launches.to_string(),
        device: device.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        bundle_sha256: sealed.bundle,
        sha256: Digest([0; 32]),
    };
    Ok(certificate.with_digest())
}

/// Lowers a model in a form, and a shape, to one side.
type Lower = fn(Student<'_>, (u32, u32), Precision, Arch) -> Result<ComparisonPlan, PlanError>;

/// Opens one side, for so many batches of text: seals its plan, with its weights on the device.
fn open(
    request: &Evaluation,
    (model, text, batches): (&Checkpoint, &Text, usize),
    format: WeightFormat,
    lower: Lower,
) -> Result<(ComparisonPlan, SealedDevice), Failure> {
    let forward = &request.forward;
    let driver = device::open(forward.target.device, &forward.target.kernels)?;
    let arch = device::rows(driver.device())?.launches;
    let shape = (text.batch, text.longest);
    let formats = formats(format, Some(&model.formats()));
    let mut plan = lower((model.config(), &formats).into(), shape, forward.precision(), arch)?;
    tuning::select(&mut plan.plan, driver.device(), None)?;
    let tokens = batches as u64 * u64::from(text.batch * text.longest);
    let hidden_bytes = tokens * u64::from(model.config().hidden) * forward.precision().dtype().bytes();
    let kept = ("last hidden states", hidden_bytes);
    let memory = Memory::of(driver.device());
    let host = HostMemory::of_forward(&plan.plan, &plan.model, kept, &request.data, memory.owner);
    // The reference comes first, and says it for both.
    let heading = forward.heading && matches!(plan.side, Side::Reference { .. });
    let forward = Forward { heading, ..forward.clone() };
    let fit = Fit::new(plan, Choice::of(format), host, Some(memory));
    let sealed = forward.seal(driver, &fit, (model, None))?;
    Ok((fit.plan, sealed))
}
