//! `precast plan` against the memory that there is: what does not fit is said, with the least change that does.

use crate::driver::machine;
use crate::support::Texts;
use crate::support::prelude::*;

fn plan(arguments: impl Texts) -> Command {
    let mut plan = precast();
    plan.with("plan --teacher aot/models/qwen2.5-7b.json --student aot/models/qwen2.5-0.5b.json").with(arguments);
    plan
}

fn json_of(mut command: Command) -> (Option<i32>, Value) {
    let (code, stdout, _) = command.with("--json").ends();
    (code, serde_json::from_str(&stdout).unwrap())
}

/// What a plan that ends with an exit code prints and says.
fn printed(mut plan: Command, expected: i32) -> (String, String) {
    let (code, printed, message) = plan.ends();
    assert_eq!(code, Some(expected), "{printed}{message}");
    (printed, message)
}

#[test]
fn a_plan_that_fits_in_no_form_prints_everything() {
    skip_if!(has_driver());
    let card = |free_mib| machine(&[("PRECAST_FAKE_INTEGRATED", "0"), ("PRECAST_FAKE_FREE_MIB", free_mib)]);
    let (large, small) = (card("40000"), card("20000"));
    let fits = large.run(&mut plan("--device cuda:0")).succeeds();
    let (printed, message) = printed(small.run(&mut plan("--device cuda:0")), 4);
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
    let (code, json) = json_of(small.run(&mut plan("--device cuda:0")));
    let chosen = &json["teacher_format"]["chosen"];
    assert_eq!((code, chosen, &json["room"]["fits"]), (Some(4), &json!(null), &json!(false)));
}

/// Whatever is said to fit does, and a dry run says it, too.
#[test]
fn the_change_that_a_plan_names_fits() {
    let arch = "--arch sm_89 --batch-size 6 --memory";
    let mut seen = Vec::new();
    for (mb, more) in [
        (30_000, "--teacher-format bf16"),
        (22_000, ""),
        (20_000, "--teacher-format int8"),
        (16_000, ""),
        (15_500, "--recompute blocks"),
        (15_000, ""),
        (14_000, ""),
    ] {
        let arguments = format!("{arch} {mb}000000 {more}");
        let (code, json) = json_of(plan(&arguments));
        let change = &json["room"]["least_change"];
        seen.push(format!("{mb} MB {more}: {} ({})", change["flags"], change["effect"]));
        assert_eq!(code, Some(4), "{seen:?}");
        if let Some(flags) = change["flags"].as_str() {
            // The last of a flag counts.
            let (code, json) = json_of(plan([&arguments, flags]));
            assert_eq!((code, &json["memory"]["total_bytes"]), (Some(0), &change["bytes"]), "{seen:?}");
        }
    }
    insta::assert_snapshot!(seen.join("\n"));
}

/// Of 40 MiB the plan takes less, and what may be left of them is too little for kernels.
#[test]
fn a_run_that_does_not_fit_exits_with_4_and_so_does_its_dry_run() {
    skip_if!(has_driver());
    let case = Case::new(17 * 4);
    for free_mib in ["1", "40"] {
        let card = machine(&[("PRECAST_FAKE_INTEGRATED", "0"), ("PRECAST_FAKE_FREE_MIB", free_mib)]);
        for more in ["--dry-run", ""] {
            let said = ["this run does not fit", ", up to 67108864 for kernels)"];
            card.run(&mut case.distill("out", [more, "--device cuda:0"])).fails(4, said);
            assert!(!case.has("out/run.json"));
        }
    }
}

/// `plan --card` compares with the memory of that card in the table, and answers first.
#[test]
fn a_card_answers_first_by_its_memory_in_the_table() {
    let answer = |limit: &str, card: &[&str], code: i32| -> String {
        let mut plan = plan(limit);
        plan.args(card);
        let (printed, _) = printed(plan, code);
        printed.split("\n\n").next().unwrap().to_owned()
    };
    let answers = [
        answer("--arch sm_89", &[], 0),
        answer("--card H200", &[], 0),
        answer("--teacher-format bf16", &["--card", "rtx 4090"], 4),
        answer("--card gb10", &[], 0),
        answer("--arch sm_90 --memory 4GiB", &[], 4),
    ];
    insta::assert_snapshot!(answers.join("\n\n"));
}

#[test]
fn a_plan_in_json_has_the_answer_and_its_numbers() {
    let (code, json) = json_of(plan("--card 4090 --teacher-format bf16"));
    assert_eq!((code, &json["fits"], &json["arch"]), (Some(4), &json!(false), &json!("sm_89")));
    assert_eq!(json["limit_bytes"], json!(23u64 << 30));
    assert_eq!(json["memory_bytes"], json["memory"]["total_bytes"]);
    assert_eq!(json["suggestions"][0], json["room"]["least_change"]);
    let suggestions: Vec<u64> = each(&json["suggestions"], "bytes");
    assert!((1..=3).contains(&suggestions.len()) && suggestions.iter().all(|bytes| *bytes <= (23 << 30) - (64 << 20)));
    let (code, json) = json_of(plan("--card H200"));
    assert_eq!((code, &json["fits"], &json["suggestions"]), (Some(0), &json!(true), &json!([])));
    let (code, json) = json_of(plan("--arch sm_89"));
    assert_eq!((code, &json["fits"], &json["limit_bytes"]), (Some(0), &json!(null), &json!(null)));
}

/// A bundle that holds none of them, so that none is there whatever this trainer embeds.
#[test]
fn kernels_that_are_missing_come_last_and_fail_a_check() {
    let case = Case::empty();
    let bundle = case.write("empty.bundle", simulated(&[])).display().to_string();
    let missing = |arguments: &str, code: i32| {
        let (printed, message) = printed(plan(["--card H200 --bundle", &bundle, arguments]), code);
        assert!(printed.starts_with("fits: "), "{printed}");
        let last = printed.lines().next_back().unwrap().to_owned();
        let command = format!(" kernels are not in {bundle}: precast-aot build --model ");
        let end = " --arch sm_90 --out run.bundle, then --bundle run.bundle";
        assert!(last.contains(&command) && last.ends_with(end), "{last}");
        (last, message)
    };
    let (last, _) = missing("", 0);
    let (_, message) = missing("--check", 3);
    assert!(message.contains(&last), "{message}");
    // What does not fit does not run, whatever kernels there are.
    printed(plan(["--arch sm_90 --memory 4GiB --check --bundle", &bundle]), 4);
}
