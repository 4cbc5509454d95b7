//! Signals that ask a run to stop.

use std::fs;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level;

/// A signal that asks a run to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Signal {
    /// SIGHUP: its terminal, or the connection to that, is gone.
    Hangup = SIGHUP,
    /// SIGINT: what Ctrl-C sends.
    Interrupt = SIGINT,
    /// SIGQUIT: what Ctrl-\ sends.
    Quit = SIGQUIT,
    /// SIGTERM: what a job scheduler sends.
    Terminate = SIGTERM,
}

impl Signal {
    pub const ALL: [Self; 4] = [Self::Hangup, Self::Interrupt, Self::Quit, Self::Terminate];

    /// Those that were not ignored when this process started: `nohup` asks to survive SIGHUP, and a script's shell
    /// starts what it puts behind it without SIGINT and SIGQUIT.
    pub fn heeded() -> Vec<Self> {
        let ignored = fs::read_to_string("/proc/self/status").map_or(0, |status| ignored(&status));
        Self::ALL.into_iter().filter(|signal| ignored >> (signal.number() - 1) & 1 == 0).collect()
    }

    pub fn number(self) -> i32 {
        self as i32
    }

    pub fn of_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.number() == number)
    }

    /// 128 and the signal's number, as shells have it.
    pub fn exit_code(self) -> u8 {
        128 + self.number() as u8
    }

    /// The signal of an exit code.
    pub fn of_exit_code(code: u8) -> Option<Self> {
        Self::of_number(i32::from(code) - 128)
    }

    /// The name that messages have.
    pub fn name(self) -> &'static str {
        low_level::signal_name(self.number()).expect("every system has these")
    }
}

/// The signals that a process ignores, by Linux's account of it: a bit each, the lowest of signal 1.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_with_the_exit_code_of_shells() {
        assert_eq!(Signal::ALL.map(Signal::exit_code), [129, 130, 131, 143]);
        assert_eq!(Signal::ALL.map(|signal| Signal::of_exit_code(signal.exit_code())), Signal::ALL.map(Some));
        assert_eq!([0, 1, 128, 137].map(Signal::of_exit_code), [None; 4]);
    }

    #[test]
    fn ignored_signals_are_read_from_the_account_of_the_process() {
        assert_eq!(ignored("Name:\tprecast\nSigBlk:\tffff\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"), 0x1001);
        assert_eq!([ignored(""), ignored("SigIgn:\tnothing\n")], [0, 0]);
    }
}
