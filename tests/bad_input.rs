//! Bad input: a typed error with location and remedy, the right exit code, no panic, nothing half-written. Most of it
//! is in the transcripts of tests/refusals.

use std::os::unix::fs::symlink;

use crate::support::build_old_nvrtc;
use crate::support::prelude::*;

#[test]
fn a_missing_driver_is_a_device_error() {
    skip_if!(has_driver());
    Case::new(17 * 4).distill("out", "--steps 2 --device cuda:0").fails(4, ["no NVIDIA driver", "--device sim"]);
}

#[test]
fn a_damaged_bundle_is_refused_by_name() {
    let case = Case::new(17 * 4);
    let whole = simulated(&[shape(&tiny_config(&[]))]);
    for (name, at) in [("flipped", 700), ("tail", whole.len() - 1)] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        case.write(name, bytes);
        case.distill("out", ["--steps 2 --device sim --bundle", name]).fails(3, format!("{name}: "));
        assert!(!case.has("out/student"));
    }
}

#[test]
fn a_limit_of_file_sizes_is_an_error_of_the_file() {
    let case = Case::new(17 * 4);
    let train = "precast train --model student --data data.bin --device sim --precision fp32 --steps 2 --batch-size 2 \
                 --seq-len 16 --checkpoint-every 0";
    // Whether or not the signal that comes with it was ignored.
    for (out, before) in [("signalled", ""), ("ignored", "trap '' XFSZ; ")] {
        // Files cannot grow past 32 KiB, or 16, as shells count: the student's weights do not fit, all else does.
        let line = format!("{before}ulimit -f 32; exec {train} --out {out}");
        let said = ["cannot write", &format!("{out}/student"), "bytes at most (`ulimit -f`): raise that limit"];
        shell(&line, case.dir.path()).fails(5, said);
        assert_eq!(case.names(out), ["metrics.jsonl", "report.html", "run.json", "run.log"]);
    }
}

/// Programs that write a model, or a file, are not ended by a signal either.
#[test]
fn every_program_that_writes_outlives_the_limit() {
    let case = Case::new(17 * 4);
    for (kib, line, left) in [
        (4, "precast init --config student.json --out made", "made"),
        (1, "precast man man", "man/precast.1"),
        (0, "precast-aot build --arch sm_89 --key cast --out bundle", "bundle"),
    ] {
        let mut limited = shell(&format!("ulimit -f {kib}; exec {line}"), case.dir.path());
        let message = limited.env("PRECAST_HOME", precast_aot::home::directory()).fails(5, "");
        assert!(message.contains("(`ulimit -f`)") || message.contains("File too large"), "{message}");
        assert!(!case.has(left), "{left}");
    }
}

/// The dynamic loader waits for whoever writes to it.
#[test]
fn a_fifo_in_place_of_a_library_is_refused_by_name() {
    let case = Case::new(17 * 4);
    ["libcublasLt.so.13", "libnvrtc.so.13"].iter().for_each(|name| case.fifo(name));
    let mut train = case.train("out", "--device cuda:0 --gemm cublas");
    train.env("PRECAST_CUBLAS", case.dir.path()).fails(3, "libcublasLt.so.13: not there");
    for path in [case.path("libnvrtc.so.13"), case.dir.path().to_owned()] {
        let mut build = case.aot("build --arch sm_89 --key cast --out bundle --nvrtc");
        build.arg(&path).fails(1, format!("{} (given explicitly)", path.display()));
    }
}

#[test]
fn a_compiler_that_is_too_old_is_refused_by_its_version() {
    let case = Case::empty();
    let library = build_old_nvrtc(case.dir.path());
    let said = format!("NVRTC at {} is 12.9: 13.0 or newer is needed", library.display());
    let mut build = case.aot("build --arch sm_89 --key cast --out bundle");
    build.env("PRECAST_NVRTC", case.dir.path()).fails(1, [&*said, "precast-aot toolchain install"]);
}

/// What is opened to be locked is no FIFO, which would wait for its reader.
#[test]
fn nothing_but_a_file_is_locked_by_an_installation() {
    let case = Case::empty();
    let lock = case.path("toolchain.lock");
    let make: [fn(&Case); 3] = [
        |case| case.fifo("toolchain.lock"),
        |case| fs::create_dir(case.path("toolchain.lock")).unwrap(),
        |case| symlink("/dev/zero", case.path("toolchain.lock")).unwrap(),
    ];
    for make in make {
        make(&case);
        let mut install = case.aot("toolchain install");
        let said = format!("cannot lock {}: ", lock.display());
        install.env("PRECAST_HOME", case.dir.path()).fails(1, [&*said, "Remove it: rm -r "]);
        let _ = fs::remove_file(&lock).or_else(|_| fs::remove_dir(&lock));
    }
}
