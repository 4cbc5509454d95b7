//! What a program says of the driver and the GPU it finds, under a stand-in for `libcuda` that is another machine each
//! time. Nothing falls back to another device by itself.

use std::sync::LazyLock;

use crate::support::prelude::*;
use crate::support::{Texts, build_libcuda, library_path};

/// A machine whose driver is the stand-in, as the environment changes it.
pub struct Machine {
    dir: tempfile::TempDir,
    variables: Vec<(&'static str, &'static str)>,
}

/// With a driver; not where the tests themselves run on a GPU.
pub fn machine(variables: &[(&'static str, &'static str)]) -> Machine {
    let dir = tempfile::tempdir().unwrap();
    build_libcuda(dir.path());
    // Its memory is the host's, whatever this machine has.
    fs::create_dir(dir.path().join("proc")).unwrap();
    fs::write(dir.path().join("proc/meminfo"), "MemTotal: 8388608 kB\nMemAvailable: 8388608 kB\n").unwrap();
    Machine { dir, variables: variables.to_vec() }
}

impl Machine {
    /// Its directory, where a test may put files.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A command on it.
    pub fn run(&self, command: &mut Command) -> Command {
        let path = format!("{}:{}", self.dir.path().display(), library_path());
        let mut run = Command::new(command.get_program());
        command.get_current_dir().into_iter().for_each(|directory| _ = run.current_dir(directory));
        run.args(command.get_args()).env("PRECAST_PROC", self.dir.path().join("proc"));
        run.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        run.env("LD_LIBRARY_PATH", path).env_remove("CUDA_VISIBLE_DEVICES");
        run.envs(self.variables.iter().copied());
        run
    }
}

/// Code of `tests/models/tiny.json` for sm_121: built once, and copied.
pub fn sm_121(dir: &Path) -> PathBuf {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
        let bundle = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tiny.sm_121.bundle");
        let mut command = precast_aot();
        command.args(["build", "--arch", "sm_121", "--model", "tests/models/tiny.json", "--out"]);
        command.arg(&bundle).current_dir(root()).succeeds();
        bundle
    });
    let bundle = dir.join("sm_121.bundle");
    fs::copy(&*BUILT, &bundle).unwrap();
    bundle
}

const PLAN: &str = "--teacher tests/models/tiny.json --student tests/models/tiny.json --batch-size 2 --seq-len 16";

/// The models and data of the case whose `golden` it is, by paths that hold anywhere.
fn files(case: &Case) -> [String; 3] {
    [&case.teacher, &case.student, &case.data].map(|path| path.display().to_string())
}

/// A command line on a machine, in the checkout.
fn on(machine: &Machine, line: impl Texts) -> Command {
    machine.run(precast().with(line))
}

#[test]
fn a_driver_that_cannot_be_used_ends_the_start_by_name() {
    skip_if!(has_driver());
    let machines = [
        &[("PRECAST_FAKE_DRIVER", "12080")][..],
        &[("PRECAST_FAKE_GPUS", "0")],
        &[("PRECAST_FAKE_GPUS", "0"), ("CUDA_VISIBLE_DEVICES", "7")],
        &[("PRECAST_FAKE_LAZY", "1")],
        &[("PRECAST_FAKE_CAPABILITY", "8.7")],
        &[("CUDA_FORCE_PTX_JIT", "1")],
        &[("CUDA_FORCE_JIT", "1")],
        &[("CUDA_INJECTION64_PATH", "/opt/tool.so")],
    ];
    let messages = machines.map(|variables| on(&machine(variables), "selftest --device cuda:0").fails(4, ""));
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn a_user_who_asks_for_lazy_loading_does_not_get_it() {
    skip_if!(has_driver());
    let lazy = machine(&[("CUDA_MODULE_LOADING", "LAZY"), ("CUDA_MODULE_DATA_LOADING", "LAZY")]);
    let (_, printed, _) = on(&lazy, "doctor --device cuda:0").ends();
    assert!(printed.contains("ok   device     NVIDIA GB10"), "{printed}");
}

#[test]
fn every_command_names_a_gpu_that_no_build_serves() {
    skip_if!(has_driver());
    let orin = machine(&[("PRECAST_FAKE_CAPABILITY", "8.7")]);
    let case = Case::golden("made-qwen2");
    let [teacher, _, data] = files(&case);
    let out = orin.path().join("out");
    let models = format!("--teacher {teacher} --student {teacher} --allow-identical --data {data}");
    for line in [
        &format!("distill {models} --out {}", out.display()),
        &format!("distill {models} --out {} --dry-run", out.display()),
        &format!("eval --model {teacher} --data {data}"),
        &format!("bench step {PLAN}"),
        &format!("plan {PLAN}"),
        "selftest",
    ] {
        on(&orin, line).fails(4, ["no build of Precast has kernels for NVIDIA GB10", "compute capability 8.7"]);
    }
}

#[test]
fn kernels_of_another_gpu_name_the_build_that_serves_this_one() {
    skip_if!(has_driver());
    let hopper = machine(&[("PRECAST_FAKE_CAPABILITY", "9.0")]);
    let bundle = sm_121(hopper.path()).display().to_string();
    let case = Case::golden("made-qwen2");
    let [_, model, data] = files(&case);
    on(&hopper, format!("eval --model {model} --data {data} --bundle {bundle}"))
        .fails(3, ["it holds sm_121", "--features sm_90"]);
    let printed = on(&hopper, format!("plan {PLAN} --bundle {bundle}")).succeeds();
    let last = printed.lines().next_back().unwrap();
    assert!(last.contains(" are not in ") && last.contains("--arch sm_90 "), "{printed}");
}

#[test]
fn auto_does_not_fall_back_where_there_are_kernels_for_a_gpu() {
    skip_if!(has_driver());
    let without_gpu = machine(&[("PRECAST_FAKE_GPUS", "0")]);
    let bundle = sm_121(without_gpu.path()).display().to_string();
    let case = Case::golden("made-qwen2");
    let ([_, model, data], out) = (files(&case), case.out());
    let models = format!("--teacher {model} --student {model} --allow-identical --data {data} --out {}", out.display());
    let distill = format!("distill {models} --steps 1 --batch-size 1 --seq-len 8");
    let eval = format!("eval --untrained --model {model} --data {data} --seq-len 8");
    for line in [&*distill, &eval, &format!("bench step {PLAN}"), "selftest"] {
        let line = format!("{line} --bundle {bundle}");
        on(&without_gpu, &line).fails(4, ["the NVIDIA driver sees no GPU", "--device sim", "kernels for sm_121"]);
        precast().with(&line).fails(4, ["no NVIDIA driver", "--device sim", "kernels for sm_121"]);
    }
    assert!(!out.join("student").exists());
    // Without kernels for any GPU there is nothing to miss, and it is said.
    let (code, _, said) = precast().with(eval).ends();
    if cfg!(feature = "_kernels") {
        assert_eq!(code, Some(4), "{said}");
    } else {
        assert!(code == Some(0) && said.contains("note: no NVIDIA driver"), "{said}");
        assert!(said.contains("runs on the simulated GPU"), "{said}");
    }
}

#[test]
fn a_plan_without_a_gpu_asks_for_the_architecture() {
    skip_if!(has_driver());
    let without_gpu = machine(&[("PRECAST_FAKE_GPUS", "0")]);
    let case = Case::golden("made-qwen2");
    let [teacher, student, data] = files(&case);
    let dry_run =
        format!("distill --dry-run --teacher {teacher} --student {student} --data {data} --out none --seq-len 64");
    for line in [&format!("plan {PLAN}"), &dry_run] {
        let named =
            "Say what to plan for: `precast plan --card NAME`, as 4090, or --arch sm_80, --arch sm_86, --arch sm_89,";
        on(&without_gpu, line).fails(2, named);
        precast().with(line).fails(2, named);
        for answer in ["--arch sm_121", "--device sim"] {
            precast().with([line, answer]).prints("takes ");
        }
    }
    on(&without_gpu, format!("plan {PLAN} --memory 24GiB")).fails(
        2,
        "--memory says how much, and not of which GPU: give --card NAME in its place, as 4090, or beside \
            it --arch sm_80,",
    );
}

#[test]
fn doctor_tells_no_driver_from_no_gpu_from_an_old_one() {
    skip_if!(has_driver());
    let mut seen = Vec::new();
    let mut look = |command: &mut Command| {
        let (code, printed, _) = command.ends();
        // What it says of the kernels depends on those embedded here.
        let lines = printed.split_inclusive('\n').take_while(|line| !line.contains("bundle "));
        seen.push(format!("exit code {}\n{}", code.unwrap(), lines.collect::<String>()));
    };
    look(precast().arg("doctor"));
    for variables in [
        &[("PRECAST_FAKE_GPUS", "0")][..],
        &[("PRECAST_FAKE_DRIVER", "12080")],
        &[("PRECAST_FAKE_CAPABILITY", "8.7")],
        &[("CUDA_FORCE_PTX_JIT", "1")],
    ] {
        look(&mut on(&machine(variables), "doctor"));
    }
    insta::assert_snapshot!(seen.join("\n"));
}

#[test]
fn doctor_ends_with_3_for_kernels_and_with_0_where_all_is_well() {
    skip_if!(has_driver());
    let gb10 = machine(&[]);
    let bundle = sm_121(gb10.dir.path());
    let doctor = |bundle: &Path| {
        let (code, findings, message) = on(&gb10, format!("doctor --json --bundle {}", bundle.display())).ends();
        (code.unwrap(), serde_json::from_str::<Vec<Value>>(&findings).unwrap(), message)
    };
    let (code, findings, _) = doctor(&bundle);
    assert_eq!(code, 0);
    assert!(findings.iter().any(|finding| finding["what"] == "device" && finding["device"] == "cuda:0"));
    let mut bytes = fs::read(&bundle).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let damaged = gb10.dir.path().join("damaged.bundle");
    fs::write(&damaged, bytes).unwrap();
    let (code, _, message) = doctor(&damaged);
    assert_eq!(code, 3);
    assert!(message.contains("error: 1 of 4 checks are BAD: bundle"), "{message}");
}

/// Runs `doctor` on a device of this capability. Returns its lines on architecture and bundle, or its error.
fn row_of(machine: &Machine, capability: &str, arguments: impl Texts) -> String {
    let mut doctor = on(machine, [vec!["doctor"], arguments.each()].concat());
    let (code, stdout, stderr) = doctor.env("PRECAST_FAKE_CAPABILITY", capability).ends();
    let printed = stdout + &stderr;
    let of_row = |line: &&str| ["arch", "bundle", "device"].iter().any(|what| line[5..].starts_with(what));
    let lines = printed.lines().filter(|line| line.len() > 5).filter(of_row).filter(|line| !line.contains("GiB"));
    let lines: Vec<&str> = lines.map(|line| line.split(", no trusted key").next().unwrap()).collect();
    format!("{capability}, exit code {}\n  {}\n", code.unwrap(), lines.join("\n  "))
}

#[test]
fn a_device_stands_in_for_rows_of_portable_kernels() {
    skip_if!(has_driver());
    let machine = machine(&[]);
    let bundle = machine.path().join("bundle").display().to_string();
    precast_aot().with(["build --key fill --arch sm_90,sm_90_portable,sm_121 --out", &bundle]).succeeds();
    let doctor = |capability, device| row_of(&machine, capability, ["--device", device, "--bundle", &bundle]);
    let seen = [
        doctor("9.0", "as:sm_89"),
        doctor("9.0", "as:sm_120"),
        doctor("9.0", "as:sm_90"),
        doctor("9.0", "portable:0"),
        doctor("12.1", "as:sm_89"),
        doctor("12.1", "as:sm_121"),
        doctor("12.1", "as:sm_90"),
    ];
    let embedded = on(&machine, "selftest --device as:sm_75").fails(2, "");
    insta::assert_snapshot!(seen.concat() + &embedded);
}
