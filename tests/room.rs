//! `precast plan` against the memory that there is: what does not fit is said, with the least change that does.

use std::process::Command;

use serde_json::{Value, json};

use crate::driver::machine;
use crate::support::{Case, fail, has_driver, precast, root, succeed, texts};

fn plan(arguments: &[&str]) -> Command {
    let built_in = |name: &str| root().join(format!("aot/models/{name}.json"));
    let mut command = precast();
    command.arg("plan").arg("--teacher").arg(built_in("qwen2.5-7b")).arg("--student").arg(built_in("qwen2.5-0.5b"));
    command.args(arguments);
    command
}

fn json_of(command: &mut Command) -> (Option<i32>, Value) {
    let output = command.arg("--json").output().unwrap();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn a_plan_that_fits_in_no_form_prints_everything_chooses_none_and_exits_with_4() {
    if has_driver() {
        return;
    }
    let card = |free_mib| machine(&[("PRECAST_FAKE_INTEGRATED", "0"), ("PRECAST_FAKE_FREE_MIB", free_mib)]);
    let (large, small) = (card("40000"), card("20000"));
    let fits = succeed(&mut large.run(&mut plan(&["--device", "cuda:0"])));
    let output = small.run(&mut plan(&["--device", "cuda:0"])).output().unwrap();
    let (printed, message) = texts(&output);
    assert_eq!(output.status.code(), Some(4), "{message}");
    assert!(fits.contains("  (chosen)\n  stored"), "{fits}");
    let sections = |text: &str| {
        let heads = ["memory on ", "host memory", "--teacher-format ", "--recompute ", "step: ", "estimate"];
        heads.map(|head| text.lines().filter(|line| line.starts_with(head)).count())
    };
    assert_eq!(sections(&printed), sections(&fits));
    let answer = |text: &str| text.lines().next().unwrap().split(':').next().unwrap().to_owned();
    assert_eq!([answer(&fits), answer(&printed)], ["fits", "does not fit"]);
    let forms = printed.lines().skip_while(|line| !line.starts_with("--teacher-format"));
    let forms: Vec<&str> = forms.take_while(|line| !line.is_empty()).collect();
    insta::assert_snapshot!(format!("{}\n\n{message}", forms.join("\n")));
    let (code, json) = json_of(&mut small.run(&mut plan(&["--device", "cuda:0"])));
    assert_eq!(
        (code, &json["teacher_format"]["chosen"], &json["room"]["fits"]),
        (Some(4), &json!(null), &json!(false))
    );
}

#[test]
fn a_plan_for_an_architecture_has_nothing_to_compare_with_but_what_is_named() {
    let arch = ["--arch", "sm_89"];
    let with = |memory: &str| plan(&[&arch[..], &["--memory", memory]].concat());
    let (code, without) = json_of(&mut plan(&[&arch[..], &["--batch-size", "64"]].concat()));
    assert_eq!((code, &without["room"], &without["teacher_format"]["chosen"]), (Some(0), &json!(null), &json!("bf16")));
    let chosen = |memory: &str| {
        let (code, json) = json_of(&mut with(memory));
        (code.unwrap(), json["teacher_format"]["chosen"].clone())
    };
    let (_, plan) = json_of(&mut plan(&arch));
    let takes = |form: usize| plan["teacher_format"]["choices"][form]["bytes"].as_u64().unwrap() + (64 << 20);
    let around = |bytes: u64| [bytes, bytes - 1].map(|bytes| chosen(&bytes.to_string()));
    assert_eq!(around(takes(0)), [(0, json!("bf16")), (0, json!("stored"))]);
    assert_eq!(around(takes(1)), [(0, json!("stored")), (4, json!(null))]);
    assert!(fail(&mut with("much"), 2).contains("--memory"));
}

/// Whatever is said to fit does, and a dry run says it, too.
#[test]
fn the_change_that_a_plan_names_fits() {
    let arch = ["--arch", "sm_89", "--batch-size", "6", "--memory"];
    let mut seen = Vec::new();
    for (mb, more) in [
        (30_000, &["--teacher-format", "bf16"][..]),
        (22_000, &[]),
        (20_000, &["--teacher-format", "int8"]),
        (16_000, &[]),
        (15_500, &["--recompute", "blocks"]),
        (15_000, &[]),
        (14_000, &[]),
    ] {
        let bytes = format!("{mb}000000");
        let arguments = [&arch[..], &[&bytes], more].concat();
        let (code, json) = json_of(&mut plan(&arguments));
        let change = &json["room"]["least_change"];
        seen.push(format!("{mb} MB {}: {} ({})", more.join(" "), change["flags"], change["effect"]));
        assert_eq!(code, Some(4), "{seen:?}");
        if let Some(flags) = change["flags"].as_str() {
            // The last of a flag counts.
            let flags: Vec<&str> = flags.split(' ').collect();
            let (code, json) = json_of(&mut plan(&[&arguments[..], &flags].concat()));
            assert_eq!((code, &json["memory"]["total_bytes"]), (Some(0), &change["bytes"]), "{seen:?}");
        }
    }
    insta::assert_snapshot!(seen.join("\n"));
}

#[test]
fn a_dry_run_that_does_not_fit_exits_with_4() {
    if has_driver() {
        return;
    }
    let case = Case::new(17 * 4);
    let card = machine(&[("PRECAST_FAKE_INTEGRATED", "0"), ("PRECAST_FAKE_FREE_MIB", "1")]);
    let mut command = precast();
    command.args(["distill", "--dry-run", "--device", "cuda:0", "--batch-size", "2", "--seq-len", "16", "--teacher"]);
    command.arg(&case.teacher).arg("--student").arg(&case.student).arg("--data").arg(&case.data);
    let message = fail(&mut card.run(command.arg("--out").arg(case.out())), 4);
    assert!(message.contains("this run does not fit"), "{message}");
    assert!(!case.out().exists());
}

/// `plan --card` compares with the memory of that card in the table, and answers first.
#[test]
fn a_card_answers_first_by_its_memory_in_the_table() {
    let answer = |arguments: &[&str], code: i32| -> String {
        let output = plan(arguments).output().unwrap();
        let (printed, message) = texts(&output);
        assert_eq!(output.status.code(), Some(code), "{printed}{message}");
        printed.split("\n\n").next().unwrap().to_owned()
    };
    let answers = [
        answer(&["--arch", "sm_89"], 0),
        answer(&["--card", "H200"], 0),
        answer(&["--card", "rtx 4090", "--teacher-format", "bf16"], 4),
        answer(&["--card", "gb10"], 0),
        answer(&["--arch", "sm_90", "--memory", "4GiB"], 4),
    ];
    insta::assert_snapshot!(answers.join("\n\n"));
}

#[test]
fn a_plan_in_json_has_the_answer_and_its_numbers() {
    let (code, json) = json_of(&mut plan(&["--card", "4090", "--teacher-format", "bf16"]));
    assert_eq!((code, &json["fits"], &json["arch"]), (Some(4), &json!(false), &json!("sm_89")));
    assert_eq!(json["limit_bytes"], json!(23u64 << 30));
    assert_eq!(json["memory_bytes"], json["memory"]["total_bytes"]);
    let suggestions = json["suggestions"].as_array().unwrap();
    assert_eq!(suggestions[0], json["room"]["least_change"]);
    let most = (23 << 30) - (64 << 20);
    assert!(
        (1..=3).contains(&suggestions.len()) && suggestions.iter().all(|one| one["bytes"].as_u64().unwrap() <= most)
    );
    let (code, json) = json_of(&mut plan(&["--card", "H200"]));
    assert_eq!((code, &json["fits"], &json["suggestions"]), (Some(0), &json!(true), &json!([])));
    let (code, json) = json_of(&mut plan(&["--arch", "sm_89"]));
    assert_eq!((code, &json["fits"], &json["limit_bytes"]), (Some(0), &json!(null), &json!(null)));
}

#[test]
fn a_limit_that_is_none_or_is_given_twice_is_refused() {
    let refused = [
        &["--card", "H100"][..],
        &["--card", "RTX 4080"],
        &["--memory", "24GB", "--arch", "sm_89"],
        &["--memory", "24G", "--arch", "sm_89"],
        &["--memory", "24GiB", "--card", "4090"],
        &["--memory", "24GiB", "--device", "cuda:0"],
        &["--card", "4090", "--device", "cuda:0"],
        &["--card", "4090", "--device", "sim"],
        &["--card", "4090", "--arch", "sm_90"],
    ];
    let message = |arguments: &[&str]| format!("{}\n{}", arguments.join(" "), fail(&mut plan(arguments), 2));
    insta::assert_snapshot!(refused.map(message).join("\n"));
}

/// A bundle that holds none of them, so that none is there whatever this trainer embeds.
#[test]
fn kernels_that_are_missing_come_last_and_fail_a_check() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = dir.path().join("empty.bundle");
    std::fs::write(&bundle, precast_fatbins::encode(&precast_fatbins::Manifest::simulated([]), |_| &[])).unwrap();
    let bundle = bundle.to_str().unwrap();
    let missing = |arguments: &[&str], code: i32| {
        let output = plan(&[&["--card", "H200", "--bundle", bundle][..], arguments].concat()).output().unwrap();
        let (printed, message) = texts(&output);
        assert_eq!(output.status.code(), Some(code), "{printed}{message}");
        assert!(printed.starts_with("fits: "), "{printed}");
        let last = printed.lines().next_back().unwrap().to_owned();
        let command = format!(" kernels are not in {bundle}: precast-aot build --model ");
        assert!(
            last.contains(&command) && last.ends_with(" --arch sm_90 --out run.bundle, then --bundle run.bundle"),
            "{last}"
        );
        (last, message)
    };
    let (last, _) = missing(&[], 0);
    let (_, message) = missing(&["--check"], 3);
    assert!(message.contains(&last), "{message}");
    // What does not fit does not run, whatever kernels there are.
    let small = plan(&["--arch", "sm_90", "--memory", "4GiB", "--bundle", bundle, "--check"]).output().unwrap();
    assert_eq!(small.status.code(), Some(4));
}
