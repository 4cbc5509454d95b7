//! Every command of README and the guides runs: with small models of the names that the pages use, on the simulated
//! GPU.

use std::collections::BTreeSet;

use crate::support::prelude::*;

/// Commands that this machine cannot run, or that other tests do, by how they begin.
const ELSEWHERE: [(&str, &str); 14] = [
    ("precast export", "`export::`, whose models have tokenizers that GGUF has words for"),
    ("precast eval --model student.gguf", "what `export` writes: `export::`"),
    ("precast doctor", "needs a GPU: `driver::` has a stand-in for one"),
    ("precast selftest", "needs a GPU; `smoke::` and `cargo xtask simt` are of the same kernels"),
    ("precast evidence", "`evidence::`"),
    ("precast-aot abi", "`cargo xtask examples`, whose programs have such headers"),
    ("precast-aot toolchain which", "`environment::` of aot/models, which has such an environment"),
    ("precast-aot sign", "`publish::`"),
    ("precast-aot publish", "`publish::`"),
    ("precast-aot fetch", "`publish::`"),
    ("precast distill ... --bundle", "`publish::`"),
    ("precast distill ... --gpus", "needs GPUs: `ranks::` and `copies::` have stand-ins"),
    ("precast distill --teacher T --student S --data corpus.jsonl --out run --gpus", "the same"),
    ("precast bench", "needs a GPU to measure: `smoke::` and `output::`"),
];

/// Arguments that `...` stands for.
const BASE: [(&str, &str); 4] = [("--teacher", "T"), ("--student", "S"), ("--data", "corpus.jsonl"), ("--out", "run")];

/// Sizes for a simulated GPU, of each command that has them.
const SMALL: [(&str, &str); 7] = [
    ("--max-tokens", "4"),
    ("--prompt-tokens", "4"),
    ("--steps", "3"),
    ("--batch-size", "2"),
    ("--seq-len", "16"),
    ("--warmup", "1"),
    ("--layers", "0,3,6"),
];

/// Files that are here under another name.
const FILES: [(&str, &str); 8] = [
    ("book.txt", "held-out.txt"),
    ("D", "corpus.jsonl"),
    ("english-train.jsonl", "corpus.jsonl"),
    ("english-heldout.jsonl", "held-out.txt"),
    ("SmolLM2-135M-Instruct.Q4_1.gguf", "T"),
    ("Qwen2.5-32B-Q8_0.gguf", "T"),
    ("Qwen2.5-1.5B", "S"),
    ("chats.jsonl", "corpus.jsonl"),
];

/// The commands of a page, in its order: lines of its blocks of shell, and what its tables quote.
fn commands(page: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut shell = None;
    let joined = page.replace("\\\n", " ");
    for line in joined.lines() {
        if let Some(kind) = line.strip_prefix("```") {
            shell = if shell.is_none() { Some(kind == "sh") } else { None };
        } else if shell == Some(true) {
            commands.push(line.split(" #").next().unwrap_or_default().to_owned());
        } else if shell.is_none() && line.starts_with('|') {
            // Others of a table are names of commands.
            let quoted = line.split('`').skip(1).step_by(2);
            commands.extend(quoted.filter(|command| command.contains(" --")).map(str::to_owned));
        }
    }
    let words = commands.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let is_ours = |line: &String| line.starts_with("precast ") || line.starts_with("precast-aot ");
    words
        .map(|line| line.replace("target/release/", ""))
        .filter(|line| is_ours(line) && !line.starts_with("precast ..."))
        .collect()
}

fn here(word: &str) -> String {
    FILES.iter().find(|(name, _)| *name == word).map_or(word, |(_, file)| file).to_owned()
}

/// Words of a command, quoted ones whole.
fn words(command: &str) -> Vec<String> {
    let quoted = command.split('"').enumerate().flat_map(|(index, part)| match index % 2 {
        1 => vec![part.to_owned()],
        _ => part.split_whitespace().map(here).collect(),
    });
    quoted.collect()
}

/// The command in full: `...` with what it stands for, small sizes, and a place of its own for what it writes where
/// something else is there.
fn in_full(command: &str, dir: &Path, out: &str) -> Vec<String> {
    let mut arguments = words(command);
    if let Some(at) = arguments.iter().position(|word| word == "...")
        && !command.contains("\"...\"")
    {
        arguments.remove(at);
        let missing: Vec<_> = BASE.iter().filter(|(name, _)| !arguments.iter().any(|word| word == name)).collect();
        arguments.extend(missing.into_iter().flat_map(|(name, value)| [*name, *value]).map(str::to_owned));
    }
    let takes: &[&str] = match arguments[1].as_str() {
        "distill" | "train" => &["--steps", "--batch-size", "--seq-len"],
        "plan" if arguments[2] == "generate" => &["--seq-len"],
        // Sequences are as long as those of the cache.
        "eval" if arguments.iter().any(|word| word == "--teacher-cache") => &["--batch-size"],
        "plan" | "eval" => &["--batch-size", "--seq-len"],
        _ => &[],
    };
    for (name, value) in SMALL {
        match arguments.iter().position(|word| word == name) {
            Some(at) => value.clone_into(&mut arguments[at + 1]),
            None if takes.contains(&name) => arguments.extend([name, value].map(str::to_owned)),
            None => {}
        }
    }
    if let Some(at) = arguments.iter().position(|word| word == "--out")
        && dir.join(&arguments[at + 1]).exists()
    {
        out.clone_into(&mut arguments[at + 1]);
    }
    arguments
}

/// The models and texts that pages name.
fn sandbox() -> Case {
    let case = Case::empty();
    for (seed, name) in (1..).zip(["T", "S", "M"]) {
        // Rows of whole blocks of 32.
        case.model(name, seed, &[("num_hidden_layers", 7.into()), ("intermediate_size", 64.into())]);
        case.write(&format!("{name}/tokenizer.json"), tokenizer_of_words(WORDS).to_string());
    }
    let text = "the cat sat on the mat and again ".repeat(40);
    case.write("corpus.jsonl", format!("{}\n", json!({"text": text})));
    case.write("held-out.txt", &text);
    let log_probs = json!([null, [-0.1, -2.5], [-0.02, -4.5]]);
    let likely = json!({"input_ids": [9, 4, 7], "top_ids": [null, [4, 2], [7, 4]], "top_logprobs": log_probs});
    case.write("likely.jsonl", likely.to_string());
    let hinted = json!({"prompt": "the cat", "completion": " sat", "teacher_prompt": "It sat: the cat"});
    case.write("rows.jsonl", format!("{hinted}\n"));
    for name in ["sums.jsonl", "sort.jsonl"] {
        case.write(name, format!("{hinted}\n"));
    }
    case.write("prompts.jsonl", "{\"prompt\": \"the cat\"}\n{\"prompt\": \"on the mat\"}\n");
    case
}

/// Runs a command and returns its output, or what it says where it fails.
fn run(dir: &Path, arguments: &[String]) -> Result<String, String> {
    let mut command: Command = precast();
    command.current_dir(dir).args(&arguments[1..]);
    match arguments[1].as_str() {
        "data" | "plan" | "init" | "merge" => &mut command,
        "cache" if arguments.iter().any(|word| word == "--from") => &mut command,
        "cache" => command.args(device_and_bundle()),
        _ => command.args(on_device()),
    };
    // Random weights guess at random.
    if arguments[1] == "eval" {
        command.with("--untrained");
    }
    let (code, stdout, stderr) = command.ends();
    if code == Some(0) { Ok(stdout) } else { Err(format!("{}: {stderr}", arguments.join(" "))) }
}

/// Lines of README's transcript that are others on a simulated GPU, or of the models and few rows of these tests, by
/// how they begin.
const OF_A_GPU: [&str; 6] = ["device ", "arch ", "bundle ", "gpu ", "gpu: ", "ends "];
/// Those of data larger than what is read ahead, of many rows: `epochs::` compares them.
const OF_LARGE_DATA: [&str; 3] = [
    "data     1 file of rows of text: read while the run trains",
    "data     1 file of rows of text: 49 rows, ",
    "steps    200 x 8192 tokens",
];

/// A line of output without numbers, paths, names of models, and the units that sizes and durations choose. A simulated
/// GPU has no floor.
fn masked(line: &str) -> String {
    let is_model = ["teacher  ", "student  "].iter().any(|start| line.starts_with(start));
    let word = |(index, word): (usize, &str)| {
        let bare = word.trim_end_matches([',', ':', ';', '.']);
        let is_number = bare.contains(|c: char| c.is_ascii_digit()) || ["NaN", "inf", "-inf"].contains(&bare);
        let is_unit = ["B", "KiB", "MiB", "GiB", "us", "ms", "s"].contains(&bare);
        let is_path = bare.contains('/') && bare.contains(char::is_alphabetic) && bare != "tokens/s";
        let is_name = is_path || (is_model && index == 1);
        let kind = [(is_name, "name"), (is_number, "0"), (is_unit, "unit")].into_iter().find(|(is_so, _)| *is_so);
        kind.map_or(word.to_owned(), |(_, kind)| format!("{kind}{}", &word[bare.len()..]))
    };
    let words: Vec<String> = line.split_whitespace().enumerate().map(word).collect();
    let line = words.join(" ");
    line.strip_suffix(" 0 % of floor").map_or(line.clone(), str::to_owned)
}

#[test]
fn commands_of_the_pages_run() {
    skip_if!(is_on_gpu());
    let guides = fs::read_dir(root().join("docs/guides")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> = guides.filter(|path| path.extension().is_some_and(|kind| kind == "md")).collect();
    pages.sort();
    pages.insert(0, root().join("README.md"));
    let mut unused: BTreeSet<&str> = ELSEWHERE.iter().map(|(start, _)| *start).collect();
    let (case, mut ran, mut failed, mut printed) = (sandbox(), Vec::new(), Vec::new(), String::new());
    for page in pages {
        for command in commands(&fs::read_to_string(&page).unwrap()) {
            if let Some((start, _)) = ELSEWHERE.iter().find(|(start, _)| command.starts_with(start)) {
                unused.remove(start);
                continue;
            }
            let mut arguments = in_full(&command, case.dir.path(), &format!("out-{}", ran.len()));
            if let Some(at) = arguments.iter().position(|word| word == "--resume") {
                let first = [&arguments[..at], &arguments[at + 1..]].concat();
                let steps = arguments.iter().position(|word| word == "--steps").expect("a run has steps");
                "4".clone_into(&mut arguments[steps + 1]);
                failed.extend(run(case.dir.path(), &first).err());
            }
            match run(case.dir.path(), &arguments) {
                Ok(output) => printed.push_str(&output),
                Err(error) => failed.push(error),
            }
            ran.push(command);
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(ran.len() > 12, "{ran:#?}");
    assert!(unused.is_empty(), "no page has {unused:?}");

    // Every line of README's transcript is one that programs print.
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let transcript = readme.split_once("```text\n").unwrap().1.split_once("```").unwrap().0;
    let is_other = |line: &str| OF_A_GPU.iter().chain(&OF_LARGE_DATA).any(|start| line.starts_with(start));
    let shown: BTreeSet<String> =
        transcript.lines().filter(|line| !is_other(line) && *line != "...").map(masked).collect();
    let lines: BTreeSet<String> = printed.lines().map(masked).collect();
    let others: Vec<&String> = shown.difference(&lines).collect();
    assert!(shown.len() > 15 && others.is_empty(), "no program prints\n{others:#?}\nbut\n{lines:#?}");
}

#[test]
fn a_line_is_compared_but_for_its_numbers_and_names() {
    let same = |a: &str, b: &str| masked(a) == masked(b);
    let step = "step 1/200  loss 15.6101  kd 3.7666  lr 5.00e-5  20 ms  36 % of floor";
    assert!(same(step, "step 2/3  loss 1.5  kd NaN  lr 1.00e-3  1.25 s"));
    assert!(!same(step, "step 2/3  loss 1.5  ce 0.1  lr 1.00e-3  3 ms"));
    assert!(
        same("student: run/student", "student: out-3/student") && !same("student: run/student", "teacher: run/student")
    );
    assert!(same("teacher  A.gguf: Q4_1+F32+Q8_0, 272 tensors", "teacher  T: F32, 79 tensors"));
    assert!(!same("  moments  486.09 MiB  509704704 bytes", "  gradients  2.00 KiB  2048 bytes"));
}
