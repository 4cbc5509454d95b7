//! Layouts as an attacker would write them, and paths that precast-aot must not write to.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use precast_aot::publish::{Layout, LayoutError, PublishError, fetch, media, publish, title};
use precast_fatbins::{Digest, SignatureError};
use precast_kernels::KERNELS;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::program::{aot, ends};
use crate::support::tiny::{key, published, tiny};

const HUGE: u64 = 1 << 40;

fn blob(layout: &Path, digest: &str) -> PathBuf {
    layout.join("blobs/sha256").join(digest.trim_start_matches("sha256:"))
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Replaces the artifact's manifest and updates the index: possible without the key.
fn with_manifest(layout: &Path, change: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    let mut index = read(&layout.join("index.json"));
    let descriptor = &mut index["manifests"][0];
    let bytes = change(fs::read(blob(layout, descriptor["digest"].as_str().unwrap())).unwrap());
    let digest = Digest::of(&bytes).to_string();
    fs::write(blob(layout, &digest), &bytes).unwrap();
    descriptor["digest"] = format!("sha256:{digest}").into();
    descriptor["size"] = bytes.len().into();
    fs::write(layout.join("index.json"), index.to_string()).unwrap();
}

/// Like `with_manifest`, on the manifest's JSON.
fn with_json(layout: &Path, change: impl FnOnce(&mut Value)) {
    with_manifest(layout, |bytes| {
        let mut manifest = serde_json::from_slice(&bytes).unwrap();
        change(&mut manifest);
        manifest.to_string().into_bytes()
    });
}

fn refused(layout: &Path) -> LayoutError {
    match fetch(layout, &[], &KERNELS).unwrap_err() {
        PublishError::Layout(error) => error,
        other => panic!("{other}"),
    }
}

/// Makes a long file that takes no disk space.
fn sparse(path: &Path) {
    File::create(path).unwrap().set_len(HUGE).unwrap();
}

#[test]
fn no_file_is_read_beyond_what_is_signed_or_may_be() {
    let fresh = || published(None);
    let first_layer = |to: &Path, manifest: &Value| blob(to, manifest["layers"][0]["digest"].as_str().unwrap());
    // A blob longer than its descriptor; it is not read to find out.
    let (_dir, to) = fresh();
    with_json(&to, |manifest| sparse(&first_layer(&to, manifest)));
    assert!(matches!(refused(&to), LayoutError::Size { found: HUGE, .. }));
    // A descriptor that declares more than there is, or what there is beyond a file's limit.
    let sized = |size: Value| {
        let (_dir, to) = fresh();
        with_json(&to, |manifest| {
            if size == HUGE {
                sparse(&first_layer(&to, manifest));
            }
            manifest["layers"][0]["size"] = size;
        });
        refused(&to)
    };
    assert!(matches!(sized(u64::MAX.into()), LayoutError::Size { expected: u64::MAX, .. }));
    assert!(matches!(sized(HUGE.into()), LayoutError::TooLarge { found: HUGE, .. }));
    assert!(matches!(sized(json!(-1)), LayoutError::Malformed { .. }));
    // Files whose size is not signed.
    for name in ["oci-layout", "index.json"] {
        let (_dir, to) = fresh();
        sparse(&to.join(name));
        assert!(matches!(refused(&to), LayoutError::TooLarge { found: HUGE, .. }), "{name}");
    }
    let (_dir, to) = fresh();
    let mut index = read(&to.join("index.json"));
    sparse(&blob(&to, index["manifests"][0]["digest"].as_str().unwrap()));
    index["manifests"][0]["size"] = HUGE.into();
    fs::write(to.join("index.json"), index.to_string()).unwrap();
    assert!(matches!(refused(&to), LayoutError::TooLarge { found: HUGE, .. }));
    // A non-file has no size: fetch must not block on a pipe.
    let (_dir, to) = fresh();
    fs::remove_file(to.join("index.json")).unwrap();
    assert!(Command::new("mkfifo").arg(to.join("index.json")).status().unwrap().success());
    assert!(matches!(refused(&to), LayoutError::Malformed { .. }));
    fs::remove_file(to.join("index.json")).unwrap();
    symlink("/dev/zero", to.join("index.json")).unwrap();
    assert!(matches!(refused(&to), LayoutError::Malformed { .. }));
}

#[test]
fn what_is_neither_a_directory_nor_a_file_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("published.tar");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for (path, kind) in [(fifo.as_path(), "a FIFO"), (Path::new("/dev/zero"), "a device")] {
        let message = refused(path).to_string();
        assert_eq!(message, format!("{}: it is {kind}, expected a regular file", path.display()));
    }
    let lock = dir.path().join("tiny.lock");
    assert!(Command::new("mkfifo").arg(&lock).status().unwrap().success());
    let message = precast_aot::lock::read(dir.path(), "tiny").unwrap_err().to_string();
    assert!(message.contains("it is a FIFO"), "{message}");
}

#[test]
fn sizes_in_a_tar_file_are_not_believed() {
    let (_, built, locks) = tiny();
    let dir = tempfile::tempdir().unwrap();
    let tar = dir.path().join("layout.tar");
    publish(&built.encode(), &KERNELS, &locks, None).unwrap().write(&tar).unwrap();
    fetch(&tar, &[], &KERNELS).unwrap();
    let whole = fs::read(&tar).unwrap();
    // Headers of the first and the last member, with another size and its checksum.
    let last = (0..whole.len()).step_by(512).rfind(|at| whole[*at..].starts_with(b"oci-layout")).unwrap();
    for at in [0, last] {
        for size in [*b"77777777777\0", *b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff"] {
            let mut lying = whole.clone();
            lying[at + 124..at + 136].copy_from_slice(&size);
            lying[at + 148..at + 156].fill(b' ');
            let sum: u32 = lying[at..at + 512].iter().map(|byte| u32::from(*byte)).sum();
            lying[at + 148..at + 156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            fs::write(&tar, lying).unwrap();
            assert!(matches!(refused(&tar), LayoutError::Malformed { .. } | LayoutError::Io { .. }));
        }
    }
    // A member of a tebibyte, actually present.
    fs::write(&tar, &whole).unwrap();
    let mut file = File::options().write(true).open(&tar).unwrap();
    let mut header = tar::Header::new_ustar();
    header.set_path("index.json").unwrap();
    header.set_size(HUGE);
    header.set_cksum();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.set_len(512 + HUGE + 1024).unwrap();
    drop(file);
    assert!(matches!(refused(&tar), LayoutError::Missing(_) | LayoutError::TooLarge { .. }));
}

#[test]
fn a_signature_is_checked_before_what_it_signs_is_looked_into() {
    let (sign, trusted) = key();
    for garbage in [&b"not JSON"[..], b"{\"layers\": 1e999}", &[b'['; 100_000]] {
        let (_dir, to) = published(Some(&sign));
        with_manifest(&to, |_| garbage.to_vec());
        // The signature manifest is updated too, as if made for these bytes.
        let mut index = read(&to.join("index.json"));
        let digest = index["manifests"][0]["digest"].as_str().unwrap().replace(':', "-");
        index["manifests"][1]["annotations"]["org.opencontainers.image.ref.name"] = format!("{digest}.sig").into();
        fs::write(to.join("index.json"), index.to_string()).unwrap();
        let error = fetch(&to, std::slice::from_ref(&trusted), &KERNELS).unwrap_err();
        assert!(matches!(error, PublishError::Signature(SignatureError::Altered(_))), "{error}");
        assert!(matches!(refused(&to), LayoutError::Malformed { .. }));
    }
}

#[test]
fn nothing_is_installed_but_what_the_manifest_names() {
    let (dir, from) = published(None);
    fs::write(from.join("Makefile"), "all:").unwrap();
    fs::write(from.join("blobs/sha256/stray"), "x").unwrap();
    let to = dir.path().join("to");
    fetch(&from, &[], &KERNELS).unwrap().install(&to).unwrap();
    let mut names: Vec<String> =
        fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let expected =
        ["precast.bundle", "precast.cdx.json", "precast.manifest.json", "precast.provenance.json", "tiny.lock"];
    assert_eq!(names, expected);
    let titles = "../precast.bundle|/etc/x.lock|a/b.lock|..|.lock|Makefile|x.so|precast.manifest.json|";
    for name in titles.split('|') {
        let mut layout = Layout::new();
        let layer = layout.add(media::BUNDLE, name, b"x");
        let manifest = layout.manifest(media::ARTIFACT, &[layer], None, json!({}));
        layout.index(media::ARTIFACT, manifest.to_string().as_bytes(), "1");
        let from = dir.path().join(format!("{}.tar", Digest::of(name.as_bytes())));
        layout.write(&from).unwrap();
        let error = refused(&from);
        assert!(matches!(error, LayoutError::Malformed { .. }), "{name}: {error}");
    }
}

/// A change to a directory, by the foreign entry that it leaves.
type Change<'c> = (&'c str, &'c dyn Fn(&Path));

/// Checks that a refusal names the foreign entry and leaves everything as it was.
fn not_ours(result: Result<(), LayoutError>, what: &str) {
    match result.unwrap_err() {
        LayoutError::NotOurs { what: found, .. } => assert!(found.contains(what), "{found}, expected {what}"),
        other => panic!("{other}"),
    }
}

#[test]
fn publish_replaces_only_what_it_wrote() {
    let (_, built, locks) = tiny();
    let (sign, _) = key();
    let layouts = [
        publish(&built.encode(), &KERNELS, &locks, None).unwrap(),
        publish(&built.encode(), &KERNELS, &locks, Some(&sign)).unwrap(),
    ];
    let dir = tempfile::tempdir().unwrap();
    for name in ["layout", "layout.tar"] {
        let to = dir.path().join(name);
        for layout in [&layouts[0], &layouts[1], &layouts[0]] {
            layout.write(&to).unwrap();
        }
    }
    let again = |name: &str, what: &str| not_ours(layouts[0].write(&dir.path().join(name)), what);
    // An empty directory belongs to no one.
    let path = |name: &str| dir.path().join(name);
    fs::create_dir(path("empty")).unwrap();
    layouts[0].write(&path("empty")).unwrap();
    let foreign: [Change<'_>; 6] = [
        ("notes.txt", &|to| fs::write(to.join("notes.txt"), "mine").unwrap()),
        ("blobs/sha256/more", &|to| fs::write(to.join("blobs/sha256/more"), "mine").unwrap()),
        ("kept", &|to| fs::create_dir(to.join("kept")).unwrap()),
        ("link", &|to| symlink("/etc", to.join("link")).unwrap()),
        ("oci-layout", &|to| fs::write(to.join("oci-layout"), "{\"imageLayoutVersion\":\"1.0.0\"} ").unwrap()),
        ("not an OCI image layout", &|to| fs::remove_file(to.join("index.json")).unwrap()),
    ];
    for (index, (what, change)) in foreign.into_iter().enumerate() {
        let name = format!("changed-{index}");
        layouts[0].write(&path(&name)).unwrap();
        change(&path(&name));
        again(&name, what);
        assert!(path(&name).join("oci-layout").exists());
    }
    fs::create_dir(path("project")).unwrap();
    fs::write(path("project/main.rs"), "mine").unwrap();
    again("project", "oci-layout");
    symlink(path("layout"), path("linked")).unwrap();
    again("linked", "no directory");
    symlink(path("layout.tar"), path("linked.tar")).unwrap();
    again("linked.tar", "no file");
    fs::write(path("home.tar"), "not a tar file at all").unwrap();
    again("home.tar", "");
    let mut longer = fs::read(path("layout.tar")).unwrap();
    longer.extend([0; 512]);
    fs::write(path("longer.tar"), longer).unwrap();
    again("longer.tar", "more than");
    fs::create_dir(path("d.tar")).unwrap();
    again("d.tar", "no file");
    assert_eq!(fs::read_to_string(path("project/main.rs")).unwrap(), "mine");
    // The program refuses before it compiles anything.
    let (code, _, message) = ends(aot("publish --nvrtc /no/nvrtc --to").arg(path("project")));
    assert_eq!(code, Some(2));
    assert!(message.contains("project is not replaced: ") && message.contains("--to"), "{message}");
}

#[test]
fn fetch_replaces_only_what_it_installed() {
    let (dir, from) = published(None);
    let fetched = fetch(&from, &[], &KERNELS).unwrap();
    let install = || -> (TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("to");
        fetched.install(&to).unwrap();
        fetched.install(&to).unwrap();
        (dir, to)
    };
    let foreign: [Change<'_>; 5] = [
        ("notes.txt is not among", &|to| fs::write(to.join("notes.txt"), "mine").unwrap()),
        ("tiny.lock was changed", &|to| fs::write(to.join("tiny.lock"), "mine").unwrap()),
        ("kept is no regular file", &|to| fs::create_dir(to.join("kept")).unwrap()),
        ("tiny.lock is no regular file", &|to| {
            fs::rename(to.join("tiny.lock"), to.with_extension("lock")).unwrap();
            symlink(to.with_extension("lock"), to.join("tiny.lock")).unwrap();
        }),
        ("did not write it", &|to| fs::remove_file(to.join(title::MANIFEST)).unwrap()),
    ];
    for (what, change) in foreign {
        let (_dir, to) = install();
        change(&to);
        not_ours(fetched.install(&to), what);
        assert!(to.join(title::BUNDLE).exists());
    }
    let (other, to) = install();
    let link = other.path().join("link");
    symlink(&to, &link).unwrap();
    not_ours(fetched.install(&link), "no directory");
    let project = dir.path().join("project");
    fs::create_dir(&project).unwrap();
    fs::write(project.join("main.rs"), "mine").unwrap();
    not_ours(fetched.install(&project), "did not write it");
    assert_eq!(ends(aot("fetch --from").arg(&from).arg("--to").arg(&project)).0, Some(2));
    assert_eq!(fs::read_to_string(project.join("main.rs")).unwrap(), "mine");
}
