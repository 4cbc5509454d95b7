//! `precast-aot toolchain`

use clap::{Args, Subcommand};
use precast_aot::home;
use precast_aot::toolchain::{self, pins, wheels};

use super::failure::Failure;
use precast_system::say;

#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Download the pinned compiler from PyPI, checked by SHA-256, into target/ of a checkout; elsewhere into the
    /// user's cache
    Install {
        /// Also the tools that tests use: cuobjdump, nvdisasm, libclang
        #[arg(long)]
        tools: bool,
    },
    /// Show the compiler that a build would use
    Which,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let home = home::directory();
    match arguments.command {
        Command::Install { tools } => {
            let pins: &[&'static pins::Pin] = if tools {
                &[&pins::NVRTC, &pins::CUOBJDUMP, &pins::NVDISASM, &pins::LIBCLANG]
            } else {
                &[&pins::NVRTC]
            };
            for pin in pins {
                for path in wheels::install(pin, &home, |what| say!("{what}"))? {
                    say!("{} {}: {} ({})", pin.package, pin.version, path.display(), pin.purpose);
                }
            }
        }
        Command::Which => {
            let nvrtc = toolchain::nvrtc(None, &home)?;
            say!("{} at {}", nvrtc.compiler(), nvrtc.path().display());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not every directory is a checkout: `home::directory`.
    #[test]
    fn help_says_where_the_compiler_goes() {
        let program = Arguments::augment_args(clap::Command::new("toolchain"));
        let help = program.find_subcommand("install").unwrap().get_about().unwrap().to_string();
        assert!(help.contains("target/ of a checkout") && help.contains("the user's cache"), "{help}");
    }
}
