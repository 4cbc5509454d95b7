//! Completions of held-out prompts, side by side with the data.

use itertools::Itertools;
use serde::Deserialize;
use serde_json::Value;

use super::escaped;
use crate::run::record::SAMPLES;
use crate::run::sample::SampleRecord;

/// Returns the table of a run's samples; nothing of a run that took none.
pub(super) fn table(run: &Value) -> String {
    let samples = run.get(SAMPLES).and_then(|samples| Vec::<SampleRecord>::deserialize(samples).ok());
    let Some(samples) = samples.filter(|samples| !samples.is_empty()) else { return String::new() };
    let row = |SampleRecord { prompt, completion, reference, .. }: &SampleRecord| {
        let cells = [prompt, completion, reference].map(|text| format!("<td>{}</td>", escaped(text))).concat();
        format!("<tr>{cells}</tr>")
    };
    let step = samples[0].step;
    format!(
        "<h2>Completions of held-out prompts after step {step}</h2><table class=\"samples\"><tr><td>prompt\
         </td><td>the student's completion</td><td>the data's</td></tr>{}</table>",
        samples.iter().map(row).join("")
    )
}
