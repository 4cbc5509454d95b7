//! `precast selftest`

use clap::Args;
use precast_kernels::Arch;
use precast_runtime::selftest::selftest;
use precast_system::{count, say};

use crate::base::load_trace::Verbose;
use crate::device::run_heading::Heading;
use crate::options::DeviceOptions;
use crate::programs::bench::{missing, open_kernels};
use crate::programs::failure::Failure;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    target: DeviceOptions,
    /// Check only kernels whose keys start with this: `gemm.`, `attention.fwd`
    #[arg(long, default_value = "", value_name = "PREFIX")]
    kernel: String,
    /// Seed of the random inputs
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// Print every launch, not only failures, and each kernel that is loaded
    #[arg(long)]
    verbose: bool,
}

pub fn run(arguments: Arguments) -> Result<(), Failure> {
    Verbose { verbose: arguments.verbose }.start();
    let (driver, arch, source) = open_kernels(&arguments.target)?;
    let opened = driver.device().clone();
    let bundle = source.open()?;
    let modules = bundle.modules(arch).map_or(0, |modules| modules.len());
    say!("{}", Heading::new(&opened, bundle.digest(), modules));
    let (mut checked, mut failed) = (0, 0);
    selftest(driver, &bundle, &arguments.kernel, arguments.seed, |outcome| {
        checked += 1;
        match outcome.result {
            Ok(distance) if arguments.verbose => {
                say!("ok    {:.2e}  {} #{}", distance.norm, outcome.pair, outcome.sample);
            }
            Ok(_) => {}
            Err(fault) => {
                failed += 1;
                say!("FAIL  {} #{}: {fault}", outcome.pair, outcome.sample);
            }
        }
    })
    .map_err(|error| source.not_loaded(error))?;
    if checked == 0 {
        return Err(Failure::usage(missing(&arguments.kernel, arch)));
    }
    say!("{} checked on {}, {failed} failed", count(checked, "launch"), opened.name);
    if arch == Arch::Sim {
        say!(
            "the simulated GPU executes the host references: they were compared with themselves, and no machine code was"
        );
    }
    if failed > 0 {
        return Err(Failure::Kernels(format!("{failed} of {checked} kernel checks failed on {}", opened.name)));
    }
    Ok(())
}
