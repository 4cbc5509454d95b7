//! `precast plan`, and `--dry-run` of `precast distill` and `precast train`

use std::collections::BTreeMap;

use clap::Args;
use precast_fatbins::{count, say};
use precast_kernels::{Arch, Key, KeyVariant};
use precast_plan::estimate::{Peak, flops, seconds};
use precast_plan::memory::human_bytes;
use precast_plan::training::{GATHER, LAST, MICRO, UPDATE};
use precast_plan::{Formats, Gemm, Launch, MemoryTable, Plan, Recipe, Recompute, Share, TrainingPlan, Work, keys};
use precast_runtime::cublas::KNOWN_VERSIONS;
use precast_runtime::{Device, DriverError, LoadError};
use serde::Serialize;

use super::print_json;
use crate::bundle::embedded;
use crate::config::{self, All, DeviceChoice, FlagsAndFile, GivenShare, RunConfig, Settings};
use crate::device;
use crate::error::Failure;
use crate::host_memory::HostMemory;
use crate::one_memory;
use crate::ranks::{MOST_RANKS, Place, Ranks};
use crate::sources::Shapes;
use crate::weight_format::{self, WeightFormat};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    options: FlagsAndFile<All>,
    /// Plan for this architecture instead of the device's
    #[arg(long, value_name = "ARCH")]
    arch: Option<Arch>,
    /// Plan for a rank of so many: what rank 0 takes, which is as much as any
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_RANKS)))]
    gpus: Option<u32>,
    /// Ignored: a plan runs nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let options = arguments.options.options()?;
    let given = GivenShare::of(&options);
    let mut config = options.complete(false)?;
    let place = Place { ranks: arguments.gpus.unwrap_or(1), ..Place::default() };
    config.take_share(&Ranks::of(&place), given, None)?;
    show(&config, &target(&config, arguments.arch)?, arguments.json)
}

/// What a plan is for.
pub struct Target {
    arch: Arch,
    /// The GPU, where it is one that is there.
    device: Option<Device>,
}

impl Target {
    /// Whether host and device share their memory: known of a device that is there, not of an architecture.
    fn has_one_memory(&self) -> bool {
        self.device.as_ref().is_some_and(Device::has_one_memory)
    }
}

/// The architecture asked for, or the run's device.
pub fn target(config: &RunConfig, asked: Option<Arch>) -> Result<Target, Failure> {
    asked.map_or_else(|| found(config), |arch| Ok(Target { arch, device: None }))
}

/// The device that a run would take. A plan for the simulated GPU is of use to those who ask for it.
fn found(config: &RunConfig) -> Result<Target, Failure> {
    let choice = match config.settings.device {
        DeviceChoice::Sim => return Ok(Target { arch: Arch::Sim, device: None }),
        DeviceChoice::Auto => DeviceChoice::Cuda(0),
        choice => choice,
    };
    match device::open(choice, &config.settings.kernels) {
        Err(Failure::Driver(found @ (DriverError::NoDriver | DriverError::NoGpu { .. })))
            if config.settings.device == DeviceChoice::Auto =>
        {
            let archs = Arch::GPUS.map(|arch| format!("--arch {}", arch.argument())).join(", ");
            Err(Failure::Usage(format!("{found}.\nSay what to plan for: {archs}")))
        }
        opened => {
            let device = opened?.device().clone();
            Ok(Target { arch: device::arch(&device)?, device: Some(device) })
        }
    }
}

/// Prints what a run would take.
pub fn show(config: &RunConfig, target: &Target, json: bool) -> Result<(), Failure> {
    let arch = target.arch;
    if config.settings.gemm == Gemm::Cublas && arch == Arch::Sim {
        return Err(DriverError::NoCublas.into());
    }
    let Settings { batch_size, seq_len, grad_accum, precision, recompute, .. } = &config.settings;
    let shapes = Shapes::read(config)?;
    shapes.check(config)?;
    let recipe = config.recipe();
    let lower_form =
        |formats: &Formats, recompute| shapes.lower(config, &Recipe { recompute, ..recipe }, formats, arch);
    let shared = shapes.shares_weights(config);
    let of_teacher = shapes.teacher.as_ref().filter(|_| !shared);
    let formats = of_teacher.map_or_else(Formats::dense, |(_, formats)| formats.clone());
    let asked = config.teacher_format.unwrap_or_default();
    let takes = |formats: &Formats| {
        let plan = lower_form(formats, recipe.recompute)?;
        let beside = || HostMemory::of(&plan, &config.data, true);
        let host_bytes = target.device.as_ref().map_or(0, |device| one_memory::host_bytes(device, beside));
        Ok::<_, Failure>((plan.plan.device_bytes(), host_bytes))
    };
    let mut forms = forms(&formats, takes)?;
    let form = form(asked, &forms, target);
    if of_teacher.is_some() {
        match takes(&Formats::int8()) {
            Ok((bytes, host_bytes)) => forms.push(Form { format: WeightFormat::Int8, bytes, host_bytes }),
            // Nothing computes it.
            Err(_) if form != WeightFormat::Int8 => {}
            Err(failure) => return Err(failure),
        }
    }
    let formats = match form {
        WeightFormat::Int8 => Formats::int8(),
        WeightFormat::Stored => formats,
        WeightFormat::Bf16 | WeightFormat::Auto => Formats::dense(),
    };
    let lower = |recompute| lower_form(&formats, recompute);
    let plan = lower(recipe.recompute)?;
    let choices = Recompute::ALL.into_iter().map(|recompute| Ok(Choice::of(recompute, &lower(recompute)?)));
    let choices = choices.collect::<Result<Vec<Choice>, Failure>>()?;
    let memory = MemoryTable::of(&plan.plan);
    let student_format = config.adapter.as_ref().map(|_| shapes.student_format(config).0);
    let trained = plan.adapters.as_ref().map(|adapters| {
        adapters.parameters.list.iter().map(|parameter| parameter.shape.iter().product::<u64>()).sum::<u64>()
    });
    let host = HostMemory::of(&plan, &config.data, target.has_one_memory());
    let digests = digests(config, arch, &plan)?;
    let mut launches: BTreeMap<KeyVariant, usize> = BTreeMap::new();
    for pair in plan.plan.launches().filter_map(Launch::pair) {
        *launches.entry(pair).or_default() += 1;
    }
    let mut products: BTreeMap<Key, usize> = BTreeMap::new();
    for product in plan.plan.products() {
        *products.entry(product.key.clone()).or_default() += 1;
    }
    let by_bundle = Recipe { gemm: Gemm::Bundle, ..recipe };
    let replaced: Vec<KeyVariant> = match products.is_empty() {
        true => Vec::new(),
        false => keys(&shapes.lower(config, &by_bundle, &formats, arch)?.plan)
            .difference(&keys(&plan.plan))
            .cloned()
            .collect(),
    };
    let estimate = Peak::of(arch).map(|peak| {
        let accum = f64::from(*grad_accum);
        (peak, accum * seconds(&plan.plan, MICRO, &peak) + seconds(&plan.plan, UPDATE, &peak))
    });
    let step_flops = u64::from(*grad_accum) * flops(&plan.plan, MICRO) + flops(&plan.plan, UPDATE);
    let tokens = u64::from(*batch_size) * u64::from(*seq_len) * u64::from(*grad_accum);

    if json {
        let kernels: Vec<serde_json::Value> = launches
            .iter()
            .map(|(pair, times)| {
                serde_json::json!({
                    "key": pair.key.to_string(),
                    "variant": pair.variant.to_string(),
                    "launches": times,
                    "sha256": digests.get(pair),
                })
            })
            .collect();
        print_json(&serde_json::json!({
            "arch": arch.name(),
            "memory": memory,
            "host_memory": host,
            "teacher_format": of_teacher.map(|_| serde_json::json!({ "chosen": form.to_string(), "choices": forms })),
            "student_format": student_format.map(|format| format.to_string()),
            "teacher_is_base": shared,
            "trained_parameters": trained,
            "recompute": { "chosen": recompute.to_string(), "choices": choices },
            "kernels": kernels,
            "cublas": (!products.is_empty()).then(|| serde_json::json!({
                "products": products.iter().map(|(key, launches)| serde_json::json!({
                    "key": key.to_string(), "launches": launches,
                })).collect::<Vec<_>>(),
                "in_place_of": replaced.iter().map(ToString::to_string).collect::<Vec<_>>(),
            })),
            "step": {
                "tokens": tokens,
                "flops": step_flops,
                "estimate": estimate.map(|(peak, seconds)| serde_json::json!({
                    "device": peak.device, "seconds": seconds, "tokens_per_s": tokens as f64 / seconds,
                })),
            },
        }));
        return Ok(());
    }
    say!("memory on {arch}, batch {} x {} tokens, {precision}:", batch_size, seq_len);
    say!("{memory}");
    if let Some((trained, format)) = trained.zip(student_format) {
        let base = if shared { ", which teaches too" } else { "" };
        let form =
            if format == WeightFormat::Int8 { "in int8".to_owned() } else { format!("--student-format {format}") };
        say!("an adapter trains: {trained} parameters. The student stays as it is, {form}{base}\n");
    }
    say!("host memory, at most:\n{host}");
    print_forms(form, &forms, target);
    say!("\n--recompute            takes                     launches in a micro-batch");
    for Choice { recompute: name, bytes, launches } in &choices {
        let chosen = if *name == recompute.to_string() { "  (chosen)" } else { "" };
        say!("  {name:<14} {:>12}  {bytes:>16} bytes {launches:>6}{chosen}", human_bytes(*bytes));
    }
    say!("");
    for (name, phases, launches, exchanges) in phases(&plan.plan) {
        let times = if phases > 1 { format!(", a layer at a time: {phases} phases") } else { String::new() };
        let exchanges = if exchanges == 0 { String::new() } else { format!(", {}", count(exchanges, "exchange")) };
        say!("phase {name:<8} {launches:>5} launches{exchanges}{times}");
    }
    let Share { replicas, ranks, rank } = config.share;
    if replicas > 1 {
        // What the start-up exchanges comes once.
        let phases = plan.plan.phases.iter().filter(|phase| [LAST, UPDATE, GATHER].contains(&phase.name.as_str()));
        let exchanges = phases.flat_map(|phase| &phase.nodes).filter_map(|node| match &node.work {
            Work::Exchange(exchange) => Some(exchange.bytes(rank)),
            Work::Launch(_) => None,
        });
        let sent: u64 = exchanges.sum();
        say!(
            "\n{replicas} replicas on {}: {} a GPU, {} further for gradients. A GPU updates {} of {} weights and sends {} a step",
            count(ranks as usize, "GPU"),
            config.share.local(),
            count(config.share.waiting() as usize, "buffer"),
            plan.shards.own_elems(),
            plan.shards.elems(),
            human_bytes(sent)
        );
    }
    say!("\n{} kernels:", launches.len());
    for (pair, times) in &launches {
        // The simulated GPU executes references: it takes no kernels from a bundle.
        let absent = if arch == Arch::Sim && config.settings.kernels.bundle.is_none() {
            "reference"
        } else {
            "not in the bundle"
        };
        let digest = digests.get(pair).map_or(absent, |digest| &digest[..12]);
        say!("  {times:>5} x {digest:<17}  {pair}");
    }
    print_products(&products, &replaced);
    say!("\nstep: {tokens} tokens, {:.3} TFLOP of products", step_flops as f64 / 1e12);
    match estimate {
        Some((peak, seconds)) => say!(
            "estimate (roofline, not measured): at least {:.1} ms a step, at most {:.0} tokens/s, by the peak figures of a {}",
            seconds * 1e3,
            tokens as f64 / seconds,
            peak.device
        ),
        None => say!("no estimate for the simulated GPU"),
    }
    Ok(())
}

/// What cuBLASLt computes, and which kernels are not needed for that.
fn print_products(products: &BTreeMap<Key, usize>, replaced: &[KeyVariant]) {
    if products.is_empty() {
        return;
    }
    say!("\n{} that cuBLASLt computes ({KNOWN_VERSIONS}):", count(products.len(), "product"));
    products.iter().for_each(|(key, count)| say!("  {count:>5} x {key}"));
    say!("in place of {} of --gemm bundle:", count(replaced.len(), "kernel"));
    replaced.iter().for_each(|pair| say!("  {pair}"));
}

/// The phases of a plan, those of a name but for a number as one: its name, how many they are, and their launches.
fn phases(plan: &Plan) -> Vec<(&str, usize, usize, usize)> {
    let mut all: Vec<(&str, usize, usize, usize)> = Vec::new();
    for phase in &plan.phases {
        let name = phase.name.split('.').next().unwrap_or_default();
        let of_phase = phase.launches().count();
        let moves = phase.nodes.len() - of_phase;
        match all.iter_mut().find(|known| known.0 == name) {
            Some((_, phases, launches, exchanges)) => {
                *phases += 1;
                *launches += of_phase;
                *exchanges += moves;
            }
            None => all.push((name, 1, of_phase, moves)),
        }
    }
    all
}

/// What a run would take with the teacher's weights in one form.
#[derive(Serialize)]
struct Form {
    #[serde(serialize_with = "config::display")]
    format: WeightFormat,
    bytes: u64,
    /// What the host takes of the same memory.
    #[serde(skip)]
    host_bytes: u64,
}

/// The forms that the teacher's weights can have, the one that takes most first.
fn forms(formats: &Formats, bytes: impl Fn(&Formats) -> Result<(u64, u64), Failure>) -> Result<Vec<Form>, Failure> {
    let of = |format, formats: &Formats| {
        let (bytes, host_bytes) = bytes(formats)?;
        Ok::<_, Failure>(Form { format, bytes, host_bytes })
    };
    let mut forms = vec![of(WeightFormat::Bf16, &Formats::dense())?];
    if !formats.is_dense() {
        forms.push(of(WeightFormat::Stored, formats)?);
    }
    Ok(forms)
}

/// The form that is asked for. `auto` is the first that fits, or takes least, on the device that there is; without one it is
/// the first.
fn form(asked: WeightFormat, forms: &[Form], target: &Target) -> WeightFormat {
    let (first, last) = (forms[0].format, forms[forms.len() - 1].format);
    match (asked, &target.device) {
        (WeightFormat::Auto, Some(device)) => {
            let fitting =
                forms.iter().find(|form| weight_format::fits(form.bytes + form.host_bytes, device.free_bytes));
            fitting.map_or(last, |form| form.format)
        }
        (WeightFormat::Auto, None) => first,
        (WeightFormat::Stored, _) => last,
        (WeightFormat::Int8, _) => asked,
        (WeightFormat::Bf16, _) => first,
    }
}

fn print_forms(chosen: WeightFormat, forms: &[Form], target: &Target) {
    if forms.len() < 2 {
        return;
    }
    say!("\n--teacher-format       takes");
    for Form { format, bytes, .. } in forms {
        let chosen = if *format == chosen { "  (chosen)" } else { "" };
        say!("  {:<14} {:>12}  {bytes:>16} bytes{chosen}", format.to_string(), human_bytes(*bytes));
    }
    let exact = forms.iter().filter(|form| form.format.is_exact()).count();
    match &target.device {
        _ if exact < 2 => say!("  auto: bf16; int8 gives other bits"),
        Some(device) => say!("  auto: the first that fits; {} has {} bytes free", device.name, device.free_bytes),
        None => say!("  auto: the first that fits into what is free on the device of a run; this plan is for none"),
    }
}

/// What a run would take with one choice of what is recomputed.
#[derive(Serialize)]
struct Choice {
    recompute: String,
    bytes: u64,
    /// In a micro-batch.
    launches: usize,
}

impl Choice {
    fn of(recompute: Recompute, plan: &TrainingPlan) -> Self {
        let launches = plan.plan.phase(MICRO).nodes.len();
        Self { recompute: recompute.to_string(), bytes: plan.plan.device_bytes(), launches }
    }
}

/// The digest of each kernel that the run's bundle holds.
fn digests(config: &RunConfig, arch: Arch, plan: &TrainingPlan) -> Result<BTreeMap<KeyVariant, String>, Failure> {
    let kernels = &config.settings.kernels;
    if kernels.bundle.is_none() && (arch == Arch::Sim || embedded()?.is_none()) {
        return Ok(BTreeMap::new());
    }
    let source = kernels.find(arch, &plan.plan)?;
    let bundle = source.open()?;
    bundle.verify().map_err(|error| source.refuse(error))?;
    if arch != Arch::Sim && !bundle.archs().contains(&arch) {
        eprintln!("note: there are no kernels for {arch} here. {}", LoadError::remedy(arch, &config.model_names()));
    }
    let modules = bundle.modules(arch).map_err(|error| source.refuse(error.into()))?;
    let of_code = modules.into_iter().filter_map(|m| Some((m.pair, m.entry.code.as_ref()?.digest.to_string())));
    Ok(of_code.collect())
}
