//! `--verbose`: what happens, as it happens, on stderr.

use std::io::{self, Write};

use clap::Args;
use precast_system::tee;

/// The option of every command that runs kernels.
#[derive(Args, Clone, Copy, Debug)]
pub struct Verbose {
    /// Print each kernel as it is loaded, on stderr: digest, bytes, time
    #[arg(long, help_heading = "Output")]
    pub verbose: bool,
}

impl Verbose {
    /// Prints the events of this process from now on, if that is asked for.
    pub fn start(self) {
        if self.verbose {
            let lines = tracing_subscriber::fmt().with_writer(|| Stderr).with_ansi(false);
            lines.without_time().with_target(false).with_level(false).init();
        }
    }
}

/// Events come whole.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        tee::line(String::from_utf8_lossy(bytes).trim_end());
        io::stderr().write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
