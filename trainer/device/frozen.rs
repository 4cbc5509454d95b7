//! A model that is computed and does not train: its plan, sealed, with its weights on the device.

use std::path::PathBuf;

use precast_plan::{Adapters, EvaluationPlan, Gemm, Plan, Precision, Resident, Student};
use precast_runtime::cublas::Cublas;
use precast_runtime::{Driver, Placement};
use precast_system::say;

use crate::base::startup::Startup;
use crate::device;
use crate::device::DeviceError;
use crate::device::heading::Heading;
use crate::device::host_memory::{DeviceMemory, HostMemory};
use crate::device::one_memory;
use crate::device::seal::{SealedDevice, seal};
use crate::device::upload::{Staging, upload_model};
use crate::device::weight_format::{Choice, Chosen};
use crate::inputs::adapter::Adapter;
use crate::inputs::checkpoint::{Checkpoint, Scratch, Weights};
use crate::options::{DeviceOptions, WeightFormat};

/// A model to compute, and where.
#[derive(Clone, Debug)]
pub struct Forward {
    pub model: PathBuf,
    /// An adapter of it.
    pub adapter: Option<PathBuf>,
    pub precision: Precision,
    /// What computes the matrix multiplications.
    pub gemm: Gemm,
    /// How the weights live on the device.
    pub format: WeightFormat,
    pub target: DeviceOptions,
    /// Whether device, kernels and model are printed first.
    pub heading: bool,
}

/// What is read before a device is opened.
pub(crate) struct Opened {
    cublas: Option<Cublas>,
    pub model: Checkpoint,
    adapter: Option<Adapter>,
}

impl Forward {
    /// Opens the files.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub(crate) fn read(&self) -> Result<Opened, DeviceError> {
        let cublas = device::cublas(self.gemm, self.target.device)?;
        let model = Checkpoint::open(&self.model)?;
        let adapter =
            self.adapter.as_ref().map(|path| Adapter::open(path, (&self.model, model.config()))).transpose()?;
        Ok(Opened { cublas, model, adapter })
    }

    /// Opens the device, plans, checks memory, loads kernels, seals, and sends the weights.
    ///
    /// `data` are files that take host memory beside it; `shape` is sequences at a time, and tokens of each.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub(crate) fn open(
        &self,
        Opened { cublas, model, adapter }: &Opened,
        data: &[PathBuf],
        shape: (u32, u32),
    ) -> Result<(EvaluationPlan, SealedDevice), DeviceError> {
        let Self { precision, gemm, target, .. } = self;
        let adapter = adapter.as_ref();
        let driver = device::open_with(target, *cublas)?;
        let arch = device::arch(driver.device())?;
        let formats = Weights::formats(model);
        let adapters = adapter.map_or_else(Adapters::none, |adapter| adapter.layout().adapters());
        let choice = Choice { flag: "--format", asked: self.format, formats: &formats };
        let device = driver.device();
        let host = |plan: &EvaluationPlan| HostMemory::of_evaluation(plan, data, DeviceMemory::of(device));
        let host_bytes = |plan: &EvaluationPlan| one_memory::host_bytes(device, || host(plan));
        let Chosen { plan, note, .. } = choice.make(device, host_bytes, |formats| {
            let student = Student { config: model.config(), formats, adapters: &adapters };
            EvaluationPlan::with_gemm(student, shape, (*precision, *gemm), arch)
        })?;
        note.iter().for_each(crate::base::note::note);
        let host = host(&plan);
        let mut sealed = self.seal(driver, (&plan.plan, &plan.model), &host, (model, adapter))?;
        if let Some((adapter, weights)) = adapter.zip(plan.adapters.as_ref()) {
            let mut scratch = Scratch::new();
            let all = adapter.all_placed(&weights.parameters)?;
            scratch.values(all.len()).copy_from_slice(&all);
            sealed.write(weights.all.tensor, scratch.encode(precision.dtype()))?;
        }
        Ok((plan, sealed))
    }

    /// Checks memory, loads kernels, seals, and sends the weights of a model that is a plan's.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub(crate) fn seal(
        &self,
        driver: Box<dyn Driver>,
        (plan, resident): (&Plan, &Resident),
        host: &HostMemory,
        (model, adapter): (&Checkpoint, Option<&Adapter>),
    ) -> Result<SealedDevice, DeviceError> {
        one_memory::check(driver.device(), plan, host)?;
        let (models, startup) = ([self.model.display().to_string()], &mut Startup::new());
        let mut sealed = seal(driver, plan, &self.target.kernels, &models, (Placement::Arena, None), startup)?;
        if self.heading {
            let heading = sealed.heading().model("model", &self.model, model);
            say!("{}", adapter.into_iter().fold(heading, Heading::adapter));
        }
        upload_model(&mut sealed, resident, model, Staging::Quantise, &mut |_| Ok(()))?;
        Ok(sealed)
    }
}
