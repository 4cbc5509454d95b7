//! Selects the chat template that renders a run's data: the student's own, else its teacher's if both have the same
//! tokenizer.

use super::{Pair, Tokenizers};
use crate::base::roles::Models;
use crate::chat::{Chat, ChatVariables};
use crate::checkpoint::{Checkpoint, CheckpointError};

/// The template of a run. A student that has a tokenizer and no template takes that of its teacher; `pair`
/// is none where nobody teaches.
pub fn chat(
    models: &Models<&Checkpoint>,
    pair: Option<&Pair>,
    variables: ChatVariables,
) -> Result<Chat, CheckpointError> {
    let student = models.student;
    let has_tokenizer = student.tokenizer()?.is_some();
    if has_tokenizer && let Some(template) = student.chat_template(variables)? {
        return Ok(Chat::Template(template));
    }
    let Some((teacher, pair)) = models.teachers.first().zip(pair) else {
        return Ok(Chat::Lacking(Chat::lacked_by(student.path())));
    };
    let (own, of_teacher) = (student.path().display(), teacher.path().display());
    let Some(source) = teacher.chat_source()? else {
        let lacks = format!("neither the student {own} nor the teacher {of_teacher} has a chat template");
        return Ok(Chat::Lacking(lacks));
    };
    // A student without a tokenizer is written with its teacher's, whose files have the template.
    if !has_tokenizer {
        return teacher.parse_template(&source, variables).map(Chat::Template);
    }
    if pair.tokenizers != Tokenizers::Same {
        let lacks = format!(
            "the student {own} has no chat template, and that of the teacher {of_teacher} is not used, since their \
            tokenizers are not \
             the same"
        );
        return Ok(Chat::Lacking(lacks));
    }
    let source = student.take_template(&source)?;
    teacher.parse_template(source, variables).map(Chat::Template)
}
