//! The chat template of a run, or the reason that there is none.

use std::path::Path;
use std::sync::Arc;

use super::ChatTemplate;

/// The chat template that data are read by, or the sentence that says which model lacks one.
#[derive(Clone)]
pub enum Chat {
    Template(Arc<ChatTemplate>),
    Lacking(String),
}

impl Chat {
    /// Names the model that lacks a template.
    pub fn lacked_by(model: &Path) -> String {
        format!("the model {} has no chat template", model.display())
    }

    /// The template, if there is one.
    pub fn template(&self) -> Option<&Arc<ChatTemplate>> {
        if let Self::Template(template) = self { Some(template) } else { None }
    }
}

impl Default for Chat {
    fn default() -> Self {
        Self::Lacking("there is no chat template".to_owned())
    }
}
