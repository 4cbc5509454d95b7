//! Facts of the build of a program, for `--version --verbose`.

/// Commit that the release names by `PRECAST_COMMIT`. Cargo does not know it, and a build script that asked git would
/// run, and build again, after every commit.
pub const COMMIT: Option<&str> = option_env!("PRECAST_COMMIT");

/// Compiler as it names itself: `rustc 1.95.0 (59807616e 2026-04-14)`.
pub const RUSTC: &str = env!("PRECAST_RUSTC");

/// Machine that the program is for: `x86_64-unknown-linux-gnu`.
pub const TARGET: &str = env!("PRECAST_TARGET");

/// Names a program, its commit, machine and compiler: a line each.
pub fn lines(program: &str, version: &str) -> Vec<String> {
    let commit = COMMIT.unwrap_or("unknown, as of every build that is no release");
    let rustc = RUSTC.strip_prefix("rustc ").unwrap_or(RUSTC);
    vec![
        format!("{program} {version}"),
        format!("commit: {commit}"),
        format!("host: {TARGET}"),
        format!("rustc: {rustc}"),
    ]
}

/// True if the command line has `--verbose`, by which a program that is asked for its version says more.
pub fn is_verbose() -> bool {
    std::env::args_os().any(|argument| argument == "--verbose")
}
