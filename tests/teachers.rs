//! Several teachers of one student, each of some of the data.

use precast::device::session::Session;
use precast::inputs::data::{Chunk, MicroBatch, Packing, Places};
use precast::options::{ModelOptions, Options, TeacherSource, WeightFormat};
use precast_kernels::abi::step_metrics;
use precast_plan::Precision;

use crate::support::prelude::*;
use crate::teacher_cache::fill;

/// A student and two teachers, of which one is wider; rows of each, and of both, which name theirs.
fn case() -> Case {
    let case = Case::new(17 * 8);
    case.model("wide", 3, &[("intermediate_size", 160.into()), ("num_hidden_layers", 3.into())]);
    let of = |name: &str, count: u32| (0..count).map(|at| row(at, name)).collect::<Vec<Value>>();
    let all = [of("a", 19), of("b", 9)];
    for (name, rows) in ["a", "b"].into_iter().zip(&all) {
        case.write(&format!("{name}.jsonl"), lines(rows.iter().cloned().map(without_name)));
    }
    let mixed = (0..19).flat_map(|at| [all[0].get(at), all[1].get(at)]).flatten().cloned();
    case.write("mixed.jsonl", lines(mixed));
    let own = (0..9).map(|at| {
        let mut row = without_name(row(at, "c"));
        row["teacher_prompt"] = json!([at, 5, 7]);
        row
    });
    case.write("own.jsonl", lines(own));
    case
}

fn lines(rows: impl Iterator<Item = Value>) -> String {
    rows.map(|row| format!("{row}\n")).collect()
}

fn without_name(mut row: Value) -> Value {
    row.as_object_mut().unwrap().remove("teacher");
    row
}

/// A ragged row of token ids, the first of which do not count, and the name of its teacher.
fn row(at: u32, name: &str) -> Value {
    let salt = u32::from(name.as_bytes()[0]);
    let ids: Vec<u32> = (0..4 + (at * 5 + salt) % 11).map(|token| (7 * at + 13 * token * token + salt) % 96).collect();
    let labels = ids.iter().enumerate().map(|(at, id)| if at > 1 { i64::from(*id) } else { -100 });
    json!({"input_ids": ids, "labels": labels.collect::<Vec<i64>>(), "teacher": name})
}

const BOTH: &str = "--teacher a=teacher --teacher b=wide --overwrite --lr 1e-2";
const SOURCES: &str = "--data a.jsonl@a --data b.jsonl@b";

fn distill(case: &Case, out: &str, arguments: &str) -> Command {
    case.distill(out, arguments)
}

/// Losses of a micro-batch under the present weights, and all gradients.
fn computed(session: &mut Session, batch: &MicroBatch) -> ([u32; 2], Vec<u8>) {
    session.micro(batch, 0.25, 0).unwrap();
    let metrics: step_metrics = bytemuck::pod_read_unaligned(&session.read(session.plan.metrics).unwrap());
    let grad = session.plan.trained().trained().unwrap().grad;
    ([metrics.kd_loss, metrics.ce_loss].map(f32::to_bits), session.read(grad).unwrap())
}

/// A micro-batch has the losses and the gradients that it has in a run with its teacher alone, whoever else teaches and
/// in whatever order.
#[test]
fn a_micro_batch_has_the_bits_of_its_teacher_alone() {
    skip_if!(is_on_gpu());
    let case = case();
    let forms = [
        (Precision::Fp32, WeightFormat::Bf16, 0),
        (Precision::Bf16, WeightFormat::Bf16, 2),
        (Precision::Int8, WeightFormat::Int8, 0),
    ];
    for (precision, format, rank) in forms {
        let opened = |teachers: Vec<TeacherSource>| {
            let has_weights = teachers.iter().any(|teacher| teacher.path != Path::new("self"));
            let config = config(&case.teacher, &case.student, |options: &mut Options| {
                options.models =
                    ModelOptions { teacher: teachers, student: Some(case.student.clone()), ..ModelOptions::default() };
                options.arithmetic.precision = precision;
                options.teaching.teacher.teacher_format = Some(format).filter(|_| has_weights);
                options.packing.packing = Some(Packing::Rows);
                options.adapting.lora_rank = rank.into();
            });
            (Places::new(2, 16, Packing::Rows), session(&config))
        };
        let named = |name: &str, path: &Path| TeacherSource { name: Some(name.to_owned()), path: path.to_owned() };
        let all = [named("a", &case.teacher), named("b", &case.path("wide")), named("c", Path::new("self"))];
        let (places, mut several) = opened(all.to_vec());
        let batches: Vec<MicroBatch> = (0..6).map(|number| batch(number, number % 3, places)).collect();
        let found: Vec<_> = batches.iter().map(|batch| computed(&mut several, batch)).collect();
        for (number, teacher) in all.into_iter().enumerate() {
            let (_, mut alone) = opened(vec![TeacherSource { name: None, ..teacher }]);
            for (batch, found) in batches.iter().zip(&found).filter(|(batch, _)| batch.teacher == number) {
                let expected = computed(&mut alone, &MicroBatch { teacher: 0, ..batch.clone() });
                assert_eq!(found.0, expected.0, "{precision} {number}");
                assert!(found.1 == expected.1, "{precision} {number}");
            }
        }
    }
}

/// Rows of one teacher, laid out.
fn batch(number: u32, teacher: u32, places: Places) -> MicroBatch {
    let chunk = |at| {
        let ids: Vec<u32> = (0..3 + (at + number) % 5).map(|token| (11 * at + 7 * token + 31 * number) % 96).collect();
        Chunk { teacher, ..Chunk::plain(ids) }
    };
    MicroBatch::laid_out(&(0..2).map(chunk).collect::<Vec<_>>(), places)
}

/// However it is divided among GPUs, recomputed or continued; with sources that name their teachers and with rows.
#[test]
fn ranks_recomputing_and_continuing_give_one_set_of_weights() {
    skip_if!(is_on_gpu());
    let case = case();
    for (data, precision) in [(SOURCES, "bf16"), ("--data mixed.jsonl --teacher-format int8", "int8")] {
        let given = format!("{BOTH} {data} --precision {precision} --replicas 4 --grad-accum 4");
        let run = |out: &str, more: &str| {
            distill(&case, out, &format!("{given} --steps 4 --checkpoint-every 0 --eval-data mixed.jsonl {more}"))
                .succeeds();
            case.bits(out)
        };
        let whole = run("whole", "");
        for (out, more) in [("two", "--gpus 2"), ("four", "--gpus 4"), ("norms", "--recompute norms")] {
            assert!(run(out, more) == whole, "{data} {more}");
        }
        let held_out = ["whole", "four"].map(|out| case.metrics(out).pop().unwrap().held_out);
        assert!(held_out[0].is_some() && held_out[0] == held_out[1]);
        distill(&case, "parts", &format!("{given} --steps 2 --checkpoint-every 2 --eval-data mixed.jsonl")).succeeds();
        let continued = given.replace("--overwrite", "--resume");
        distill(&case, "parts", &format!("{continued} --steps 4 --checkpoint-every 2 --eval-data mixed.jsonl"))
            .succeeds();
        assert!(case.bits("parts") == whole, "{data}");
        let other = continued.replace("b=wide", "b=student").replace("int8", "bf16");
        distill(&case, "parts", &format!("{other} --allow-identical --steps 4 --checkpoint-every 2"))
            .fails(2, "is another run");
        let record = case.record("whole");
        assert!(["a", "b"].iter().all(|name| record["teachers"][name]["score"]["nll"].is_f64()), "{record}");
    }
}

/// A teacher may be a cache among others, exact or compact, and gives the bits that it gives where it is computed.
#[test]
fn a_cache_may_be_one_of_several_teachers() {
    let case = case();
    let run = |out: &str, teachers: &str| {
        let given = "--overwrite --lr 1e-2 --steps 5 --checkpoint-every 0 --grad-accum 2 --eval-data a.jsonl@a";
        distill(&case, out, &format!("{given} {SOURCES} {teachers}")).succeeds();
        case.bits(out)
    };
    let online = run("online", "--teacher a=teacher --teacher b=wide");
    fill(&case, "cache", ["--teacher wide --data b.jsonl"]).succeeds();
    assert!(run("cached", "--teacher a=teacher --teacher-cache b=cache") == online);
    assert!(run("checked", "--teacher a=teacher --teacher b=wide --teacher-cache b=cache") == online);
    let record = case.record("cached");
    let of = |name: &str| &record["teachers"][name];
    assert!(of("b")["cache"]["sha256"].is_string() && of("a")["cache"].is_null(), "{record}");
    fill(&case, "compact", ["--teacher wide --data b.jsonl --student student --keep-logits 7 --temperature 2"])
        .succeeds();
    assert!(run("compact-run", "--teacher a=teacher --teacher-cache b=compact") != online);
    let own = "--teacher a=teacher --teacher c=self --teacher-cache b=cache --data own.jsonl@c --steps 3";
    distill(&case, "own", &format!("--overwrite --checkpoint-every 0 {SOURCES} {own}")).succeeds();
    // Rows of b are not a's.
    let mut lacking = distill(
        &case,
        "lacking",
        &format!("{BOTH} --steps 2 --data a.jsonl@b --data b.jsonl@a --teacher-cache b=cache"),
    );
    let said = lacking.fails(5, "lacks");
    assert!(said.contains("cache"), "{said}");
}

/// The student's completions are compared with the teacher of their prompts, and scored as they were drawn.
#[test]
fn completions_are_taught_by_the_teachers_of_their_prompts() {
    skip_if!(is_on_gpu());
    let case = case();
    let given = "--on-policy 1 --max-tokens 7 --seq-len 24 --steps 3 --checkpoint-every 0 --grad-accum 4";
    let run = |out: &str, more: &str| {
        distill(&case, out, &format!("{BOTH} {given} --data mixed.jsonl {more}")).succeeds();
        assert!(case.metrics(out).iter().all(|record| record.rollouts.as_ref().unwrap().mismatch == 0));
        case.bits(out)
    };
    // Prompts that are held out: an odd number of each teacher.
    case.write("prompts.bin", (0..3 * 25u32).flat_map(|at| (at * 7 % 96).to_le_bytes()).collect::<Vec<u8>>());
    let held_out = "--replicas 2 --prompt-tokens 4 --eval-data prompts.bin@b --eval-data data.bin@a";
    let whole = run("whole", held_out);
    assert!(run("two", &format!("--gpus 2 {held_out}")) == whole);
    let losses = ["whole", "two"].map(|out| case.metrics(out).pop().unwrap().held_out.unwrap());
    assert!(losses[0].eval_tokens > 0 && losses[0] == losses[1], "{losses:?}");
}

/// Teachers in 8 bits are measured each on its own rows, beside those that have nothing to measure.
#[test]
fn each_teacher_in_8_bits_is_measured_on_its_own_rows() {
    let case = case();
    let run = |out: &str, more: &str| {
        let given = "--overwrite --lr 1e-2 --steps 2 --checkpoint-every 0 --grad-accum 2 --teacher-format int8";
        distill(&case, out, &format!("{given} {more}")).succeeds();
        case.record(out)
    };
    let several = "--teacher a=teacher --teacher b=wide --teacher c=self --data a.jsonl=1@a --data b.jsonl=1@b";
    let record = run("several", &format!("{several} --data own.jsonl=1@c"));
    for (name, model) in [("a", "teacher"), ("b", "wide")] {
        let alone = run(name, &format!("--teacher {model} --data {name}.jsonl"));
        let of_name = &record["teachers"][name];
        assert_eq!(of_name["certificate"]["measured"], alone["teacher_certificate"]["measured"], "{name}");
    }
    assert!(record["teachers"]["c"]["certificate"].is_null(), "{record}");
    // The base of an adapter is exact, whatever the others are in.
    let based = run(
        "based",
        "--teacher a=teacher --teacher b=base --lora-rank 2 --alpha 1 --data a.jsonl=1@a --data b.jsonl=1@b",
    );
    assert!(based["teachers"]["a"]["certificate"].is_object() && based["teachers"]["b"]["certificate"].is_null());
}

/// A teacher of which no step takes a row is named.
#[test]
fn a_teacher_that_taught_nothing_is_named() {
    let case = case();
    case.write("one.jsonl", without_name(row(3, "b")).to_string());
    let given = format!("{BOTH} --steps 2 --checkpoint-every 0 --data a.jsonl@a --data one.jsonl@b");
    let said = distill(&case, "out", &given).succeeds();
    let record = case.record("out");
    assert!(record["notes"].to_string().contains("teacher b taught nothing"), "{said} {record}");
}

/// A run whose only teacher has a name has the bits of one whose teacher has none.
#[test]
fn a_name_changes_no_bit() {
    let case = case();
    let given = "--overwrite --lr 1e-2 --steps 4 --checkpoint-every 0";
    let run = |out: &str, more: &str| {
        distill(&case, out, &format!("{given} {more}")).succeeds();
        case.weights(out)
    };
    assert!(run("named", "--teacher a=wide --data a.jsonl@a") == run("unnamed", "--teacher wide --data a.jsonl"));
}

#[test]
fn teachers_that_do_not_go_together_are_refused() {
    let case = case();
    case.write("other.jsonl", lines((0..9).map(|at| row(at, if at == 5 { "d" } else { "a" }))));
    case.model("small", 5, &[("vocab_size", 64.into())]);
    let common = "--overwrite --steps 2";
    for (code, arguments, said) in [
        (2, "--teacher a=teacher --teacher b=wide --data a.jsonl@a --data b.jsonl@c", "no --teacher is called c: a, b"),
        (2, "--teacher a=teacher --teacher b=wide --data a.jsonl@a", "no --data is taught by b"),
        (2, "--teacher teacher --teacher b=wide --data a.jsonl@b", "has no name: give each one"),
        (2, "--teacher teacher --teacher wide --data a.jsonl", "several teachers have names"),
        (2, "--teacher a=teacher --teacher a=wide --data a.jsonl@a", "two teachers are called a"),
        (2, "--teacher teacher --data a.jsonl@a", "requires --teacher a=PATH"),
        (2, "--teacher a=teacher --data a.jsonl@a --eval-data b.jsonl@b", "no --teacher is called b: a"),
        (
            2,
            "--teacher a=teacher --teacher b=wide --data mixed.jsonl --teacher-format int8 --teacher-certificate c",
            "is of one teacher",
        ),
        (5, "--teacher a=teacher --teacher b=wide --data a.jsonl", "has no teacher, of a, b"),
        (5, "--teacher a=teacher --teacher b=wide --data other.jsonl", "no --teacher is called d: a, b"),
        (5, "--teacher a=teacher --teacher b=small --data mixed.jsonl", "teacher b"),
    ] {
        distill(&case, "out", &format!("{common} {arguments}")).fails(code, said);
    }
    for (code, arguments, said) in [
        (2, "--teacher a=self --data own.jsonl@a --teacher-format int8", "cannot be combined with --teacher self"),
        (
            2,
            "--teacher a=self --teacher b=base --lora-rank 2 --data own.jsonl@a --data a.jsonl@b --teacher-format int8",
            "weights of their own",
        ),
        (5, "--teacher a=teacher --teacher b=self --data own.jsonl@a --data b.jsonl@b", "has no teacher_prompt"),
    ] {
        distill(&case, "out", &format!("{common} {arguments}")).fails(code, said);
    }
    case.run("cache --teacher teacher --data a.jsonl@a --out cache --seq-len 16").fails(2, "requires --teacher a=PATH");
    case.run("bench step --teacher a=teacher --student student").fails(2, "a measurement has one teacher");
}

/// The plan has room for each teacher, and the run takes what the plan says.
#[test]
fn a_plan_has_every_teacher() {
    skip_if!(is_on_gpu());
    let case = case();
    let plan = |teachers: &str| {
        let given = "plan --json --arch sim --student student --seq-len 16 --batch-size 2";
        serde_json::from_str::<Value>(&case.run([given, teachers]).succeeds()).unwrap()
    };
    let plans = ["--teacher teacher", "--teacher wide", "--teacher a=teacher --teacher b=wide"].map(plan);
    let own = |plan: &Value| {
        let rows = plan["memory"]["rows"].as_array().unwrap();
        rows.iter().find(|row| row["category"] == "teacher_weights").unwrap()["bytes"].clone()
    };
    let each = json!([{"name": "a", "bytes": own(&plans[0])}, {"name": "b", "bytes": own(&plans[1])}]);
    assert_eq!((&plans[2]["teachers"], plans[0].get("teachers")), (&each, None));
    let [a, b, both] = plans.each_ref().map(|plan| plan["memory"]["total_bytes"].as_u64().unwrap());
    assert!(both > a.max(b) && both < a + b);
    distill(&case, "out", &format!("{BOTH} {SOURCES} --steps 1")).succeeds();
    assert_eq!(case.metrics("out")[0].memory_bytes, both);
}

/// A printed run.toml gives the same run.
#[test]
fn a_printed_configuration_gives_the_same_teachers() {
    let case = case();
    fill(&case, "cache", ["--teacher wide --data b.jsonl"]).succeeds();
    let teachers = "--teacher a=teacher --teacher c=self --teacher b=wide --teacher-cache b=cache";
    let given = format!("{teachers} {SOURCES} --data own.jsonl@c --print-config");
    let printed = distill(&case, "out", &given).succeeds();
    for line in ["teacher = [\"a=teacher\",\"c=self\",\"b=wide\"]", "teacher_cache = [\"b=cache\"]"] {
        assert!(printed.contains(line), "{printed}");
    }
    case.write("run.toml", &printed);
    let mut again = precast();
    again.current_dir(case.dir.path()).with("distill --config run.toml --print-config");
    assert_eq!(again.succeeds(), printed);
}
