//! The floors of the trainer: its folders, each of which uses those below it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::support::root;

/// From the ground up. `error.rs` stands beside them, as long as it knows the errors of all.
const FLOORS: [&str; 8] = ["base", "inputs", "options", "ranks", "device", "run", "programs", "cli"];
const BESIDE: [&str; 3] = ["error.rs", "lib.rs", "main.rs"];

/// Every source of a folder that ships.
fn sources(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_name().unwrap().to_str().unwrap();
        if entry.is_dir() && !["fixtures", "snapshots", "tests"].contains(&name) {
            found.extend(sources(&entry));
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = fs::read_to_string(&entry).unwrap();
            let shipped = text.split("#[cfg(test)]").next().unwrap().lines();
            let code: Vec<&str> = shipped.filter(|line| !line.trim_start().starts_with("//")).collect();
            found.push((entry.display().to_string(), code.join("\n")));
        }
    }
    found
}

/// Floors that a source names, by `crate::floor`.
fn used(code: &str) -> BTreeSet<&str> {
    let named = code.split("crate::").skip(1);
    let named = named.map(|rest| rest.split(|c: char| !c.is_ascii_lowercase() && c != '_').next().unwrap());
    named.filter(|name| FLOORS.contains(name)).collect()
}

#[test]
fn a_floor_uses_those_below_it() {
    let trainer = root().join("trainer");
    let loose = fs::read_dir(&trainer).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let loose: BTreeSet<String> = loose.collect();
    let expected: BTreeSet<String> = FLOORS.iter().chain(&BESIDE).map(|name| (*name).to_owned()).collect();
    assert_eq!(loose, expected, "a module of the trainer stands on a floor");

    let (mut up, mut down) = (Vec::new(), 0);
    for (height, floor) in FLOORS.iter().enumerate() {
        for (file, code) in sources(&trainer.join(floor)) {
            let above = used(&code).into_iter().filter(|other| FLOORS[height + 1..].contains(other));
            up.extend(above.map(|other| format!("{file} uses {other}")));
            down += used(&code).into_iter().filter(|other| FLOORS[..height].contains(other)).count();
        }
    }
    assert_eq!(up, [""; 0], "arrows that run up");
    assert!(down > 200, "{down} arrows: this test looks for the wrong thing");
}
