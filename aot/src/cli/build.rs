//! `precast-aot build`

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use precast_aot::cache::Cache;
use precast_aot::{Request, home, toolchain};
use precast_fatbins::{Digest, say};
use precast_kernels::Arch;

use super::{Archs, Failure, Models, write};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    models: Models,
    #[command(flatten)]
    archs: Archs,
    /// Where to write the bundle
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,
    /// NVRTC to use: a library or its directory [default: $PRECAST_NVRTC, $CUDA_HOME, the pinned wheel, the system]
    #[arg(long, value_name = "PATH")]
    nvrtc: Option<PathBuf>,
    /// Compile everything, even what the cache holds
    #[arg(long)]
    no_cache: bool,
    /// Compiler threads [default: one a core]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let started = Instant::now();
    let home = home::directory();
    let request = Request { models: arguments.models.find()?, archs: arguments.archs.arch.clone() };
    // The simulated GPU's rows need no compiler, but a bundle of them alone is still a bundle.
    let nvrtc = toolchain::nvrtc(arguments.nvrtc.as_deref(), &home)?;
    let cache = if arguments.no_cache { Cache::none() } else { Cache::at(home.join("cache")) };
    let bar = ProgressBar::new(request.tasks().len() as u64)
        .with_style(ProgressStyle::with_template("{bar:30} {pos}/{len} kernels  {elapsed}").expect("a valid template"));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(arguments.jobs.unwrap_or(0)).build();
    let pool = pool.map_err(|error| Failure::Io {
        what: "start threads for",
        path: arguments.out.clone(),
        error: std::io::Error::other(error),
    })?;
    let built =
        pool.install(|| precast_aot::build(&request, &nvrtc, &cache, &|done, _| bar.set_position(done as u64)))?;
    bar.finish_and_clear();
    let bundle = built.encode();
    write(&arguments.out, &bundle)?;
    let count = |arch: &Arch| built.manifest.modules.iter().filter(|module| module.arch == arch.name()).count();
    let archs: Vec<String> = request.archs.iter().map(|arch| format!("{} {arch}", count(arch))).collect();
    say!(
        "{}: {} kernels for {}, {} bytes, {}; compiled {} in {:.1} s with {}",
        arguments.out.display(),
        archs.join(" + "),
        built.manifest.models.join(", "),
        bundle.len(),
        Digest::of(&bundle).short(),
        built.compiled,
        started.elapsed().as_secs_f64(),
        nvrtc.compiler(),
    );
    Ok(())
}
