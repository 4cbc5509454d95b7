//! Options that compiling commands share: compiler, cache, progress bar.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use precast_aot::cache::Cache;
use precast_aot::{Built, Request, home, toolchain};
use precast_system::progress::{Progress, Unit};
use precast_system::terminal::tell;

use super::failure::Failure;

/// Options of compilation.
#[derive(Args)]
pub struct Compiler {
    /// NVRTC to use: a library or its directory [default: $PRECAST_NVRTC, $CUDA_HOME, the pinned wheel,
    /// precast[compiler]]
    #[arg(long, value_name = "PATH")]
    pub nvrtc: Option<PathBuf>,
    /// Compile everything, ignoring the cache
    #[arg(long)]
    no_cache: bool,
    /// Compiler threads, at most one per core [default: one per core]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

impl Compiler {
    /// Compiles a request, and shows progress.
    pub fn build(&self, request: &Request) -> Result<Built, Failure> {
        let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let threads = self.jobs.unwrap_or(cores).min(cores).get();
        if let Some(jobs) = self.jobs.filter(|jobs| jobs.get() > threads) {
            tell(format_args!(
                "note: --jobs {jobs}: this machine has {cores} cores, so {threads} kernels compile at a time"
            ));
        }
        let home = home::directory();
        let nvrtc = toolchain::nvrtc(self.nvrtc.as_deref(), &home)?;
        let cache = if self.no_cache { Cache::none() } else { Cache::at(home.join("cache")) };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|error| Failure::Threads(error.to_string()))?;
        let progress = Progress::start("compiling", Unit::Things("kernels"));
        let report = |done: usize, all: usize| progress.set(done as u64, all as u64);
        Ok(pool.install(|| precast_aot::build(request, &nvrtc, &cache, &report))?)
    }
}
