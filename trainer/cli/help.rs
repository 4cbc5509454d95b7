//! Order of options in help: those that most people need first stand under no heading, before all others, and `-h`
//! shows them alone.

use clap::Arg;

/// Names of options, with a blank between them.
pub(super) type Names = &'static str;

pub(super) const DISTILL: Names = "teacher student data out steps batch_size seq_len lr lora_rank resume";
pub(super) const TRAIN: Names = "model data out steps batch_size seq_len lr lora_rank resume config";
pub(super) const CACHE: Names = "teacher student data eval_data out seq_len batch_size precision memory gpus json";
pub(super) const PLAN: Names =
    "teacher student model batch_size seq_len precision lora_rank arch gpus memory card check json";
pub(super) const BENCH_STEP: Names = "teacher student model batch_size seq_len steps sweep out json";
pub(super) const SMOKE: Names = "teacher student model batch_size seq_len steps lr seed device";
pub(super) const DOCTOR: Names = "teacher student model bundle device json";

/// Puts options of these names first, in this order. `--help` shows others below under their headings, and `-h` does
/// not.
pub(super) fn first(names: Names) -> impl FnMut(Arg) -> Arg {
    |option| match names.split(' ').position(|name| option.get_id() == name) {
        Some(at) => option.help_heading(None).display_order(at),
        None => option.hide_short_help(true),
    }
}

/// An example of run.toml, ten lines with those that name the models.
pub(super) fn run_toml(models: &str) -> String {
    format!(
        "\
# precast ... --config run.toml
{models}
data = [\"chats.jsonl\", \"books\"]
eval-data = \"held-out.jsonl\"
out = \"run\"
steps = 2000
batch-size = 16
lr = 1e-4
schedule = \"cosine\"
"
    )
}

/// The lines of a pair, and of a model alone.
pub(super) const PAIR: &str = "teacher = \"Qwen2.5-1.5B-Instruct\"\nstudent = \"student\"";
pub(super) const MODEL: &str = "model = \"Qwen2.5-0.5B-Instruct\"";

/// The example as `--help` ends with it.
pub(super) fn example(models: &str) -> String {
    let lines = run_toml(models);
    let indented = lines.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n");
    format!("An example of run.toml; --print-config writes one of all options:\n{indented}")
}

/// Puts an option of a command that has few under no heading.
pub(super) fn plain(option: Arg) -> Arg {
    option.help_heading(None)
}
