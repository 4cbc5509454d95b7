//! Conversations as a model reads them: its own chat template, rendered as transformers does, and which of the text its
//! assistant has said.

mod available;
mod child;
mod conversation;
mod json;
mod marks;
mod messages;
mod reasoned;
mod renderer;
mod source;
mod template;
mod templates;
#[cfg(test)]
mod tests;
mod turn_end;
mod variables;

pub use available::Chat;
pub use child::{COMMAND, serve};
pub use conversation::Conversation;
pub use messages::has_assistant;
pub use renderer::ChatTemplate;
pub use source::{ChatSource, TOOL_USE, token, tokenizer_config};
pub use template::date;
/// Templates without their process, for a program that searches for those that break them.
#[cfg(fuzzing)]
pub use templates::Templates;
pub use turn_end::TurnEnd;
pub use variables::ChatVariables;
