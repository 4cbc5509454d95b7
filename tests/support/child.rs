//! Programs under way: waited for, signaled, and ended.

use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::{Process, Texts, heeding, is_note, names_in, texts};

/// Bounds every wait for a program: a test fails after it.
pub const FOREVER: Duration = Duration::from_secs(240);

/// Exit code, and what was said of an error.
pub fn end(child: Child) -> (Option<i32>, String) {
    let ((ended, waits), process) = (mpsc::channel::<()>(), child.id());
    let watchdog = thread::spawn(move || {
        let is_late = waits.recv_timeout(FOREVER) == Err(RecvTimeoutError::Timeout);
        is_late && Command::new("kill").args(["-9", &process.to_string()]).status().is_ok()
    });
    let output = child.wait_with_output().unwrap();
    drop(ended);
    let (_, stderr) = texts(&output);
    assert!(!watchdog.join().unwrap(), "it did not end:\n{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    let said = stderr.lines().filter(|line| !is_note(line) && !line.starts_with("SIG"));
    let said = said.collect::<Vec<_>>().join("\n");
    (output.status.code(), said)
}

/// Waits while something is so, which a program is to end.
pub fn wait_while(child: &mut Child, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while is_so() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        assert!(begun.elapsed() < FOREVER, "it goes on as it is");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until a run has written the line of a step.
pub fn wait_for_steps(out: &Path, steps: usize, child: &mut Child) {
    let lines = || std::fs::read_to_string(out.join("metrics.jsonl")).map_or(0, |text| text.lines().count());
    wait_while(child, || lines() < steps);
}

pub fn signal(child: &Child, name: &str) {
    Command::new("kill").args(["-s", name, &child.id().to_string()]).succeeds();
}

/// Waits for the end of a program that must end with an exit code and say each of the texts.
pub fn ends(child: Child, expected: i32, said: impl Texts) -> String {
    let (code, message) = end(child);
    assert_eq!(code, Some(expected), "{message}");
    said.each().iter().for_each(|text| assert!(message.contains(text), "no `{text}` in {message}"));
    message
}

/// Starts a program that heeds signals and whose outputs are read.
pub fn start(command: &Command) -> Child {
    heeding(command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

/// Where ranks may meet.
pub fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// The command as one of several ranks that torchrun starts, which meet at an address and whose outputs are read.
pub fn as_rank(mut command: Command, [rank, ranks]: [u32; 2], address: &str) -> Command {
    let (host, port) = address.split_once(':').expect("a host and a port");
    let [rank, ranks] = [rank, ranks].map(|number| number.to_string());
    command.env("RANK", &rank).env("LOCAL_RANK", &rank).env("WORLD_SIZE", ranks);
    command.env("MASTER_ADDR", host).env("MASTER_PORT", port);
    command.env("PRECAST_RENDEZVOUS_S", "60").env("PRECAST_RANK_PATIENCE_S", "60");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// True if every place that can break is asked for: `cargo xtask ci` does.
pub fn is_thorough() -> bool {
    std::env::var_os("PRECAST_TEST_FAULTS").is_some()
}

/// Returns the step from one place that can break to the next that is tried: 1 where every place is.
pub fn each_of(some: usize) -> usize {
    if is_thorough() { 1 } else { some }
}

/// Kills a program at one of its changes to the disk; false where it makes fewer and ends well.
pub fn is_killed_at(change: u32, command: &mut Command) -> bool {
    let status = command.env("PRECAST_KILL_AT", change.to_string()).output().expect("the program starts").status;
    assert!(status.success() || status.signal() == Some(9), "change {change}: {status}");
    !status.success()
}

/// Says how a run that was killed goes on: from its checkpoint if it has one, else from the start.
pub fn continuation(out: &Path) -> &'static str {
    // Killed while it replaced another: there is nothing at its place for a moment.
    let names = if out.exists() { names_in(out) } else { Vec::new() };
    let has = |prefix: &str| names.iter().any(|name| name.starts_with(prefix));
    match (has("checkpoint-"), has("run.json")) {
        (true, _) => "--resume",
        (false, true) => "--overwrite",
        (false, false) => "",
    }
}

/// Continues a run that was killed. Killed after its last change, nothing is left to do.
pub fn goes_on(command: &mut Command, what: &str) {
    let (code, _, message) = command.ends();
    assert!(code == Some(0) || message.contains("steps are done"), "{what}: {message}");
}

/// Ends a program, which nothing is heard of.
pub fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}
