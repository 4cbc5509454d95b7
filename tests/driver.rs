//! What a program says of the driver and the GPU it finds, under a stand-in for `libcuda` that is another machine each
//! time. Nothing falls back to another device by itself.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use precast_runtime::DriverError;
use precast_runtime::Launches;
use precast_runtime::cuda::Cuda;

use crate::support::{self, fail, fixture, precast, precast_aot, root, succeed};

/// A machine whose driver is the stand-in, as the environment changes it.
pub struct Machine {
    dir: tempfile::TempDir,
    variables: Vec<(&'static str, &'static str)>,
}

/// With a driver; not where the tests themselves run on a GPU.
pub fn machine(variables: &[(&'static str, &'static str)]) -> Machine {
    let dir = tempfile::tempdir().unwrap();
    support::build_libcuda(dir.path());
    // Its memory is the host's, whatever this machine has.
    std::fs::create_dir(dir.path().join("proc")).unwrap();
    std::fs::write(dir.path().join("proc/meminfo"), "MemTotal: 8388608 kB\nMemAvailable: 8388608 kB\n").unwrap();
    Machine { dir, variables: variables.to_vec() }
}

impl Machine {
    /// Its directory, where a test may put files.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A command on it.
    pub fn run(&self, command: &mut Command) -> Command {
        let path = format!("{}:{}", self.dir.path().display(), support::library_path());
        let mut run = Command::new(command.get_program());
        command.get_current_dir().into_iter().for_each(|directory| _ = run.current_dir(directory));
        run.args(command.get_args()).env("PRECAST_PROC", self.dir.path().join("proc"));
        run.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        run.env("LD_LIBRARY_PATH", path).env_remove("CUDA_VISIBLE_DEVICES");
        run.envs(self.variables.iter().copied());
        run
    }

    /// Runs `precast`, which must fail with an exit code, and returns its error message.
    pub fn fails(&self, exit_code: i32, arguments: &[&str]) -> String {
        fail(&mut self.run(precast().args(arguments)), exit_code)
    }
}

/// Code for sm_121 and no other GPU, of `tests/models/tiny.json`: built once, and copied.
pub fn sm_121(dir: &Path) -> PathBuf {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
        let bundle = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tiny.sm_121.bundle");
        let mut command = precast_aot();
        command.args(["build", "--arch", "sm_121", "--model", "tests/models/tiny.json", "--out"]);
        succeed(command.arg(&bundle).current_dir(root()));
        bundle
    });
    let bundle = dir.join("sm_121.bundle");
    std::fs::copy(&*BUILT, &bundle).unwrap();
    bundle
}

const PLAN: [&str; 8] = [
    "--teacher",
    "tests/models/tiny.json",
    "--student",
    "tests/models/tiny.json",
    "--batch-size",
    "2",
    "--seq-len",
    "16",
];

#[test]
fn a_driver_that_cannot_be_used_ends_the_start_by_name() {
    if support::has_driver() {
        return;
    }
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
    let messages = machines.map(|variables| machine(variables).fails(4, &["selftest", "--device", "cuda:0"]));
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn an_injected_library_that_is_wanted_is_allowed() {
    if support::has_driver() {
        return;
    }
    let wanted = [("CUDA_INJECTION64_PATH", "/opt/tool.so"), ("PRECAST_ALLOW_INJECTION", "1")];
    let output = machine(&wanted).run(precast().args(["doctor", "--device", "cuda:0"])).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("ok   device     NVIDIA GB10"), "{printed}");
}

#[test]
fn a_user_who_asks_for_lazy_loading_does_not_get_it() {
    if support::has_driver() {
        return;
    }
    let lazy = machine(&[("CUDA_MODULE_LOADING", "LAZY"), ("CUDA_MODULE_DATA_LOADING", "LAZY")]);
    let output = lazy.run(precast().args(["doctor", "--device", "cuda:0"])).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("ok   device     NVIDIA GB10"), "{printed}");
}

#[test]
fn every_command_names_a_gpu_that_no_build_serves() {
    if support::has_driver() {
        return;
    }
    let orin = machine(&[("PRECAST_FAKE_CAPABILITY", "8.7")]);
    let golden = fixture("golden/qwen2-tied");
    let [teacher, data, out] = [golden.join("teacher"), golden.join("tokens.bin"), orin.dir.path().join("out")];
    let [teacher, data, out] = [&teacher, &data, &out].map(|path| path.to_str().unwrap());
    let distill =
        ["distill", "--teacher", teacher, "--student", teacher, "--allow-identical", "--data", data, "--out", out];
    for arguments in [
        &distill[..],
        &[&distill[..], &["--dry-run"]].concat(),
        &["eval", "--model", teacher, "--data", data],
        &[&["bench"][..], &PLAN].concat(),
        &[&["plan"][..], &PLAN].concat(),
        &["selftest"],
    ] {
        let message = orin.fails(4, arguments);
        assert!(message.contains("no build of Precast has kernels for NVIDIA GB10"), "{arguments:?}: {message}");
        assert!(message.contains("compute capability 8.7"), "{arguments:?}: {message}");
    }
}

#[test]
fn kernels_of_another_gpu_name_the_build_that_serves_this_one() {
    if support::has_driver() {
        return;
    }
    let hopper = machine(&[("PRECAST_FAKE_CAPABILITY", "9.0")]);
    let bundle = sm_121(hopper.dir.path());
    let bundle = bundle.to_str().unwrap();
    let golden = fixture("golden/qwen2-tied");
    let (model, data) = (golden.join("student"), golden.join("tokens.bin"));
    let eval = ["eval", "--model", model.to_str().unwrap(), "--data", data.to_str().unwrap(), "--bundle", bundle];
    let message = hopper.fails(3, &eval);
    assert!(message.contains("it holds sm_121") && message.contains("--features sm_90"), "{message}");
    let plan = hopper.run(precast().arg("plan").args(PLAN).args(["--bundle", bundle])).output().unwrap();
    let printed = String::from_utf8(plan.stdout).unwrap();
    let last = printed.lines().next_back().unwrap();
    assert!(plan.status.success() && last.contains(" are not in ") && last.contains("--arch sm_90 "), "{printed}");
}

#[test]
fn auto_does_not_fall_back_where_there_are_kernels_for_a_gpu() {
    if support::has_driver() {
        return;
    }
    let without_gpu = machine(&[("PRECAST_FAKE_GPUS", "0")]);
    let bundle = sm_121(without_gpu.dir.path());
    let bundle = bundle.to_str().unwrap();
    let golden = fixture("golden/qwen2-tied");
    let (model, data, out) = (golden.join("student"), golden.join("tokens.bin"), without_gpu.dir.path().join("out"));
    let [model, data] = [&model, &data].map(|path| path.to_str().unwrap());
    let distill = [
        "distill",
        "--teacher",
        model,
        "--student",
        model,
        "--data",
        data,
        "--out",
        out.to_str().unwrap(),
        "--allow-identical",
    ];
    let small = ["--steps", "1", "--batch-size", "1", "--seq-len", "8"];
    let eval = ["eval", "--untrained", "--model", model, "--data", data, "--seq-len", "8"];
    let bench = [&["bench"][..], &PLAN].concat();
    for arguments in [&[&distill[..], &small].concat()[..], &eval, &bench, &["selftest"]] {
        let arguments = [arguments, &["--bundle", bundle]].concat();
        for (message, found) in [
            (without_gpu.fails(4, &arguments), "the NVIDIA driver sees no GPU"),
            (fail(precast().args(&arguments), 4), "no NVIDIA driver"),
        ] {
            assert!(message.contains(found) && message.contains("--device sim"), "{arguments:?}: {message}");
            assert!(message.contains("kernels for sm_121"), "{arguments:?}: {message}");
        }
    }
    assert!(!out.join("student").exists());
    // Without kernels for any GPU there is nothing to miss, and it is said.
    let mut plain = precast();
    let output = plain.args(eval).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if cfg!(feature = "_kernels") {
        assert_eq!(output.status.code(), Some(4), "{said}");
    } else {
        assert!(output.status.success() && said.contains("note: no NVIDIA driver"), "{said}");
        assert!(said.contains("runs on the simulated GPU"), "{said}");
    }
}

#[test]
fn a_plan_without_a_gpu_asks_for_the_architecture() {
    if support::has_driver() {
        return;
    }
    let without_gpu = machine(&[("PRECAST_FAKE_GPUS", "0")]);
    let golden = fixture("golden/qwen2-tied");
    let [teacher, student, data] = ["teacher", "student", "tokens.bin"].map(|name| golden.join(name));
    let [teacher, student, data] = [&teacher, &student, &data].map(|path| path.to_str().unwrap());
    let dry_run = ["distill", "--dry-run", "--teacher", teacher, "--student", student, "--data", data, "--out", "none"];
    for arguments in [&[&["plan"][..], &PLAN].concat(), &dry_run[..]] {
        for message in [without_gpu.fails(2, arguments), fail(precast().args(arguments), 2)] {
            let named = "Say what to plan for: `precast plan --card NAME`, as 4090, or --arch sm_80, --arch sm_86, --arch sm_89,";
            assert!(message.contains(named), "{message}");
        }
        for answer in [["--arch", "sm_121"], ["--device", "sim"]] {
            assert!(succeed(precast().args(arguments).args(answer)).contains("takes "));
        }
    }
    let message = without_gpu.fails(2, &[&["plan"][..], &PLAN, &["--memory", "24GiB"]].concat());
    assert!(
        message.contains("--memory names no GPU: give --card NAME in its place, or beside it --arch sm_80,"),
        "{message}"
    );
}

#[test]
fn doctor_tells_no_driver_from_no_gpu_from_an_old_one() {
    if support::has_driver() {
        return;
    }
    let mut seen = Vec::new();
    let mut look = |command: &mut Command| {
        let output = command.output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        // What it says of the kernels depends on those embedded here.
        let lines = printed.split_inclusive('\n').take_while(|line| !line.contains("bundle "));
        seen.push(format!("exit code {}\n{}", output.status.code().unwrap(), lines.collect::<String>()));
    };
    look(precast().arg("doctor"));
    for variables in [
        &[("PRECAST_FAKE_GPUS", "0")][..],
        &[("PRECAST_FAKE_DRIVER", "12080")],
        &[("PRECAST_FAKE_CAPABILITY", "8.7")],
        &[("CUDA_FORCE_PTX_JIT", "1")],
    ] {
        look(&mut machine(variables).run(precast().arg("doctor")));
    }
    insta::assert_snapshot!(seen.join("\n"));
}

#[test]
fn doctor_ends_with_3_for_kernels_and_with_0_where_all_is_well() {
    if support::has_driver() {
        return;
    }
    let gb10 = machine(&[]);
    let bundle = sm_121(gb10.dir.path());
    let doctor = |bundle: &Path| {
        let output = gb10.run(precast().args(["doctor", "--json", "--bundle"]).arg(bundle)).output().unwrap();
        let findings: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code().unwrap(), findings, String::from_utf8(output.stderr).unwrap())
    };
    let (code, findings, _) = doctor(&bundle);
    assert_eq!(code, 0);
    assert!(findings.iter().any(|finding| finding["what"] == "device" && finding["device"] == "cuda:0"));
    let mut bytes = std::fs::read(&bundle).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let damaged = gb10.dir.path().join("damaged.bundle");
    std::fs::write(&damaged, bytes).unwrap();
    let (code, _, message) = doctor(&damaged);
    assert_eq!(code, 3);
    assert!(message.contains("error: 1 of 4 checks are BAD: bundle"), "{message}");
}

/// Runs `doctor` on a device of this capability. Returns its lines on architecture and bundle, or its error.
fn row_of(machine: &Machine, capability: &str, arguments: &[&str]) -> String {
    let mut doctor = machine.run(precast().arg("doctor").args(arguments));
    let output = doctor.env("PRECAST_FAKE_CAPABILITY", capability).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    let of_row = |line: &&str| ["arch", "bundle", "device"].iter().any(|what| line[5..].starts_with(what));
    let lines = printed.lines().filter(|line| line.len() > 5).filter(of_row).filter(|line| !line.contains("GiB"));
    let lines: Vec<&str> = lines.map(|line| line.split(", no trusted key").next().unwrap()).collect();
    format!("{capability}, exit code {}\n  {}\n", output.status.code().unwrap(), lines.join("\n  "))
}

#[test]
fn a_device_runs_the_best_row_that_a_bundle_holds() {
    if support::has_driver() {
        return;
    }
    let machine = machine(&[]);
    let seen = ["sm_80", "sm_89,sm_121", "sm_80,sm_86,sm_89,sm_90,sm_100,sm_120,sm_121"].map(|archs| {
        let bundle = machine.path().join(archs);
        succeed(precast_aot().args(["build", "--key", "fill", "--arch", archs, "--out"]).arg(&bundle));
        let capabilities = ["7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1"];
        let with = ["--bundle", bundle.to_str().unwrap()];
        format!("== {archs}\n{}", capabilities.map(|capability| row_of(&machine, capability, &with)).concat())
    });
    insta::assert_snapshot!(seen.join("\n"));
}

#[test]
fn a_device_stands_in_for_rows_of_portable_kernels() {
    if support::has_driver() {
        return;
    }
    let machine = machine(&[]);
    let bundle = machine.path().join("bundle");
    let build = ["build", "--key", "fill", "--arch", "sm_90,sm_90_portable,sm_121", "--out"];
    succeed(precast_aot().args(build).arg(&bundle));
    let doctor =
        |capability, device| row_of(&machine, capability, &["--device", device, "--bundle", bundle.to_str().unwrap()]);
    let seen = [
        doctor("9.0", "as:sm_89"),
        doctor("9.0", "as:sm_120"),
        doctor("9.0", "as:sm_90"),
        doctor("9.0", "portable:0"),
        doctor("12.1", "as:sm_89"),
        doctor("12.1", "as:sm_121"),
        doctor("12.1", "as:sm_90"),
    ];
    let embedded = fail(&mut machine.run(precast().args(["selftest", "--device", "as:sm_75"])), 2);
    insta::assert_snapshot!(seen.concat() + &embedded);
}

#[test]
fn a_second_device_waits_for_the_first() {
    if support::has_driver() {
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["driver::second_child", "--exact", "--ignored", "--nocapture"]);
    let printed = succeed(&mut machine(&[]).run(&mut child));
    assert!(printed.contains("one at a time"), "{printed}");
}

#[test]
#[ignore = "the process that opens twice: a_second_device_waits_for_the_first starts it"]
fn second_child() {
    let first = Cuda::open(0, Launches::Own, &[]).unwrap();
    assert_eq!(Cuda::open(0, Launches::Own, &[]).err(), Some(DriverError::InUse));
    assert_eq!(Cuda::open(0, Launches::Portable, &[]).err(), Some(DriverError::InUse));
    drop(first);
    // An attempt that fails leaves nothing taken.
    assert_eq!(Cuda::open(9, Launches::Own, &[]).err(), Some(DriverError::NoDevice { ordinal: 9, count: 1 }));
    drop(Cuda::open(0, Launches::Own, &[]).unwrap());
    println!("one at a time");
}
