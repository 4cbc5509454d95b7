//! A model that is computed and does not train: its plan, sealed, with its weights on the device.

use std::borrow::Borrow;
use std::path::{Path, PathBuf};

use clap::Args;
use itertools::iproduct;
use precast_kernels::Arch;
use precast_plan::{
    AdapterWeights, Adapters, ComparisonPlan, DecodeCheckPlan, EvaluationPlan, Formats, Gemm, GenerationPlan,
    ModelConfig, Plan, PlanError, Precision, Resident, Side, Student, TokenComparison,
};
use precast_runtime::cublas::Cublas;
use precast_runtime::{Driver, Placement};
use precast_system::progress::Wait;
use precast_system::terminal::tell;

use crate::base::notes::note;
use crate::base::startup_times::Startup;
use crate::device::fit::{Choice, Fit, Lower, check_stored, fit, formats, forms, most_slots, note_form};
use crate::device::host_memory::{DeviceMemory, HostMemory};
use crate::device::memory::Memory;
use crate::device::run_heading::Heading;
use crate::device::seal::{SealedDevice, seal};
use crate::device::unfit::Remedy;
use crate::device::upload::{Staging, Upload};
use crate::device::{self, DeviceError, tuning};
use crate::inputs::adapter::Adapter;
use crate::inputs::checkpoint::{Checkpoint, CheckpointError, Scratch, Weights};
use crate::inputs::random::read_or_random;
use crate::options::groups::values::{exact_precision, model};
use crate::options::{DeviceOptions, SlotChoice, SlotsUnfit, UsageError, WeightFormat};

/// A model that is computed and not trained, and where.
#[derive(Args, Clone, Debug)]
pub struct Forward {
    /// Model: Hugging Face directory, .gguf or .apr
    #[arg(long, value_name = "PATH", value_parser = model())]
    pub model: PathBuf,
    /// Adapter of --model: a PEFT directory, as distill and train write it
    #[arg(long, value_name = "DIR")]
    pub adapter: Option<PathBuf>,
    /// Form of the weights on the device. At the same bits: bf16 (the precision), stored (matrices as a GGUF file holds
    /// them) or auto (bf16 where that fits into the device's memory, else stored); at others: int8, in --precision bf16
    #[arg(long, default_value_t = WeightFormat::Auto, value_name = "FORM")]
    pub format: WeightFormat,
    /// Arithmetic: fp32 or bf16 [default: fp32; bf16 where 8 bits are compared]
    #[arg(long, value_name = "P", value_parser = exact_precision)]
    pub precision: Option<Precision>,
    /// Library of the matrix multiplications of linear layers: bundle (its kernels) or cublas (NVIDIA's cuBLASLt 13),
    /// as for distill; the bits differ
    #[arg(long, value_name = "WHAT", default_value_t)]
    pub gemm: Gemm,
    #[command(flatten)]
    pub target: DeviceOptions,
    /// Model of a cached teacher, whose head is there too.
    #[arg(skip)]
    pub teacher: Option<PathBuf>,
    /// True if device, kernels and model are named first, on standard error.
    #[arg(skip)]
    pub heading: bool,
}

/// Inputs that are read before a device is opened.
pub struct Opened<W = Checkpoint> {
    cublas: Option<Cublas>,
    pub model: W,
    pub adapter: Option<Adapter>,
}

/// Lowers a model with so many slots, 0 where it draws nothing, for an architecture.
pub type LowerFrozen<'a, P> = &'a dyn Fn(Student<'_>, u32, Arch) -> Result<P, PlanError>;

/// A request of a command: how its plan is lowered, with slots if it draws, and what to say of slots that do not fit.
pub struct FrozenRequest<'a, P> {
    pub lower: LowerFrozen<'a, P>,
    /// Slots, and the sequences that there are.
    pub slots: Option<(SlotChoice, u64)>,
    /// Names what does not fit, by the slots.
    pub what: &'a dyn Fn(SlotsUnfit) -> String,
}

/// A request for a plan of such a model.
pub struct Frozen<'a, P> {
    pub forward: &'a Forward,
    pub config: &'a ModelConfig,
    /// In which formats its file has its matrices.
    pub stored: &'a Formats,
    pub adapters: &'a Adapters,
    pub arch: Arch,
    /// Files that take host memory beside it.
    pub data: &'a [PathBuf],
    pub request: FrozenRequest<'a, P>,
}

impl<P: ForwardPlan> Lower for Frozen<'_, P> {
    type Plan = P;

    fn choices(&self) -> Vec<Choice> {
        let slots = match self.request.slots {
            None => vec![0],
            Some((SlotChoice::Auto, sequences)) => SlotChoice::Auto.tries(sequences).collect(),
            Some((SlotChoice::Count(count), _)) => vec![count],
        };
        let forms = forms(self.forward.format, self.stored);
        iproduct!(forms, slots).map(|(format, slots)| Choice { slots, ..Choice::of(format) }).collect()
    }

    fn lower(&self, Choice { format, slots, .. }: Choice) -> Result<P, PlanError> {
        let formats = &formats(format, Some(self.stored));
        (self.request.lower)(Student { config: self.config, formats, adapters: self.adapters }, slots, self.arch)
    }

    fn host(&self, plan: &P, owner: DeviceMemory) -> HostMemory {
        HostMemory::of_forward(plan.as_ref(), plan.model(), ("results", plan.kept_bytes()), self.data, owner)
    }

    fn remedy(&self, unfit: &Fit<P>) -> Remedy {
        let slots = match self.request.slots {
            None => SlotsUnfit { asked: 0, most: 0 },
            Some((SlotChoice::Auto, sequences)) => SlotsUnfit { asked: SlotChoice::Auto.most(sequences), most: 0 },
            Some((SlotChoice::Count(asked), _)) => {
                most_slots(self, asked, &forms(self.forward.format, self.stored), unfit.memory.as_ref())
            }
        };
        Remedy { what: (self.request.what)(slots), advice: String::new(), slots: self.request.slots.map(|_| slots) }
    }
}

/// A plan of such a model.
pub trait ForwardPlan: AsRef<Plan> + AsMut<Plan> {
    fn model(&self) -> &Resident;

    fn adapters(&self) -> Option<&AdapterWeights>;

    /// Bytes of results that the host keeps.
    fn kept_bytes(&self) -> u64;
}

impl ForwardPlan for EvaluationPlan {
    fn model(&self) -> &Resident {
        &self.model
    }

    fn adapters(&self) -> Option<&AdapterWeights> {
        self.adapters.as_ref()
    }

    fn kept_bytes(&self) -> u64 {
        self.nll.bytes()
    }
}

impl ForwardPlan for DecodeCheckPlan {
    fn model(&self) -> &Resident {
        &self.model
    }

    fn adapters(&self) -> Option<&AdapterWeights> {
        self.adapters.as_ref()
    }

    fn kept_bytes(&self) -> u64 {
        self.counts.compared.bytes() + self.counts.differing.bytes()
    }
}

impl ForwardPlan for ComparisonPlan {
    fn model(&self) -> &Resident {
        &self.model
    }

    fn adapters(&self) -> Option<&AdapterWeights> {
        self.adapters.as_ref()
    }

    fn kept_bytes(&self) -> u64 {
        match &self.side {
            Side::Reference { hidden } => hidden.bytes(),
            Side::Other { reference, compared, .. } => {
                let TokenComparison { kl, agrees, reference_nll, nll } = compared;
                [reference, kl, agrees, reference_nll, nll].map(|tensor| tensor.bytes()).iter().sum()
            }
        }
    }
}

impl ForwardPlan for GenerationPlan {
    fn model(&self) -> &Resident {
        &self.model
    }

    fn adapters(&self) -> Option<&AdapterWeights> {
        self.adapters.as_ref()
    }

    fn kept_bytes(&self) -> u64 {
        self.decoding.state.tokens.bytes()
    }
}

impl Forward {
    /// The precision that is asked for; else bf16 of weights in 8 bits, whose products give that.
    pub fn precision(&self) -> Precision {
        let rounds = self.format == WeightFormat::Int8;
        self.precision.unwrap_or(if rounds { Precision::Bf16 } else { Precision::Fp32 })
    }

    /// Opens the files.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn read(&self) -> Result<Opened, DeviceError> {
        self.read_by(Checkpoint::open)
    }

    /// Like [`Self::read`], but draws the weights of a bare `config.json` by a seed.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub(crate) fn read_or_random(&self, seed: u64) -> Result<Opened<Box<dyn Weights>>, DeviceError> {
        self.read_by(|path| read_or_random(path, seed))
    }

    fn read_by<W: Borrow<dyn Weights>>(
        &self,
        open: impl Fn(&Path) -> Result<W, CheckpointError>,
    ) -> Result<Opened<W>, DeviceError> {
        if self.format == WeightFormat::Int8 && self.adapter.is_some() {
            let message = "--format int8 computes no adapters: leave --adapter out, or use --format bf16";
            return Err(UsageError(message.to_owned()).into());
        }
        let cublas = device::cublas(self.gemm, self.target.device)?;
        let model = open(&self.model)?;
        let config = model.borrow().config();
        let adapter = self.adapter.as_ref().map(|path| Adapter::open(path, (&self.model, config))).transpose()?;
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
        opened: &Opened,
        data: &[PathBuf],
        shape: (u32, u32),
    ) -> Result<(EvaluationPlan, SealedDevice), DeviceError> {
        let lower = |student: Student<'_>, _: u32, arch| {
            EvaluationPlan::with_gemm(student, shape, (self.precision(), self.gemm), arch)
        };
        let what =
            |_| "this evaluation does not fit: give a smaller --batch-size, or --format stored or int8".to_owned();
        self.open_plan(opened, data, FrozenRequest { lower: &lower, slots: None, what: &what }, |_| ())
    }

    /// Plans by what `lower` makes of the model for a device, checks memory, loads kernels, seals, and sends the
    /// weights; `extend` adds to the plan what is measured.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn open_plan<P: ForwardPlan, W: Borrow<dyn Weights>>(
        &self,
        Opened { cublas, model, adapter }: &Opened<W>,
        data: &[PathBuf],
        request: FrozenRequest<'_, P>,
        extend: impl FnOnce(&mut P),
    ) -> Result<(P, SealedDevice), DeviceError> {
        let (precision, model, adapter) = (self.precision(), model.borrow(), adapter.as_ref());
        let driver = device::open_with(&self.target, *cublas)?;
        let (config, stored) = (model.config(), &model.formats());
        check_stored("--format", self.format, stored)?;
        let adapters = &adapter.map_or_else(Adapters::none, |adapter| adapter.layout.adapters());
        let arch = device::rows(driver.device())?.launches;
        let request = Frozen { forward: self, config, stored, adapters, arch, data, request };
        let mut fit = fit(&request, Some(&Memory::of(driver.device())))?;
        note_form(&fit, "--format", self.format, stored).iter().for_each(note);
        fit.change(|plan| tuning::select(plan.as_mut(), driver.device(), None))?;
        fit.change(|plan| {
            extend(plan);
            Ok::<_, DeviceError>(())
        })?;
        let mut sealed = self.seal(driver, &fit, (model, adapter))?;
        let plan = fit.plan;
        if let Some((adapter, weights)) = adapter.zip(plan.adapters()) {
            let mut scratch = Scratch::default();
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
        fit: &Fit<impl ForwardPlan>,
        (model, adapter): (&dyn Weights, Option<&Adapter>),
    ) -> Result<SealedDevice, DeviceError> {
        let models: Vec<String> =
            self.teacher.iter().chain([&self.model]).map(|path| path.display().to_string()).collect();
        let startup = &mut Startup::default();
        let mut sealed = seal(driver, fit, &self.target.kernels, &models, (Placement::Arena, None), startup)?;
        if self.heading {
            let teacher = self.teacher.as_ref().map(|teacher| teacher.display().to_string());
            let heading = sealed.heading().with("teacher", teacher).model("model", &self.model, model, self.format);
            tell(adapter.into_iter().fold(heading, Heading::adapter));
        }
        let mut wait = Wait::start("sending weights");
        Upload::new(&mut sealed, model, &mut |_| {
            wait.goes_on();
            Ok(())
        })
        .model(fit.plan.model(), Staging::Quantize)?;
        Ok(sealed)
    }
}
