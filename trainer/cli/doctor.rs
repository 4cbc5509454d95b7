//! `precast doctor`

use std::path::Path;

use clap::Args;
use itertools::Itertools;
use precast_fatbins::Bundle;
use precast_kernels::Arch;
use precast_plan::{Gemm, TrainingPlan, human_bytes, keys};
use precast_runtime::{Device, DriverError, Rows, cuda, host, supported_capabilities};
use precast_system::{count, say};
use serde::Serialize;

use super::output::print_json;
use crate::device::bundle::{BundleSource, framed};
use crate::device::fit::Fit;
use crate::device::run_heading;
use crate::device::shapes::Shapes;
use crate::device::training::Training;
use crate::device::tuning::Tuning;
use crate::device::{self, DeviceError, remedy, tuning};
use crate::inputs::teacher_cache::{self, TeacherCache};
use crate::options::{DeviceChoice, DeviceOptions, Kernels, ModelOptions, Options, TeacherSource};
use crate::run::failure::Failure;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A smaller share of long pieces is worth a word.
const FRAGMENTED: f64 = 0.5;

/// One thing looked at.
#[derive(Serialize)]
struct Finding {
    what: &'static str,
    ok: bool,
    found: String,
    /// What `--device` takes to run there.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
    #[serde(skip)]
    exit_code: u8,
}

impl Finding {
    fn good(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, ok: true, found: found.into(), device: None, remedy: None, exit_code: 0 }
    }

    /// Something bad about the machine: exit code 4.
    fn bad_device(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { ok: false, remedy: Some(remedy.into()), exit_code: 4, ..Self::good(what, found) }
    }

    /// Something that failed, with the exit code of that.
    fn failed(what: &'static str, failure: impl Into<Failure>) -> Self {
        let failure = failure.into();
        Self { exit_code: failure.exit_code(), ..Self::bad_device(what, failure.to_string(), "see the message") }
    }

    /// Something bad about the kernels: exit code 3.
    fn bad_kernels(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { exit_code: 3, ..Self::bad_device(what, found, remedy) }
    }
}

pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let findings = examine(&arguments.options);
    if arguments.json {
        print_json(&findings);
    } else {
        for finding in &findings {
            say!("{} {:<10} {}", if finding.ok { "ok  " } else { "BAD " }, finding.what, finding.found);
            if let Some(remedy) = &finding.remedy {
                let indented = remedy.replace('\n', &format!("\n{:<19}", ""));
                say!("     {:<10} -> {indented}", "");
            }
        }
    }
    let bad: Vec<&Finding> = findings.iter().filter(|finding| !finding.ok).collect();
    match bad.first() {
        None => Ok(()),
        Some(first) => Err(Failure::Doctor {
            exit_code: first.exit_code,
            bad: bad.iter().map(|finding| finding.what).collect(),
            checked: findings.len(),
        }),
    }
}

/// Looks at the machine and its kernels, and at a run if its models are named.
fn examine(options: &Options) -> Vec<Finding> {
    let mut findings = Vec::new();
    let last = look(options, &mut findings);
    findings.extend(last.err());
    findings
}

/// Adds what is found, one thing after the other, up to one without which nothing further can be looked at.
fn look(options: &Options, findings: &mut Vec<Finding>) -> Result<(), Finding> {
    let DeviceOptions { device, kernels } = &options.target;
    // What is not asked for is no answer: a GPU is looked for, unless the simulated one is named.
    let choice = match *device {
        DeviceChoice::Auto => DeviceChoice::Cuda(0),
        choice => choice,
    };
    let device = match device::open(choice, kernels) {
        Ok(driver) => Some(driver.device().clone()),
        Err(failure) => {
            findings.extend(without_device(&failure));
            None
        }
    };
    if let Some(device) = &device {
        findings.push(Finding::good(
            "driver",
            match device.driver_version {
                Some((major, minor)) => format!("supports CUDA up to {major}.{minor}"),
                None => "none is needed for the simulated GPU".to_owned(),
            },
        ));
        findings.push(Finding { device: Some(choice.to_string()), ..Finding::good("device", describe(device)) });
        findings.extend(host::unfragmented_share().filter(|_| device.has_one_memory()).map(fragments));
        findings.push(architecture(device));
        findings.extend(gpus(device));
    }
    findings.extend(gemms(options.arithmetic.gemm, choice));
    let arch = device.as_ref().and_then(|device| device.rows).map(|rows| rows.code);
    let (bundle, finding) = read_bundle(kernels, arch)?;
    findings.push(finding);
    let (Some(device), Some(arch)) = (device, arch) else { return Ok(()) };
    if bundle.is_some() {
        findings.extend(held(&kernels.archs().unwrap_or_default(), arch, &models(options)));
    }
    let ModelOptions { teacher, teacher_cache, student, model } = &options.models;
    for source in teacher_cache {
        findings.push(cache(&source.path, &options.target.kernels)?);
    }
    let is_taught = !teacher.is_empty() || !teacher_cache.is_empty();
    if model.is_some() || is_taught && student.is_some() {
        let (models, fit) = plan(options, &device).map_err(|failure| Finding::failed("run", failure))?;
        let bundle = bundle.as_ref().and_then(|source| source.open().ok());
        findings.push(coverage(bundle.as_ref(), &fit.plan, arch, &models));
        findings.push(memory(&fit));
    }
    Ok(())
}

/// No driver, one that is too old, one that sees no GPU, or another reason why no device opens.
fn without_device(failure: &DeviceError) -> Vec<Finding> {
    let install = "install driver 580 or newer, or use --device sim";
    match failure {
        DeviceError::Driver(DriverError::NoDriver) => {
            vec![Finding::bad_device("driver", "no NVIDIA driver: libcuda.so is not on the library path", install)]
        }
        DeviceError::Driver(DriverError::OldDriver { takes }) => {
            let found = format!("too old: {}", precast_runtime::too_old(*takes));
            vec![Finding::bad_device("driver", found, install)]
        }
        DeviceError::Driver(DriverError::NoGpu { visible }) => {
            let hidden = visible.as_ref().map(|value| format!("; CUDA_VISIBLE_DEVICES is `{value}`"));
            let found = format!("the driver sees no GPU{}", hidden.unwrap_or_default());
            let remedy = "`nvidia-smi` lists the GPUs of this machine; or use --device sim";
            vec![Finding::good("driver", "found"), Finding::bad_device("device", found, remedy)]
        }
        other => vec![Finding::bad_device("device", other.to_string(), "see the message")],
    }
}

fn describe(device: &Device) -> String {
    let capability = device.compute_capability.map_or(String::new(), |(a, b)| format!(", compute capability {a}.{b}"));
    let [free, total] = [device.free_bytes, device.total_bytes].map(human_bytes);
    format!("{}{capability}, {free} of {total} free", device.name)
}

/// The library that a run has compute its GEMMs.
fn gemms(gemm: Gemm, choice: DeviceChoice) -> Option<Finding> {
    match device::cublas(gemm, choice) {
        Ok(cublas) => cublas.map(|cublas| Finding::good("GEMMs", format!("cuBLASLt {}", cublas.version()))),
        Err(error) => Some(Finding::failed("GEMMs", error)),
    }
}

/// How the free part of a memory that is the host's too is cut up. It is slower, not wrong, so nothing is BAD.
fn fragments(share: f64) -> Finding {
    let found = format!("{:.0} % of the free memory lies in pieces of 512 pages and more", 100.0 * share);
    let remedy = "for large allocations that are fast: sync; echo 1 | sudo tee /proc/sys/vm/drop_caches \\\n  \
                  /proc/sys/vm/compact_memory, or restart the machine";
    let remedy = (share < FRAGMENTED).then(|| remedy.to_owned());
    Finding { remedy, ..Finding::good("fragments", found) }
}

/// Row of kernels that the device runs.
fn architecture(device: &Device) -> Finding {
    match device.rows {
        Some(Rows { code: Arch::Sim, .. }) => Finding::good("arch", "sim"),
        Some(Rows { launches, code }) if launches == code => Finding::good("arch", rule(code)),
        Some(Rows { code, .. }) => Finding::good("arch", format!("{}; {}", run_heading::arch(device), rule(code))),
        None => {
            let (major, minor) = device.compute_capability.unwrap_or_default();
            let found = format!("no code of this project runs on {major}.{minor}");
            let remedy = format!("use a GPU of compute capability {}, or --device sim", supported_capabilities());
            Finding::bad_device("arch", found, remedy)
        }
    }
}

/// Whether several GPUs can train together. One can without.
fn gpus(device: &Device) -> Vec<Finding> {
    let count = match cuda::count() {
        Ok(count) if count > 1 && device.compute_capability.is_some() => count,
        _ => return Vec::new(),
    };
    let links = cuda::links().into_iter().flatten().join(", ");
    let links = if links.is_empty() { "unknown" } else { &links };
    let nvlinks = nvlinks(&cuda::nvlinks().unwrap_or_default());
    let mut findings = vec![Finding::good("gpus", format!("{count}{nvlinks}; links: {links}"))];
    findings.push(match cuda::nccl::version() {
        Ok(version) => Finding::good(
            "nccl",
            format!(
                "{version}. It moves bytes between GPUs that copy engines do not connect; its kernels are NVIDIA's \
                and not part of \
                 the signed bundle"
            ),
        ),
        // One GPU trains without it.
        Err(error) => {
            let remedy = "needed for --gpus only where GPUs cannot reach each other's memory, and across hosts: \
                install \
                          libnccl2, or pip install nvidia-nccl-cu13 and set PRECAST_NCCL to its libnccl.so.2";
            Finding { remedy: Some(remedy.to_owned()), ..Finding::good("nccl", format!("none: {error}")) }
        }
    });
    findings
}

/// How many NVLinks are up, by GPU, after the number of GPUs; nothing where there are none.
fn nvlinks(up: &[Option<u32>]) -> String {
    match up {
        [Some(first), others @ ..] if *first > 0 && others.iter().all(|other| *other == Some(*first)) => {
            format!(", {first} NVLinks each")
        }
        _ if up.iter().flatten().all(|up| *up == 0) => String::new(),
        _ => {
            let up = up.iter().map(|up| up.map_or("?".to_owned(), |up| up.to_string()));
            format!(", NVLinks by GPU: {}", up.format(", "))
        }
    }
}

/// On what an architecture's code runs.
fn rule(arch: Arch) -> String {
    let (major, minor) = arch.compute_capability().unwrap_or_default();
    if arch.is_exact() {
        format!("{arch} code runs on compute capability {major}.{minor} alone (suffix a)")
    } else {
        format!("{arch} code runs on compute capability {major}.{minor} and later {major}.x")
    }
}

/// Finds fault with kernels that are for other architectures.
fn held(archs: &[Arch], arch: Arch, models: &[String]) -> Option<Finding> {
    if arch == Arch::Sim || archs.contains(&arch) {
        return None;
    }
    let archs = archs.iter().map(|arch| arch.argument()).join(", ");
    let found = format!("it holds {} and no {}", if archs.is_empty() { "nothing" } else { &archs }, arch.argument());
    Some(Finding::bad_kernels("bundle", found, remedy::for_device(models, arch)))
}

/// Lists the features that embed kernels, for a remedy.
pub(super) fn features() -> String {
    let features: Vec<&str> = Arch::GPUS.into_iter().filter_map(Arch::feature).collect();
    format!("all (or one or more of {})", features.join(","))
}

/// The bundle of a run, verified; none where nothing is embedded, which is bad for a GPU.
fn read_bundle(kernels: &Kernels, arch: Option<Arch>) -> Result<(Option<BundleSource>, Finding), Finding> {
    let rebuild = "rebuild it: precast-aot build, or cargo build --release --features ...";
    let bad = |failure: DeviceError| Finding::bad_kernels("bundle", failure.to_string(), rebuild);
    let Some(source) = kernels.source(arch).map_err(bad)? else {
        let found = "none embedded: this trainer runs on the simulated GPU alone";
        if arch == Some(Arch::Sim) {
            return Ok((None, Finding::good("bundle", found)));
        }
        let remedy = format!("cargo build --release --features {}", features());
        return Ok((None, Finding::bad_kernels("bundle", found, remedy)));
    };
    let bundle = source.open().map_err(bad)?;
    bundle.verify().map_err(|error| Finding::bad_kernels("bundle", error.to_string(), rebuild))?;
    let archs = bundle.archs().iter().join(", ");
    let signed = source.note().map_or(String::new(), |_| ", no trusted key configured".to_owned());
    let others = framed().into_iter().filter(|row| !bundle.archs().contains(row)).join(", ");
    let others = match others.is_empty() || kernels.bundle.is_some() {
        true => String::new(),
        false => format!(", decompressed; not looked at: {others}"),
    };
    let modules = count(bundle.manifest().modules.len(), "module");
    let found = format!("{modules} verified for {archs}{signed}{others}");
    drop(bundle);
    Ok((Some(source), Finding::good("bundle", found)))
}

/// The paths of the models that are named.
fn models(options: &Options) -> Vec<String> {
    let ModelOptions { teacher, teacher_cache, student, model } = &options.models;
    let is_cached = |model: &&TeacherSource| !teacher_cache.iter().any(|cache| cache.name == model.name);
    let cached = teacher_cache.iter().map(|cache| teacher_cache::model(&cache.path));
    let models = teacher.iter().filter(is_cached).map(|model| model.path.clone()).chain(cached);
    models.chain(student.clone()).chain(model.clone()).map(|path| path.display().to_string()).collect()
}

/// The paths of a run's models, and its plan.
fn plan(options: &Options, device: &Device) -> Result<(Vec<String>, Fit<TrainingPlan>), Failure> {
    let config = options.planned()?;
    let mut fit = Training::fit_device(&Shapes::read(&config)?, &config, device)?;
    let tuning = Tuning::read(&config.tuning)?;
    fit.change(|plan| tuning::select(&mut plan.plan, device, tuning.as_ref()))?;
    Ok((config.model_names(), fit))
}

/// The cache of a teacher: its index is verified, and its teacher's head.
fn cache(path: &Path, kernels: &Kernels) -> Result<Finding, Finding> {
    let open = || {
        let cache = TeacherCache::open_trusted(path, &kernels.keys()?)?;
        cache.check_head()?;
        Ok::<_, Failure>(cache)
    };
    let cache = open().map_err(|error| Finding::failed("cache", error))?;
    let bytes = human_bytes(cache.manifest().hidden_bytes);
    Ok(Finding::good("cache", format!("{}, {bytes}, digest {}", cache.described(), cache.sha256())))
}

fn coverage(bundle: Option<&Bundle<'_>>, plan: &TrainingPlan, arch: Arch, models: &[String]) -> Finding {
    let needed = keys(&plan.plan);
    if arch == Arch::Sim {
        return Finding::good("kernels", format!("{} of {} have a host reference", needed.len(), needed.len()));
    }
    let modules = bundle.map(|bundle| bundle.modules(arch).unwrap_or_default()).unwrap_or_default();
    let held = modules.into_iter().map(|module| module.pair).collect();
    let missing: Vec<String> = needed.difference(&held).map(ToString::to_string).collect();
    if missing.is_empty() {
        return Finding::good("kernels", format!("all {} that this run launches", needed.len()));
    }
    let found = format!("{} of {} missing: {}", missing.len(), needed.len(), missing.join(" "));
    let command = remedy::build_command(models, &[arch]);
    let remedy = format!("{command}, then --bundle run.bundle");
    Finding::bad_kernels("kernels", found, remedy)
}

fn memory(fit: &Fit<TrainingPlan>) -> Finding {
    let (host, free) = (fit.takes.host_bytes, fit.memory.as_ref().map_or(0, |memory| memory.free));
    let needed = fit.takes.bytes + host;
    let shared = if host > 0 { format!(", {} of it on the host", human_bytes(host)) } else { String::new() };
    let found =
        format!("this run takes {} ({needed} bytes{shared}), {} are free", human_bytes(needed), human_bytes(free));
    match fit.is_within() {
        true => Finding::good("memory", found),
        false => Finding::bad_device("memory", found, "--recompute blocks, or a smaller --batch-size or --seq-len"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_of_an_architecture_are_built_from_named_models() {
        let finding = held(&[Arch::Sm120], Arch::Sm121, &["models/mine".into()]).unwrap();
        let remedy = finding.remedy.unwrap();
        assert!(remedy.contains("precast-aot build --model models/mine --arch sm_121 --out run.bundle"), "{remedy}");
        assert!(held(&[], Arch::Sim, &[]).is_none());
    }

    #[test]
    fn nvlinks_of_every_gpu_are_counted() {
        assert_eq!(nvlinks(&[Some(18), Some(18)]), ", 18 NVLinks each");
        assert_eq!(nvlinks(&[Some(18), Some(0), None]), ", NVLinks by GPU: 18, 0, ?");
        assert!([&[][..], &[None, None], &[Some(0), Some(0)]].into_iter().all(|up| nvlinks(up).is_empty()));
    }
}
