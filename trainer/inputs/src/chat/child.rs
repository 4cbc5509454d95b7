//! The process that renders conversations. A template is a stranger's program: it has a process of its own, which the
//! system ends where it takes too much memory or time, or overflows its stack.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;

use minijinja::Value;
use rustix::fs::{FileType, fstat};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::templates::Templates;
use super::{ChatSource, ChatVariables, Conversation};

/// The first argument of a program that is such a process. The harness of tests takes it for the name of a test, and
/// runs that.
pub const COMMAND: &str = "render_chats";

/// Memory that templates and a row may take besides the program's own.
pub(super) const MEMORY_BYTES: u64 = if cfg!(test) { 32 << 20 } else { 1 << 30 };
/// Time on a processor that a row may take.
pub(super) const ROW_S: u64 = if cfg!(test) { 1 } else { 20 };
/// Room for as many macros and loops within each other as the engine allows.
const STACK_BYTES: usize = 64 << 20;

/// The first line of what a process is told. The answer is nothing, or why a template does not parse.
#[derive(Serialize, Deserialize)]
pub(super) struct Setup {
    pub source: ChatSource,
    pub variables: ChatVariables,
}

/// Each line after it. The answer is a [`Conversation`], of a prompt its text alone, or why there is none.
#[derive(Serialize, Deserialize)]
pub(super) struct Row {
    /// True if the messages are a prompt that an assistant goes on from.
    pub is_prompt: bool,
    /// Messages before those that are learned.
    pub before: Option<Value>,
    pub messages: Value,
    pub tools: Option<Value>,
}

/// Answers what comes in by standard input, until the other end of that socket is closed; nothing where it is none.
///
/// # Errors
/// [`io::Error`] of the socket or of a limit.
pub fn serve() -> io::Result<()> {
    let input = io::stdin();
    if FileType::from_raw_mode(fstat(&input)?.st_mode) != FileType::Socket {
        return Ok(());
    }
    let socket = UnixStream::from(input.as_fd().try_clone_to_owned()?);
    let answers = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || answer(socket))?;
    answers.join().map_err(|_| io::Error::other("the template engine panics"))?
}

fn answer(mut socket: UnixStream) -> io::Result<()> {
    let mut lines = BufReader::new(socket.try_clone()?);
    limit(Resource::Core, 0)?;
    limit(Resource::Data, data_bytes()? + MEMORY_BYTES)?;
    let Some(setup) = read::<Setup>(&mut lines)? else { return Ok(()) };
    limit_row()?;
    let templates = Templates::new(&setup.source, setup.variables);
    write(&mut socket, &templates.as_ref().map(|_| ()))?;
    let Ok(templates) = templates else { return Ok(()) };
    while let Some(Row { is_prompt, before, messages, tools }) = read(&mut lines)? {
        limit_row()?;
        let rendered = match is_prompt {
            true => templates.prompt(&messages, tools.as_ref()).map(|text| Conversation { text, spans: Vec::new() }),
            false => templates.conversation(before.as_ref(), &messages, tools.as_ref()),
        };
        write(&mut socket, &rendered)?;
    }
    Ok(())
}

/// Writes a line of JSON.
pub(super) fn write(socket: &mut UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    socket.write_all(&line)
}

/// Reads a line of JSON; none where the other end is closed.
pub(super) fn read<T: DeserializeOwned>(lines: &mut BufReader<UnixStream>) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    lines.read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') { Ok(None) } else { Ok(Some(serde_json::from_slice(&line)?)) }
}

/// Gives the row that begins its time, whatever rows before it took.
fn limit_row() -> io::Result<()> {
    limit(Resource::Cpu, clock_gettime(ClockId::ProcessCPUTime).tv_sec as u64 + ROW_S)
}

/// Lowers a limit of this process, or leaves it where it is lower already.
fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let maximum = getrlimit(resource).maximum;
    Ok(setrlimit(resource, Rlimit { current: Some(maximum.map_or(most, |maximum| most.min(maximum))), maximum })?)
}

/// Returns the private memory of this process: `data` of `/proc/self/statm`, in pages.
fn data_bytes() -> io::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_ascii_whitespace().nth(5).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or_default();
    Ok(pages * rustix::param::page_size() as u64)
}
