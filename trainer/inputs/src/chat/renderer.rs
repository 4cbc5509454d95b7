//! A chat template as the trainer has it: processes of this program that render by it.

use std::io::BufReader;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minijinja::Value;
use minijinja::value::ValueKind;
use precast_fatbins::Digest;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::child::{self, COMMAND, MEMORY_BYTES, ROW_S, Row, Setup};
use super::conversation::refused;
use super::{ChatSource, ChatVariables, Conversation, messages};

/// A model's chat template.
pub struct ChatTemplate {
    setup: Setup,
    /// Processes that wait for a row: at most one for each thread that reads rows.
    idle: Mutex<Vec<Renderer>>,
    /// Of all that rendering follows from besides messages.
    pub digest: Digest,
}

impl ChatTemplate {
    /// The templates of a model, with a run's variables.
    ///
    /// # Errors
    /// Why one of them does not parse.
    pub fn new(source: &ChatSource, variables: ChatVariables) -> Result<Arc<Self>, String> {
        let given: Vec<String> = variables.texts().collect();
        let constants = source.constants.iter().flat_map(|(name, text)| [name.as_bytes(), text.as_bytes()]);
        let texts = [source.default.as_str(), source.tool_use.as_deref().unwrap_or_default()];
        let texts = texts.into_iter().chain(given.iter().map(String::as_str)).map(str::as_bytes);
        let digest = Digest::of_parts("precast.chat", texts.chain(constants));
        let setup = Setup { source: source.clone(), variables };
        let idle = Mutex::new(vec![Renderer::start(&setup)?]);
        Ok(Arc::new(Self { setup, idle, digest }))
    }

    /// A prompt, up to where the assistant goes on.
    ///
    /// # Errors
    /// A text that says what is wrong with it.
    pub fn prompt(&self, messages: &Value, tools: Option<&Value>) -> Result<String, String> {
        let row = Row { is_prompt: true, before: None, messages: messages.clone(), tools: tools.cloned() };
        self.render(&row).map(|Conversation { text, .. }| text)
    }

    /// A conversation, and what the assistant has said in it. Behind a prompt, of which nothing counts.
    ///
    /// # Errors
    /// A text that says what is wrong with it.
    pub fn conversation(
        &self,
        prompt: Option<&Value>,
        messages: &Value,
        tools: Option<&Value>,
    ) -> Result<Conversation, String> {
        let row = Row { is_prompt: false, before: prompt.cloned(), messages: messages.clone(), tools: tools.cloned() };
        self.render(&row)
    }

    /// True if a template names this key of a message, or rows are read by it.
    pub fn reads(&self, key: &str) -> bool {
        let ChatSource { default, tool_use, .. } = &self.setup.source;
        let texts = [Some(default), tool_use.as_ref()].into_iter().flatten();
        let words = texts.flat_map(|text| text.split(|one: char| !one.is_alphanumeric() && one != '_'));
        messages::is_read(key, words)
    }

    fn render(&self, row: &Row) -> Result<Conversation, String> {
        if ![&row.before, &row.tools].into_iter().flatten().chain([&row.messages]).all(is_finite) {
            return Err(refused("a number in it is not finite"));
        }
        let waiting = self.idle().pop();
        let mut renderer = waiting.map_or_else(|| Renderer::start(&self.setup), Ok).map_err(refused)?;
        let rendered = renderer.ask(row).map_err(refused)?;
        self.idle().push(renderer);
        rendered
    }

    pub(super) fn idle(&self) -> MutexGuard<'_, Vec<Renderer>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true if JSON can say a value.
fn is_finite(value: &Value) -> bool {
    match value.kind() {
        ValueKind::Number => value.is_integer() || f64::try_from(value.clone()).is_ok_and(f64::is_finite),
        ValueKind::Seq => value.try_iter().is_ok_and(|mut all| all.all(|one| is_finite(&one))),
        ValueKind::Map => {
            let finite = |name| value.get_item(&name).is_ok_and(|one| is_finite(&one));
            value.try_iter().is_ok_and(|mut names| names.all(finite))
        }
        _ => true,
    }
}

/// A process that renders.
pub(super) struct Renderer {
    pub process: Child,
    socket: BufReader<UnixStream>,
}

impl Renderer {
    /// Starts one, in a group of its own, which signals of a terminal do not reach.
    fn start(setup: &Setup) -> Result<Self, String> {
        let started = UnixStream::pair().and_then(|(ours, theirs)| {
            let mut command = Command::new("/proc/self/exe");
            command.arg(COMMAND).stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
            Ok(Self { process: command.process_group(0).spawn()?, socket: BufReader::new(ours) })
        });
        let mut renderer = started.map_err(|error| format!("no process starts that renders it: {error}"))?;
        renderer.ask::<Result<(), String>>(setup)??;
        Ok(renderer)
    }

    /// Returns the answer to a line, or how the process ended over it.
    fn ask<T: DeserializeOwned>(&mut self, line: &impl Serialize) -> Result<T, String> {
        let asked = child::write(self.socket.get_mut(), line);
        asked.and_then(|()| child::read(&mut self.socket)).ok().flatten().ok_or_else(|| self.ended())
    }

    fn ended(&mut self) -> String {
        let signal = self.process.wait().ok().and_then(|status| status.signal());
        match signal.and_then(rustix::process::Signal::from_named_raw) {
            Some(rustix::process::Signal::XCPU) => format!("it takes more than {ROW_S} s"),
            Some(rustix::process::Signal::ABORT | rustix::process::Signal::SEGV) => {
                format!("it takes more than {} MiB of memory, or nests too deeply", MEMORY_BYTES >> 20)
            }
            Some(signal) => format!("the process that renders it was ended by signal {}", signal.as_raw()),
            None => "the template engine fails at it".to_owned(),
        }
    }
}

impl Drop for Renderer {
    fn drop(&mut self) {
        // It has nothing to finish; waiting leaves no zombie.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
