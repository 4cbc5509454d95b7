//! Whether a debugger holds this process.

use std::fs;

/// True if a debugger holds this process, by Linux's account of it.
pub(super) fn is_traced() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    tracer(&status).is_some_and(|process| process != "0")
}

fn tracer(status: &str) -> Option<&str> {
    status.lines().find_map(|line| line.strip_prefix("TracerPid:")).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_traces_is_read_from_the_account_of_the_process() {
        assert_eq!(tracer("Name:\tprecast\nTracerPid:\t12\nUid:\t0\n"), Some("12"));
        assert_eq!([tracer("TracerPid:\t0\n"), tracer("")], [Some("0"), None]);
        assert!(!is_traced());
    }
}
