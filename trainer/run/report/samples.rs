//! Completions: of held-out prompts side by side with the data, and of a step.

use itertools::Itertools;

use super::page::escaped;
use crate::run::sample::SampleRecord;
use crate::run::samples_file::SampleLine;

/// Completions of a step in a report.
pub(super) const OF_STEP: usize = 3;

/// Returns the table of completions that a step trained on; nothing of a run that keeps none.
pub(super) fn of_step(lines: &[SampleLine]) -> String {
    let Some(SampleLine { step, .. }) = lines.first() else { return String::new() };
    let rows = lines.iter().map(|line| row(&[&line.prompt, &line.completion])).join("");
    format!(
        "<h2>Completions that step {step} trained on</h2><table class=\"samples\">{}{rows}</table>",
        row(&["prompt", "the student's completion"])
    )
}

/// Returns the table of a run's samples; nothing of none.
pub(super) fn table(samples: &[SampleRecord]) -> String {
    let Some(SampleRecord { step, .. }) = samples.first() else { return String::new() };
    let rows = samples.iter().map(|one| row(&[&one.prompt, &one.completion, &one.reference])).join("");
    format!(
        "<h2>Completions of held-out prompts after step {step}</h2><table class=\"samples\">{}{rows}</table>",
        row(&["prompt", "the student's completion", "the data's"])
    )
}

fn row(texts: &[&str]) -> String {
    format!("<tr>{}</tr>", texts.iter().map(|text| format!("<td>{}</td>", escaped(text))).join(""))
}
