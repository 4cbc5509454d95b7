//! What shells complete, and what manuals say.

use crate::support::prelude::*;

#[test]
fn shells_and_manuals_know_every_command() {
    precast().with("completions bash").prints(["--eval-data", "generate"]);
    let case = Case::empty();
    case.run("man man").succeeds();
    assert!(case.text("man/precast-distill.1").contains("eval\\-data"));
}

/// What bash has in COMPREPLY after a line has been typed so far.
fn completed(script: &str, line: &[&str]) -> Vec<String> {
    let ask = r#"
        source /dev/stdin || exit 9
        function=$(complete -p precast | sed -E 's/.* -F ([^ ]+) .*/\1/') || exit 9
        COMP_WORDS=(precast "$@"); COMP_CWORD=$#
        "$function" precast "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), script).unwrap();
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", ask, "bash"]).args(line).stdin(fs::File::open(file.path()).unwrap());
    bash.succeeds().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_and_their_values() {
    skip_if!(skipped(Command::new("bash").with("--version").output().is_err(), "there is no bash"));
    let script = precast().with("completions bash").succeeds();
    assert_eq!(completed(&script, &["d"]), ["distill", "data", "doctor"]);
    assert_eq!(completed(&script, &["generate", "--m"]), ["--model", "--max-tokens"]);
    // Values, and no files in their place.
    let of = |command: &str, option: &str| {
        completed(&script, &command.split(' ').chain([option, ""]).collect::<Vec<_>>()).join(" ")
    };
    let values = |option: &str| of("distill", option);
    for (option, expected) in [
        ("--shuffle", "true false"),
        ("--precision", "fp32 bf16 int8"),
        ("--recompute", "none norms blocks"),
        ("--gemm", "bundle cublas"),
        ("--schedule", "constant cosine"),
        ("--teacher-format", "auto bf16 stored int8"),
        ("--device", "auto cuda:0 portable:0 sim"),
        (
            "--lora-targets",
            "all q_proj k_proj v_proj o_proj gate_proj up_proj down_proj in_proj_qkv in_proj_z in_proj_b in_proj_a \
             out_proj",
        ),
        ("--gpus", "all"),
        ("--steps", ""),
        // Directories, which bash adds by itself.
        ("--teacher-cache", ""),
    ] {
        assert_eq!(values(option), expected, "{option}");
    }
    assert!(script.contains("compopt -o plusdirs"));
    assert!(values("--data").contains("Cargo.toml"));
    for (command, option, expected) in [
        ("eval", "--precision", "fp32 bf16"),
        ("init", "--precision", "fp32 bf16"),
        ("eval compare", "--against", "bf16 stored"),
        ("train", "--student-format", "bf16 stored"),
    ] {
        assert_eq!(of(command, option), expected, "{command} {option}");
    }
}
