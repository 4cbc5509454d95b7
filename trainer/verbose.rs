//! `--verbose`: what happens, as it happens, on stderr.

use clap::Args;

/// The option of every command that runs kernels.
#[derive(Args, Clone, Copy, Debug)]
pub struct Verbose {
    /// Print each kernel as it is loaded, on stderr: digest, bytes, time
    #[arg(long)]
    pub verbose: bool,
}

impl Verbose {
    /// Prints the events of this process from now on, if that is asked for.
    pub fn start(self) {
        if self.verbose {
            let lines = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false);
            lines.without_time().with_target(false).with_level(false).init();
        }
    }
}
