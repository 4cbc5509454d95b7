//! A template, with what transformers gives to templates.

use std::fmt;
use std::ops::Range;

use chrono::NaiveDate;
use chrono::format::{Item, StrftimeItems};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::conversation::refused;
use super::{ChatVariables, json, marks, messages};

/// Its name in messages.
const NAME: &str = "chat_template";
/// Macros and loops within each other.
const MOST_CALLS: usize = 100;

/// Parses the day that `strftime_now` says.
///
/// # Errors
/// A text that says what is expected.
pub fn date(text: &str) -> Result<NaiveDate, String> {
    NaiveDate::parse_from_str(text, "%Y-%m-%d").map_err(|_| format!("`{text}` is no date: expected YYYY-MM-DD"))
}

/// The end of a rendered text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// The last message.
    Messages,
    /// The words that an assistant's next message begins with.
    GenerationPrompt,
}

pub(super) struct Template {
    environment: Environment<'static>,
    constants: Vec<(String, String)>,
    enable_thinking: Option<bool>,
    /// It says itself what the assistant says.
    pub has_marks: bool,
}

impl Template {
    pub fn new(text: &str, constants: &[(String, String)], variables: ChatVariables) -> Result<Self, String> {
        let ChatVariables { date, enable_thinking } = variables;
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| error.to_string())?);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_unknown_method_callback(unknown_method_callback);
        // As Jinja2 has it: templates ask it of tools, which may be none.
        environment.add_test("iterable", |value: &Value| {
            !matches!(value.kind(), ValueKind::None | ValueKind::Number | ValueKind::Bool)
        });
        environment.add_filter("tojson", json::filter);
        environment.add_filter(marks::FILTER, |text: &str| marks::filter(text));
        environment.add_function("raise_exception", raise);
        if let Some(date) = date {
            environment.add_function("strftime_now", move |format: &str| strftime(date, format));
        }
        let (text, has_marks) = marks::with_filter(text);
        environment.set_recursion_limit(MOST_CALLS);
        // In a process of its own, time is what ends it.
        #[cfg(fuzzing)]
        environment.set_fuel(Some(100_000));
        environment.add_template_owned(NAME, text).map_err(|error| what(&error))?;
        Ok(Self { environment, constants: constants.to_vec(), enable_thinking, has_marks })
    }

    /// Returns the text of messages and the ranges of bytes between marks.
    pub fn render(
        &self,
        messages: &[Value],
        tools: Option<&Value>,
        ending: Ending,
    ) -> Result<(String, Vec<Range<usize>>), String> {
        let none = || Value::from(());
        if self.has_marks && messages.iter().chain(tools).any(|one| messages::has_any(one, marks::MARKS)) {
            return Err("messages: U+FDD0 or U+FDD1 in the text, which are no characters: remove them".to_owned());
        }
        let constants = self.constants.iter().map(|(name, text)| (name.as_str(), Value::from(text.as_str())));
        let thinking = self.enable_thinking.map(|value| ("enable_thinking", Value::from(value)));
        let context = constants.chain(thinking).chain([
            ("messages", Value::from(messages.to_vec())),
            ("tools", tools.cloned().unwrap_or_else(none)),
            ("documents", none()),
            ("add_generation_prompt", Value::from(ending == Ending::GenerationPrompt)),
        ]);
        let template = self.environment.get_template(NAME).expect("it is in its environment");
        let text = template.render(Value::from_pairs(context)).map_err(|error| refused(what(&error)))?;
        Ok(if self.has_marks { marks::taken_away(&text) } else { (text, Vec::new()) })
    }
}

/// What an error says, with the line of the template.
fn what(error: &Error) -> String {
    let detail = error.detail().map_or_else(|| error.kind().to_string(), ToOwned::to_owned);
    match error.line() {
        Some(line) => format!("{detail} ({NAME}:{line})"),
        None => detail,
    }
}

fn raise(message: &str) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.to_owned()))
}

fn strftime(date: NaiveDate, format: &str) -> Result<String, Error> {
    let wrong = || Error::new(ErrorKind::InvalidOperation, format!("strftime_now cannot write `{format}`"));
    let midnight = date.and_hms_opt(0, 0, 0).ok_or_else(wrong)?;
    let items: Vec<Item<'_>> = StrftimeItems::new(format).collect();
    if items.contains(&Item::Error) {
        return Err(wrong());
    }
    let mut text = String::new();
    fmt::write(&mut text, format_args!("{}", midnight.format_with_items(items.iter()))).map_err(|_| wrong())?;
    Ok(text)
}
