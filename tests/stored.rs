//! A model that stays on the device as its file holds it computes what it computes when it is dequantized while it is
//! read: the same bits.

use precast::run::step::StepRecord;
use precast_kernels::Block;
use precast_plan::{Formats, LayerConfig, ModelConfig, Parameters};

use crate::gguf;
use crate::support::Texts;
use crate::support::prelude::*;

/// Rows of every matrix are whole blocks of 256. The head is larger than what layers are dequantized to, so that all of
/// its parts are there.
/// Tokens of the models: some columns of the logits are none.
const VOCAB: u32 = 997;

fn model(family: &str, tied: bool) -> ModelConfig {
    let mut config = model_config("blocks");
    (config["architectures"], config["model_type"]) = (Value::Null, family.into());
    config["tie_word_embeddings"] = tied.into();
    config["vocab_size"] = VOCAB.into();
    shape(&config)
}

/// Every format at once: each GEMM's parts differ, the head and the embedding too. Every seventh matrix is dense.
fn mix(config: &ModelConfig) -> Formats {
    let matrices = Parameters::new(config).list.into_iter().filter(|parameter| parameter.shape.len() == 2);
    let mixed = matrices.enumerate().filter(|(index, _)| index % 7 != 6);
    mixed.map(|(index, matrix)| (matrix.name, Block::ALL[index * 3 % 8])).collect()
}

fn case() -> Case {
    let case = Case::new(17 * 8);
    fs::remove_dir_all(&case.student).unwrap();
    case.model("student", 2, &[("vocab_size", VOCAB.into())]);
    case
}

/// Writes a teacher of random weights.
fn teacher(case: &Case, name: &str, config: &ModelConfig, formats: &Formats, seed: u64) {
    gguf::write(case.dir.path(), name, config, formats, seed);
}

fn run(case: &Case, teacher: &str, out: &str, arguments: impl Texts) -> Command {
    let mut command = case.distill(out, ["--lr 1e-2 --steps 2 --teacher", teacher]);
    command.with(arguments);
    command
}

/// Losses of each step and the final weights, bit for bit, in both forms of the teacher, over several micro-batches and
/// recomputed.
fn assert_same_bits(case: &Case, teacher: &str) {
    for precision in ["fp32", "bf16"] {
        let [wide, stored] = ["bf16", "stored"].map(|format| {
            let forms = format!("--precision {precision} --teacher-format {format} --overwrite");
            run(case, teacher, "out", [&forms, "--checkpoint-every 0 --grad-accum 2 --recompute blocks"]).succeeds();
            let record = case.record("out");
            assert_eq!(record["config"]["teacher_format"], format);
            let scratch = record["memory"]["planned"].to_string().contains("teacher_scratch");
            assert_eq!(scratch, format == "stored", "{teacher}");
            case.bits("out")
        });
        assert!(wide == stored, "{teacher} {precision}");
    }
}

#[test]
fn a_teacher_in_a_mix_of_formats_teaches_the_same_bits() {
    let case = case();
    // The vocabulary of one is wider than the student's.
    for (family, tied, more) in [("llama", false, 0), ("llama", true, 200), ("qwen2", false, 0)] {
        let config = model(family, tied);
        let config = ModelConfig { vocab: config.vocab + more, ..config };
        for (name, formats) in [("mixed", mix(&config)), ("q4_k_m", Formats::q4_k_m(&config))] {
            let name = format!("{name}-{family}-{tied}.gguf");
            teacher(&case, &name, &config, &formats, 7);
            assert_same_bits(&case, &name);
        }
    }
}

/// Experts, eight of them, are dequantized three at a time: so many that the head's scratch holds two groups.
#[test]
fn stored_experts_teach_the_same_bits_in_groups() {
    skip_if!(lacks_kernels());
    let case = case();
    let mut config = model_config("blocks");
    let fields = serde_json::json!({
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "head_dim": 64, "vocab_size": VOCAB,
        "num_experts": 8, "num_experts_per_tok": 3, "norm_topk_prob": true, "moe_intermediate_size": 64,
    });
    config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let config = shape(&config);
    // Rows of the down projections are shorter than blocks of 256.
    let matrices = Parameters::new(&config).list.into_iter().filter(|parameter| parameter.name.contains("experts"));
    let blocks = [("gate", Block::Q4_K), ("up", Block::Q6_K), ("down", Block::Q8_0)];
    let block = |name: &str| blocks.iter().find(|(part, _)| name.contains(part)).unwrap().1;
    let formats = matrices.map(|matrix| (matrix.name.clone(), block(&matrix.name)));
    let all = formats.chain([("lm_head.weight".to_owned(), Block::Q6_K)]).collect();
    teacher(&case, "experts.gguf", &config, &all, 3);
    assert_same_bits(&case, "experts.gguf");
    let planned = case.record("out")["memory"]["planned"].to_string();
    let head = u64::from(VOCAB.next_multiple_of(64)) * u64::from(config.hidden) * 2;
    assert!(planned.contains(&format!(r#""bytes":{head},"category":"teacher_scratch""#)), "{planned}");
    let plan = case
        .run("plan --device sim --seq-len 64 --teacher experts.gguf --student student --teacher-format stored")
        .succeeds();
    assert!(plan.contains(" tiles of 128, 4 experts at a time\n"), "{plan}");
}

#[test]
fn a_run_may_continue_with_its_teacher_in_the_other_form() {
    let (case, config) = (case(), model("llama", false));
    teacher(&case, "teacher.gguf", &config, &mix(&config), 5);
    let run = |out: &str, format: &str, more: &str| {
        let form = format!("--teacher-format {format}");
        run(&case, "teacher.gguf", out, ["--checkpoint-every 1", &form, more]).succeeds()
    };
    run("whole", "auto", "--steps 4");
    if is_sim() {
        assert_eq!(case.record("whole")["config"]["teacher_format"], "bf16");
        assert!(case.text("whole/report.html").contains("<td>teacher_format</td><td>bf16</td>"));
    }
    for (out, first, second) in [("one", "bf16", "stored"), ("other", "stored", "bf16")] {
        run(out, first, "");
        let printed = run(out, second, "--steps 4 --resume");
        let change = format!("teacher_format was \"{first}\", is \"{second}\"");
        assert!(printed.contains(&change), "{printed}");
        let record = case.record(out);
        assert!(record["parts"][1]["changed"].to_string().contains("teacher_format was"), "{}", record["parts"]);
        assert!(case.bits(out) == case.bits("whole"), "{first} then {second}");
    }
}

/// Safetensors hold no blocks: both forms are one, and that is said.
#[test]
fn a_stored_hugging_face_directory_is_a_bf16_one() {
    let case = case();
    case.model("wide", 9, &[("vocab_size", 1000.into())]);
    let stdout = run(&case, "wide", "stored", "--teacher-format stored").succeeds();
    let heading = stdout.lines().find(|line| line.starts_with("teacher ")).expect(&stdout);
    assert!(heading.ends_with(", as bf16: nothing in it is quantized"), "{stdout}");
    assert!(!stdout.lines().any(|line| line.starts_with("student ") && line.contains("quantized")), "{stdout}");
    assert_eq!(case.record("stored")["config"]["teacher_format"], "bf16");
}

/// Both forms refuse the same files, in the same words, before a step is made.
#[test]
fn damaged_blocks_are_refused_before_anything_runs() {
    let (case, config) = (case(), model("llama", false));
    let formats = Formats::uniform(&config, Block::Q4_K);
    teacher(&case, "teacher.gguf", &config, &formats, 5);
    let whole = case.read("teacher.gguf");
    let refused = |bytes: &[u8], said: &str| {
        case.write("damaged.gguf", bytes);
        let [wide, stored] = ["bf16", "stored"].map(|format| {
            let message = run(&case, "damaged.gguf", format, format!("--teacher-format {format}")).fails(5, said);
            assert!(!case.has(&format!("{format}/metrics.jsonl")));
            message
        });
        assert_eq!(notes_apart(&wide), notes_apart(&stored));
    };
    refused(&whole[..whole.len() - 4000], "truncated");
    // The scale of a block of the last query matrix, whose rows are put in another order.
    let q = whole.windows(19).position(|at| at == b"blk.1.attn_q.weight").unwrap();
    let entry = q + 19;
    let offset = u64::from_le_bytes(whole[entry + 24..entry + 32].try_into().unwrap()) as usize;
    let data = whole.len() - data_bytes(&config, &formats);
    let mut damaged = whole.clone();
    damaged[data + offset + 10 * 144..][..2].copy_from_slice(&[0x00, 0x7C]);
    refused(&damaged, "model.layers.1.self_attn.q_proj.weight is ");
    // Another type of block than the size is of.
    let mut damaged = whole.clone();
    damaged[entry + 20..entry + 24].copy_from_slice(&8u32.to_le_bytes());
    damaged.truncate(whole.len() - data_bytes(&config, &formats) + offset + 256 * 256);
    refused(&damaged, "truncated");
}

fn notes_apart(message: &str) -> String {
    let lines = message.lines().filter(|line| !is_note(line));
    // The file is the same; elements are counted alike and shown in the precision that they are read in.
    lines.collect::<Vec<_>>().join("\n").replace("(as bf16)", "(as f32)")
}

/// Bytes behind the table: each tensor and its padding.
fn data_bytes(config: &ModelConfig, formats: &Formats) -> usize {
    let bytes = |parameter: &precast_plan::Parameter| match formats.of(&parameter.name) {
        Some(block) => precast_kernels::Format::Block(block).bytes(parameter.elems()),
        None => parameter.elems() * if parameter.shape.len() == 2 { 2 } else { 4 },
    };
    Parameters::new(config).list.iter().map(|parameter| bytes(parameter).next_multiple_of(32) as usize).sum()
}

/// From configurations alone, which stand for files in the mix of Q4_K_M, on a machine without a GPU.
#[test]
fn a_plan_says_what_either_form_takes() {
    let plan = |more: &str| {
        let models = "--teacher aot/models/qwen2.5-7b.json --student aot/models/qwen2.5-0.5b.json";
        let mut plan = precast();
        plan.with(["plan --arch sm_89 --batch-size 8 --seq-len 1024", models, more]);
        plan
    };
    let json = |more: &str| plan(more).with("--json").json();
    let row = |plan: &Value, category: &str| -> u64 {
        let rows = plan["memory"]["rows"].as_array().unwrap();
        rows.iter().filter(|row| row["category"] == category).map(|row| row["bytes"].as_u64().unwrap()).sum()
    };
    let (auto, stored) = (json(""), json("--teacher-format stored"));
    assert!(row(&stored, "teacher_weights") + row(&stored, "teacher_scratch") <= 6_000_000_000);
    assert!(stored["memory"]["total_bytes"].as_u64().unwrap() <= 45 << 29, "22.5 GiB");
    assert_eq!((row(&auto, "teacher_scratch"), &auto["teacher_format"]["chosen"]), (0, &json!("bf16")));
    assert_eq!(stored["teacher_format"]["chosen"], "stored");
    assert_eq!(auto["teacher_format"]["choices"], stored["teacher_format"]["choices"]);
    assert_eq!(stored["teacher_format"]["choices"][1]["bytes"], stored["memory"]["total_bytes"]);
    let int8 = json("--teacher-format int8");
    assert_eq!(each::<String>(&int8["teacher_format"]["choices"], "format"), ["bf16", "stored", "int8"]);
    let seconds = |plan: &Value| plan["step"]["estimate"]["seconds"].as_f64().unwrap();
    assert!(1.5 * seconds(&int8) < seconds(&auto), "8-bit GEMMs are counted at their own rate");
    let printed = plan("--teacher-format stored").succeeds();
    let lines = printed.lines().skip_while(|line| !line.starts_with("--teacher-format"));
    insta::assert_snapshot!(lines.take(5).collect::<Vec<_>>().join("\n"));
}

/// A configuration alone is measured in the mix of Q4_K_M.
#[test]
fn bench_measures_a_stored_teacher_of_random_weights() {
    let case = case();
    case.write("blocks.json", model_config("blocks").to_string());
    let models = "--teacher blocks.json --student student --teacher-format stored";
    let record = case.run(["bench step --json --steps 2 --batch-size 1 --seq-len 16", models]).json();
    assert_eq!(record["config"]["teacher_format"], "stored");
    let kernels: Vec<String> = each(&record["kernels"], "kernel");
    assert!(kernels.iter().any(|kernel| kernel.starts_with("dequant{w=Q4_K")), "{kernels:?}");
}

/// `init` writes what `distill` reads, the same bytes for a seed, and replaces only what it wrote.
#[test]
fn init_writes_a_teacher_in_the_mix_of_q4_k_m() {
    let case = case();
    case.write("blocks.json", model_config("blocks").to_string());
    let init = |arguments: &str| case.run(["init --format Q4_K_M --config blocks.json --out", arguments]);
    fs::remove_dir_all(&case.teacher).unwrap();
    init("teacher --seed 3").succeeds();
    let written = case.read("teacher/model.gguf");
    init("teacher --seed 3").fails(2, "--overwrite");
    init("teacher --seed 3 --overwrite").succeeds();
    assert!(case.read("teacher/model.gguf") == written);
    init("other --seed 4").succeeds();
    assert!(case.read("other/model.gguf") != written);
    run(&case, "teacher/model.gguf", "out", "--teacher-format stored").succeeds();
    case.write("teacher/model.gguf", &written[..written.len() - 1]);
    init("teacher --seed 3 --overwrite").fails(2, "changed since it was written");
}

/// Blocks are sent as they are, layer after layer, and dequantized on the device: the bytes of a teacher that is there
/// whole, in either form.
#[test]
fn a_sweep_of_blocks_gives_the_bytes_of_a_resident_teacher() {
    skip_if!(is_on_gpu());
    let case = Case::new(17 * 9);
    let config = ModelConfig { layers: vec![LayerConfig::FULL; 6], ..model("llama", false) };
    teacher(&case, "deep.gguf", &config, &mix(&config), 3);
    let cache = |out: &str, more: &str| {
        case.run(["cache --teacher deep.gguf --data data.bin --seq-len 16 --batch-size 2 --out", out, more])
    };
    let of = |out: &str| ["cache.json", "hidden.bin", "index.bin"].map(|file| case.read(format!("{out}/{file}")));
    cache("whole", "--teacher-format bf16").succeeds();
    // As the file has them, and dequantized on the host.
    for format in ["auto", "stored", "bf16"] {
        let form = format!("--teacher-format {format}");
        let said = cache("none", &format!("{form} --memory 1")).fails(4, "two of its layers");
        let least = number_after("it needs ", &said);
        let [_, said] = cache(format, &format!("{form} --memory {least}")).says();
        assert!(said.contains("it is swept through"), "{said}");
        assert!(of(format) == of("whole"), "{format}");
    }
}

/// A stored teacher passes once over the micro-batches of a rank's step, one in bf16 once over each: the same losses,
/// also of held-out data, and the same weights.
#[test]
fn a_pass_over_several_micro_batches_gives_the_bits_of_each() {
    let (case, config) = (case(), model("llama", false));
    teacher(&case, "teacher.gguf", &config, &Formats::q4_k_m(&config), 5);
    let shape = "--grad-accum 4 --replicas 2 --eval-data data.bin --eval-every 1 --recompute blocks";
    for precision in ["bf16", "int8"] {
        let losses = |out: &str, more: &str| {
            let arguments = ["--checkpoint-every 0 --precision", precision, shape, more];
            run(&case, "teacher.gguf", out, arguments).succeeds();
            let of_step = |line: &StepRecord| {
                let held_out = line.held_out.as_ref().map(|losses| format!("{losses:?}"));
                (line.loss, line.grad_norm, held_out.expect("a held-out loss"))
            };
            (case.metrics(out).iter().map(of_step).collect::<Vec<_>>(), case.bits(out))
        };
        let each = losses(&format!("{precision}-each"), "--teacher-format bf16");
        // Ranks of a GPU each need several.
        for (out, more) in [("all", ""), ("ranks", " --gpus 2")].into_iter().take(if is_on_gpu() { 1 } else { 2 }) {
            let all = losses(&format!("{precision}-{out}"), &format!("--teacher-format stored{more}"));
            assert!(all == each, "{precision} {out}: {:?} {:?}", all.0, each.0);
        }
    }
    let plan = |format: &str| {
        let line = "plan --device sim --seq-len 64 --grad-accum 4 --teacher teacher.gguf --student student";
        case.run([line, "--teacher-format", format]).succeeds()
    };
    assert!(plan("stored").contains("\nthe teacher computes 4 micro-batches at a time\n"));
    assert!(!plan("bf16").contains("at a time"));
}
