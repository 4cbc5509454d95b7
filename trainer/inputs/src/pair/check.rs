//! Refuses a pair that cannot teach.

use std::path::Path;

use precast_plan::Parameters;
use precast_system::input;

use super::tokenizers::{TokenizerComparison, compare};
use crate::base::lines::bounded;
use crate::base::notes::note;
use crate::checkpoint::{Checkpoint, CheckpointError, read_tokenizer};
use crate::tokenizer::{self, Tokenizer};

/// Differences that are listed.
const LISTED: usize = 10;

pub(super) fn both(teacher: &Checkpoint, student: &Checkpoint) -> String {
    format!("{} and {}", teacher.path().display(), student.path().display())
}

/// How the tokenizers of a pair compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokenizers {
    /// Each text has the same ids under both.
    Same,
    /// One has more tokens than the other, or there are not two to compare.
    Other,
}

/// A pair that can teach.
#[derive(Debug)]
pub struct Pair {
    /// Notes for people.
    pub notes: Vec<String>,
    pub tokenizers: Tokenizers,
}

impl Pair {
    /// Combines the pairs of two teachers and their student.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.notes.extend(other.notes.into_iter().filter(|note| !self.notes.contains(note)).collect::<Vec<_>>());
        let is_same = [self.tokenizers, other.tokenizers] == [Tokenizers::Same; 2];
        Self { tokenizers: if is_same { Tokenizers::Same } else { Tokenizers::Other }, ..self }
    }
}

/// Refuses a pair that cannot teach.
///
/// # Errors
/// [`CheckpointError`].
pub fn check(teacher: &Checkpoint, student: &Checkpoint) -> Result<Pair, CheckpointError> {
    let mut notes: Vec<String> = larger(teacher, student).into_iter().collect();
    let compared = tokens(teacher, student, &mut notes)?;
    let is_same = compared.as_ref().is_some_and(|compared| compared.only.is_empty());
    let TokenizerComparison { differences, only } = compared.unwrap_or_default();
    if !differences.is_empty() {
        let (both, differences) = (both(teacher, student), bounded(differences, LISTED).join("\n"));
        return Err(CheckpointError::Wrong(format!(
            "{both} have different tokenizers: the teacher predicts other tokens than the student.\n{differences}\n\
             Choose a teacher of the student's family, or make the student from it: precast init --from TEACHER \
             --layers ..."
        )));
    }
    notes.extend(only);
    let (wide, narrow) = (teacher.config().vocab, student.config().vocab);
    if wide > narrow {
        let beyond = wide - narrow;
        notes.push(format!(
            "the teacher's vocabulary of {wide} is truncated to the student's {narrow} before the softmax: \
             its predictions for the last {beyond} ids are ignored"
        ));
    }
    Ok(Pair { notes, tokenizers: if is_same { Tokenizers::Same } else { Tokenizers::Other } })
}

/// Returns a note on a student with more parameters than its teacher.
fn larger(teacher: &Checkpoint, student: &Checkpoint) -> Option<String> {
    let [theirs, own] = [teacher, student].map(|model| Parameters::new(model.config()).count());
    (own > theirs).then(|| format!("the student is larger than its teacher: {own} parameters, and {theirs}"))
}

/// Compares the tokenizers if both models have one; nothing differs between the same files. Adds a note for a model
/// without one.
fn tokens(
    teacher: &Checkpoint,
    student: &Checkpoint,
    notes: &mut Vec<String>,
) -> Result<Option<TokenizerComparison>, CheckpointError> {
    // Most pairs have one file twice: then there is nothing to compare.
    let files = [teacher, student].map(Checkpoint::tokenizer_file);
    if let [Some(one), Some(other)] = &files
        && same_bytes(one, other)
        && teacher.added_tokens()? == student.added_tokens()?
    {
        return Ok(Some(TokenizerComparison::default()));
    }
    let (of_teacher, of_student) = rayon::join(|| teacher.tokenizer(), || student.tokenizer());
    let note = match (of_teacher?, of_student?) {
        (Some(teacher), Some(student)) => return Ok(Some(compare(["teacher", "student"], teacher, student))),
        (None, None) => "neither model has a tokenizer: whether both have the same ids is not checked",
        (None, _) => "the teacher has no tokenizer: whether both models have the same ids is not checked",
        (_, None) => "the student has no tokenizer: whether both models have the same ids is not checked",
    };
    notes.push(note.to_owned());
    Ok(None)
}

/// Refuses a tokenizer that a file says otherwise than its model does.
///
/// # Errors
/// [`CheckpointError`] with what differs.
pub fn check_written(model: &Path, own: &Tokenizer, written: &Tokenizer) -> Result<(), CheckpointError> {
    let TokenizerComparison { mut differences, only } = compare(["model", "file"], own, written);
    differences.extend(only.into_iter().map(|line| format!("  {line}")));
    if differences.is_empty() {
        return Ok(());
    }
    let differences = bounded(differences, LISTED).join("\n");
    let reason =
        format!("its tokenizer cannot be written as GGUF: the file's would make other tokens of text.\n{differences}");
    Err(CheckpointError::of(model, reason))
}

/// Refuses the tokenizer of a directory whose ids are not a student's.
///
/// # Errors
/// [`CheckpointError`] with what differs, and where there are not two to compare.
pub fn check_tokenizer(directory: &Path, student: &Checkpoint) -> Result<(), CheckpointError> {
    let theirs = read_tokenizer(directory)?;
    let Some(own) = student.tokenizer()? else {
        let reason = "has no tokenizer that --tokenizer compares: put its tokenizer.json beside config.json";
        return Err(CheckpointError::of(student.path(), reason));
    };
    let TokenizerComparison { differences, only } = compare(["file", "student"], &theirs, own);
    only.iter().for_each(note);
    if differences.is_empty() {
        return Ok(());
    }
    let (directory, student) = (directory.display(), student.path().display());
    let differences = bounded(differences, LISTED).join("\n");
    Err(CheckpointError::Wrong(format!(
        "{directory} and {student} have different tokenizers: log-probabilities are of other tokens than the \
         student's.\n{differences}\n\
         Have log-probabilities computed by a model of the student's family, or name such a --student"
    )))
}

fn same_bytes(one: &Path, other: &Path) -> bool {
    let read = |path| input::read(path, tokenizer::MOST_BYTES).ok();
    read(one).zip(read(other)).is_some_and(|(one, other)| one == other)
}
