//! Models by their name at Hugging Face: snapshots of its cache.

use std::os::unix::fs::symlink;

use crate::support::prelude::*;

#[test]
fn a_model_is_found_by_its_name_in_the_cache() {
    let case = Case::new(17 * 4);
    let snapshot = case.path("hub/models--org--tiny/snapshots/0123abcd");
    fs::create_dir_all(&snapshot).unwrap();
    for file in names_in(&case.path("student")) {
        symlink(Path::new("../../../../student").join(&file), snapshot.join(file)).unwrap();
    }
    let by_name = |arguments: &str| {
        let mut command = case.run(["train --steps 2 --batch-size 2 --seq-len 16 --data data.bin", arguments]);
        command.env("HF_HUB_CACHE", case.path("hub"));
        command
    };
    by_name("--model org/tiny --out named").succeeds();
    let student = json!({"repository": "org/tiny", "revision": "0123abcd"});
    assert_eq!(case.record("named")["snapshots"], json!({ "student": student }));
    by_name("--model org/tiny@main --out none").fails(2, "hf download org/tiny --revision main");
    by_name("--model org/other --out none").fails(5, "hf download org/other");
    // A path that exists wins.
    fs::create_dir(case.path("org")).unwrap();
    fs::rename(case.path("student"), case.path("org/tiny")).unwrap();
    by_name("--model org/tiny --out path").succeeds();
    assert_eq!(case.record("path")["snapshots"], Value::Null);
    let [named, path] =
        ["named", "path"].map(|out| fs::read(case.path(out).join("student/model.safetensors")).unwrap());
    assert_eq!(named, path);
}
