use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::FromArgMatches;
use precast_plan::{Objective, Precision, Recipe, Recompute, Share};
use proptest::prelude::*;

use super::*;
use crate::inputs::adapter::{AdapterChoice, Lora, Target};

/// The options of a command line.
fn parse(arguments: &[&str]) -> Result<Options, UsageError> {
    parse_over(&FileOptions::default(), arguments)
}

/// The options of a command line over those of a file.
fn parse_over(file: &FileOptions, arguments: &[&str]) -> Result<Options, UsageError> {
    let matches = file.under(super::flags::OPTIONS.clone()).try_get_matches_from(arguments);
    matches.and_then(|matches| Options::from_arg_matches(&matches)).map_err(|error| UsageError(error.to_string()))
}

/// The options of a file.
fn toml(text: &str) -> Result<Options, UsageError> {
    FileOptions::from_toml(text).map_err(UsageError)?.options()
}

const PAIR: [&str; 4] = ["--teacher", "t", "--student", "s"];

fn complete(arguments: &[&str]) -> Result<RunConfig, UsageError> {
    parse(arguments)?.planned()
}

/// Each option of a run, and a value that is not its default.
const VALUES: &str = "\
    teacher=a teacher_cache=k student=b model=c data=d eval_data=i out=e steps=7 epochs=0.25 batch_size=3 seq_len=5 \
    grad_accum=2 \
    lr=0.3 warmup=4 schedule=cosine weight_decay=0.7 clip=0.9 alpha=0.1 temperature=1.5 teacher_format=stored \
    teacher_certificate=i max_teacher_kl=none beta=0.2 recompute=blocks moments=bf16 precision=fp32 gemm=cublas \
    ship=q4_0 ship_head=q8_0 data_field=body \
    chat_date=2024-07-26 enable_thinking=false \
    stop_token=k seed=9 shuffle=true shuffle_window=5 device=sim bundle=f tuned=j \
    trusted_key=RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3 \
    untrained=true allow_identical=true lora_rank=16 lora_alpha=8.5 lora_targets=q_proj,v_proj lora_rslora=true \
    adapter=h student_format=stored checkpoint_every=6 keep=8 eval_every=11 final=both early_stop=15 log_every=12 \
    replicas=2 patience=14 allow_divergence=true tensorboard=true guard_every=13 on_policy=0.5 max_tokens=16 \
    group_size=2 sampling_temperature=0.75 top_k=17 top_p=0.875 prompt_tokens=18 rollout_slots=19 samples_every=20 \
    packing=documents";

fn values() -> impl Iterator<Item = (&'static str, &'static str)> {
    VALUES.split(' ').map(|pair| pair.split_once('=').unwrap())
}

#[test]
fn every_option_reads_back_from_a_file_as_from_the_command_line() {
    // But for where they are from.
    let values_of = |options: Options| {
        let sources = ["File", "CommandLine", "Code"].map(|source| format!("source: {source}"));
        sources.iter().fold(format!("{options:?}"), |text, source| text.replace(source, "source: Default"))
    };
    let defaults = values_of(Options::default());
    let names: Vec<&str> = all().map(|option| option.get_id().as_str()).collect();
    assert_eq!(names.len(), values().count(), "an option has no value here");
    for name in names {
        let (_, value) = values().find(|(of, _)| *of == name).expect("an option has no value here");
        let hyphenated = name.replace('_', "-");
        let of_flag = values_of(parse(&[&format!("--{hyphenated}={value}")]).unwrap());
        let bare = value.parse::<f64>().is_ok() || value == "true";
        for name in [name, &hyphenated] {
            let line = if bare { format!("{name} = {value}") } else { format!("{name} = '{value}'") };
            assert_eq!(of_flag, values_of(toml(&line).unwrap()), "{name}");
        }
        assert_ne!(of_flag, defaults, "{name}");
    }
}

#[test]
fn int8_compares_its_gradients_and_says_nothing_of_the_teacher() {
    let int8 = |arguments: &[&str]| complete(&[&PAIR[..], &["--precision", "int8"], arguments].concat());
    let guard = |arguments: &[&str]| int8(arguments).unwrap().output.guard_every;
    assert_eq!([guard(&[]), guard(&["--guard-every", "0"]), guard(&["--lora-rank", "2"])], [Some(100), Some(0), None]);
    assert_eq!(int8(&[]).unwrap().teacher_format, Some(WeightFormat::Auto));
    // The base of an adapter is in int8, and nothing else.
    let base = |arguments: &[&str]| int8(&[&["--lora-rank", "2"], arguments].concat());
    assert!(base(&[]).is_ok());
    assert!(base(&["--student-format", "bf16"]).unwrap_err().to_string().contains("leave --student-format out"));
    assert_eq!(int8(&["--teacher-format", "int8"]).unwrap().teacher_format, Some(WeightFormat::Int8));
    assert!(complete(&PAIR).unwrap().to_json().get("guard_every").is_none());
}

#[test]
fn what_does_not_go_with_completions_of_the_student_is_refused() {
    let said = |arguments: &[&str]| {
        let message = complete(&[&PAIR[..], &["--batch-size=2", "--grad-accum=2"], arguments].concat()).unwrap_err();
        message.to_string().lines().next().unwrap_or_default().to_owned()
    };
    let together: [&[&str]; 6] = [
        &["--on-policy", "--alpha=0.5"],
        &["--on-policy", "--gemm=cublas"],
        &["--on-policy", "--seq-len=16", "--max-tokens=16"],
        &["--on-policy", "--group-size=3"],
        &["--on-policy", "--sampling-temperature=0"],
        &["--max-tokens=16"],
    ];
    let numbers = [
        ("--top-p", &["0", "-0.5", "1.5", "nan"][..]),
        ("--sampling-temperature", &["-1", "nan", "inf"]),
        ("--on-policy", &["0", "1.5"]),
        ("--rollout-slots", &["0", "513"]),
        ("--group-size", &["0"]),
    ];
    let numbers =
        numbers.iter().flat_map(|(option, values)| values.iter().map(move |value| format!("{option}={value}")));
    let messages = together.into_iter().map(said).chain(numbers.map(|number| said(&[&number])));
    insta::assert_snapshot!(messages.collect::<Vec<_>>().join("\n"));
}

#[test]
fn flags_override_the_file() {
    let text = "teacher = 't'\nstudent = 's'\nlr = 1e-3\nprecision = 'fp32'\ndevice = 'cuda:1'\ndata = ['a', \
        'b']\nseed = 4\n\
                alpha = 0.1\ntemperature = 3";
    let flags = ["--lr=2e-3", "--alpha=0.5", "--data", "c", "--seed", "0"];
    let options = parse_over(&FileOptions::from_toml(text).unwrap(), &flags).unwrap();
    let TeachingOptions { alpha, temperature, .. } = &options.teaching;
    let sources = [alpha.source, temperature.source, options.steps.source];
    assert_eq!(sources, [OptionSource::CommandLine, OptionSource::File, OptionSource::Default]);
    let config = options.planned().unwrap();
    assert_eq!((config.optimizer.lr, config.arithmetic.precision, config.steps()), (2e-3, Precision::Fp32, 1000));
    // Also where a flag says what the default is.
    assert_eq!((config.target.device, config.order.seed, config.data), (DeviceChoice::Cuda(1), 0, vec!["c".into()]));
}

#[test]
fn what_a_file_cannot_say_is_refused_with_its_line() {
    let refused = "learning_rate = 1 | batch-sise = 8 | eval_evry = 8 | gpus = 2 | dry-run = true | \
                   batch-size = 8\nbatch_size = 9 | precision = 'fp16' | recompute = 1 | steps = 1.0 | steps = 0 | \
                   lr = [1.0, 2.0] | lr = 'fast' | alpha = nan | seed = 1\nseed = 2 | data = [['a']] | \
                   device = { cuda = 0 }";
    let refused: Vec<&str> = refused.split(" | ").collect();
    let messages: Vec<String> = refused.iter().map(|text| toml(text).unwrap_err().to_string()).collect();
    insta::assert_snapshot!(messages.join("\n"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.toml");
    std::fs::write(&file, refused[0]).unwrap();
    let message = FileOptions::read(&file).err().unwrap().to_string();
    assert!(message.starts_with(&format!("--config {}: ", file.display())), "{message}");
}

#[test]
fn an_empty_list_in_a_file_says_nothing() {
    let options = toml("eval_data = []\nsteps = 3").unwrap();
    assert!(options.eval_data.is_empty() && options.steps.is_asked());
}

#[test]
fn the_option_that_is_wrong_is_the_one_named() {
    // Two of --lr that f32 does not hold, among them.
    let cases = "--steps=0 --grad-accum=0 --batch-size=0 --seq-len=4194305 --lr=-1 --lr=nan --lr=1e39 --lr=1e-50 \
                 --temperature=0 --alpha=1.5 --beta=-0.1 --beta=nan --weight-decay=-0.5 --clip=inf --keep=0 \
                 --final=first --early-stop=0";
    assert!(complete(&PAIR).is_ok());
    let messages = cases.split(' ').map(|given| {
        let message = complete(&[&PAIR[..], &[given]].concat()).unwrap_err().to_string();
        let option = given.split('=').next().unwrap();
        let message = message.lines().next().unwrap().to_owned();
        assert!(message.contains(&format!("'{option} <")), "{message}");
        message
    });
    insta::assert_snapshot!(messages.collect::<Vec<_>>().join("\n"));
    assert_eq!(
        complete(&["--teacher", "t"]).unwrap_err().to_string(),
        "--student is missing: give it as a flag or in --config run.toml"
    );
}

#[test]
fn a_model_alone_takes_no_option_of_a_teacher() {
    let config = complete(&["--model", "m"]).unwrap();
    assert_eq!((config.teachers.len(), config.objective), (0, Objective::CrossEntropy));
    let json = config.to_json();
    let absent = ["teacher", "alpha", "temperature", "beta", "teacher_format"].map(|name| json.get(name));
    assert_eq!((absent, &json["student"]), ([None; 5], &"m".into()));
    let cases = "--teacher-format=stored --teacher-certificate=c --max-teacher-kl=1 --teacher=t --student=s \
                 --alpha=0.5 --temperature=2 --beta=0 --untrained=true --allow-identical=true";
    for (option, value) in cases.split(' ').map(|given| given.split_once('=').unwrap()) {
        let Err(UsageError(message)) = complete(&["--model", "m", option, value]) else { panic!("{option} is taken") };
        assert!(message.starts_with(&format!("{option} cannot be combined with --model")), "{message}");
    }
    let both = complete(&[&PAIR[..], &["--alpha=0.1"]].concat()).unwrap().to_json();
    assert_eq!([&both["alpha"], &both["temperature"], &both["beta"]], [0.1, 2.0, 0.0]);
}

#[test]
fn recompute_is_a_name_or_a_flag() {
    let flag = |arguments: &[&str]| parse(arguments).map(|options| options.arithmetic.recompute);
    let file = |text: &str| toml(text).map(|options| options.arithmetic.recompute);
    assert_eq!(flag(&[]).unwrap(), Recompute::None);
    let names = [("none", Recompute::None), ("norms", Recompute::Norms), ("blocks", Recompute::Blocks)];
    for (text, choice) in names.into_iter().chain([("false", Recompute::None), ("true", Recompute::Norms)]) {
        assert_eq!(flag(&["--recompute", text]).unwrap(), choice);
        assert_eq!(file(&format!("recompute = '{text}'")).unwrap(), choice);
    }
    assert_eq!(flag(&["--recompute"]).unwrap(), Recompute::Norms);
    assert!(flag(&["--recompute", "all"]).is_err());
    assert_eq!(
        [true, false].map(|is| file(&format!("recompute = {is}")).unwrap()),
        [Recompute::Norms, Recompute::None]
    );
}

/// The build enumerates what `Recipe::every` has: a kind of recipe that flags reach and it lacks would be kernels
/// that nobody built.
#[test]
fn every_recipe_that_flags_can_reach_is_enumerated() {
    let pair = "teacher = 't'\nstudent = 's'\n";
    let taught = ["", "beta = 0.0", "beta = 1.0", "beta = 0.5", "beta = 1e-6"].map(|beta| format!("{pair}{beta}"));
    let objectives = taught.into_iter().chain(["model = 'm'".to_owned()]);
    let mut reached = BTreeSet::new();
    for objective in objectives {
        for precision in ["fp32", "bf16", "int8"] {
            for recompute in ["none", "norms", "blocks"] {
                let text = format!("{objective}\nprecision = '{precision}'\nrecompute = '{recompute}'");
                let recipe = toml(&text).unwrap().planned().unwrap().recipe();
                let kind = Recipe::every(1).position(|one| one.is_like(&recipe));
                reached.insert(kind.unwrap_or_else(|| panic!("not enumerated: {text}")));
            }
        }
    }
    assert_eq!(Recipe::every(1).count(), reached.len(), "a choice is missing above");
}

#[test]
fn an_adapter_is_a_new_one_or_one_that_is_there() {
    let choice = |arguments: &[&str]| complete(&[&PAIR[..], arguments].concat()).map(|config| config.adapter);
    let new = |rank, alpha, targets: &str, rslora| {
        Some(AdapterChoice::New(Lora {
            rank,
            alpha,
            targets: targets.split(',').map(|target| target.parse::<Target>().unwrap()).collect(),
            rslora,
        }))
    };
    assert_eq!(choice(&[]).unwrap(), None);
    assert_eq!(choice(&["--lora-rank", "16"]).unwrap(), new(16, 32.0, "all", false));
    let all = ["--lora-rank=3", "--lora-alpha=1.5", "--lora-targets=v_proj,q_proj", "--lora-rslora"];
    assert_eq!(choice(&all).unwrap(), new(3, 1.5, "q_proj,v_proj", true));
    let file = "teacher = 't'\nstudent = 's'\nlora_rank = 4\nlora_targets = ['v_proj', 'q_proj']";
    assert_eq!(toml(file).unwrap().planned().unwrap().adapter, new(4, 8.0, "q_proj,v_proj", false));
    assert_eq!(choice(&["--adapter", "a"]).unwrap(), Some(AdapterChoice::From { directory: "a".into() }));
    // Of no rank there is none, whatever else is said of it.
    assert_eq!(choice(&["--lora-rank=0", "--lora-alpha=2", "--student-format=bf16"]).unwrap(), None);
    let refused = [
        &["--lora-alpha=2"][..],
        &["--lora-targets=all"],
        &["--lora-rslora"],
        &["--adapter=a", "--lora-rank=8"],
        &["--adapter=a", "--lora-rank=0"],
        &["--student-format=stored"],
        &["--student-format=stored", "--lora-rank=0"],
        &["--lora-rank=257"],
        &["--lora-rank=8", "--lora-targets=lm_head"],
        &["--lora-rank=8", "--lora-alpha=0"],
        &["--lora-rank=8", "--student-format=auto"],
    ];
    let messages = refused.map(|arguments| choice(arguments).unwrap_err().to_string());
    insta::assert_snapshot!(messages.join("\n"));
}

/// A run without an adapter says nothing of one: its record and what it is compared by are as they always were.
#[test]
fn a_configuration_names_the_adapter_that_trains_and_no_other() {
    let json = |arguments: &[&str]| complete(&[&PAIR[..], arguments].concat()).unwrap().to_json();
    let (none, zero) = (json(&[]), json(&["--lora-rank", "0"]));
    assert_eq!(none, zero);
    assert!(!none.to_string().contains("lora") && none.get("student_format").is_none(), "{none}");
    let new = json(&["--lora-rank", "8", "--student-format", "stored"]);
    let named =
        ["lora_rank", "lora_alpha", "lora_targets", "lora_rslora", "student_format"].map(|name| new[name].to_string());
    assert_eq!(named, ["8", "16.0", "\"all\"", "false", "\"stored\""]);
    let from = json(&["--adapter", "a"]);
    assert_eq!([&from["adapter"], &from["student_format"]], ["a", "bf16"]);
}

/// The configuration of a run, of the rank of one of so many GPUs.
fn of_run(options: &Options, ranks: u32) -> Result<RunConfig, UsageError> {
    options.resolve(Purpose::Run, Share { ranks, ..Share::ALONE }, None)
}

/// Checks that a configuration's run.toml gives that configuration, and returns the file.
fn printed(config: &RunConfig) -> String {
    let text = config.to_toml().unwrap();
    let ranks = config.division.share.ranks;
    let read = of_run(&toml(&text).unwrap_or_else(|error| panic!("{error}\n{text}")), ranks);
    let read = read.unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(format!("{config:?}"), format!("{read:?}"), "{text}");
    text
}

/// Flags of these options, with their values.
fn flags(names: &[&str]) -> Vec<String> {
    let value = |name: &str| values().find(|(of, _)| *of == name).expect("an option").1;
    names.iter().map(|name| format!("--{}={}", name.replace('_', "-"), value(name))).collect()
}

#[test]
fn the_printed_run_toml_has_every_option() {
    let names = || values().map(|(name, _)| name);
    let pair = ["teacher", "student", "data", "out"];
    let new_adapter = ["lora_rank", "lora_alpha", "lora_targets", "lora_rslora", "student_format"];
    let on_policy = "on_policy max_tokens group_size sampling_temperature top_k top_p prompt_tokens rollout_slots \
                     samples_every";
    let on_policy: Vec<&str> = on_policy.split(' ').collect();
    // Those that stand in the way of others, which follow.
    let of_int8 = ["max_teacher_kl", "teacher_certificate", "teacher_format", "precision", "guard_every"];
    let of_others =
        [&["model", "adapter", "replicas", "steps", "teacher_cache"][..], &pair, &new_adapter, &of_int8, &on_policy]
            .concat();
    let free: Vec<&str> = names().filter(|name| !of_others.contains(name)).collect();
    let int8 = ["--precision=int8", "--teacher-format=int8", "--max-teacher-kl=none"].map(str::to_owned).to_vec();
    let lines = [
        [flags(&pair), flags(&free)].concat(),
        [flags(&pair), int8, flags(&["guard_every", "teacher_certificate"])].concat(),
        [flags(&["model", "data", "out", "replicas", "steps"]), flags(&new_adapter)].concat(),
        [flags(&pair), flags(&["adapter"]), vec!["--precision=int8".to_owned()]].concat(),
        [flags(&pair), flags(&on_policy)].concat(),
        [flags(&pair), flags(&["teacher_cache"])].concat(),
    ];
    let mut seen = BTreeSet::new();
    for line in lines {
        let arguments: Vec<&str> = line.iter().map(String::as_str).collect();
        let config = of_run(&parse(&arguments).unwrap(), 1).unwrap();
        let text = printed(&config);
        seen.extend(text.lines().map(|line| line.split_once(" = ").unwrap().0.to_owned()));
        // An option that has a default is in it, too, and one of a teacher nowhere else.
        assert!(text.contains("\nkeep = "), "{text}");
        // Where it is one for each GPU, it is so on more of them, too.
        assert_eq!(text.contains("\nreplicas = "), arguments.contains(&"--replicas=2"), "{text}");
        assert_eq!(text.contains("\nalpha = "), !config.teachers.is_empty(), "{text}");
    }
    assert_eq!(
        seen.iter().map(String::as_str).collect::<Vec<_>>(),
        names().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    );
}

#[test]
fn a_path_that_toml_cannot_hold_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let odd = PathBuf::from(std::ffi::OsString::from_vec(b"x\xff".to_vec()));
    let config = complete(&PAIR).unwrap();
    for config in [RunConfig { out: odd.clone(), ..config.clone() }, RunConfig { data: vec![odd], ..config }] {
        assert!(config.to_toml().unwrap_err().to_string().starts_with("run.toml cannot name x"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a command line asks for, its run.toml asks for too.
    #[test]
    fn a_printed_run_toml_reads_back(
        ranks in prop_oneof![Just(1u32), Just(2), Just(4)],
        alone in any::<bool>(),
        path in "[^\\x00]{1,6}",
        (seed, lr) in (any::<u64>(), 1e-30f64..1e30),
        (alpha, temperature, clip) in (0f32..=1.0, 1e-3f32..1e3, 0f32..1e30),
        others in proptest::sample::subsequence(values().collect::<Vec<_>>(), 0..=values().count()),
    ) {
        let set = ["teacher", "student", "model", "data", "out", "seed", "lr", "alpha", "temperature", "clip"];
        let others = others.iter().map(|(name, _)| *name).filter(|name| !set.contains(name)).collect::<Vec<_>>();
        let base = if alone { vec!["model"] } else { vec!["teacher", "student"] };
        let mut line = [flags(&base), flags(&["data"])].concat();
        line.extend([format!("--data={path}"), format!("--out={path}"), format!("--seed={seed}"),
            format!("--lr={lr:e}")]);
        line.push(format!("--clip={clip:e}"));
        if !alone {
            line.extend([format!("--alpha={alpha}"), format!("--temperature={temperature}")]);
        }
        // Options that do not go together are another test's.
        let mut options = None;
        for name in others {
            let more = [&line[..], &flags(&[name])].concat();
            let arguments: Vec<&str> = more.iter().map(String::as_str).collect();
            if let Ok(config) = parse(&arguments).and_then(|options| of_run(&options, ranks)) {
                (line, options) = (more, Some(config));
            }
        }
        if let Some(config) = options {
            printed(&config);
        }
    }
}
