//! `Containerfile`: images by digest, packages by version, this checkout's Rust.

use crate::run::root;

#[test]
fn everything_of_an_image_is_pinned() {
    let read = |name: &str| std::fs::read_to_string(root().join(name)).unwrap();
    let (text, toolchain) = (read("Containerfile"), read("rust-toolchain.toml"));
    let rust = toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap().trim_matches('"');
    assert!(text.contains(&format!(" --default-toolchain {rust} ")), "rust-toolchain.toml says {rust}");

    let text = text.replace("\\\n", " ");
    let (mut stages, mut packages) = (Vec::new(), 0);
    for line in text.lines() {
        match &*line.split_whitespace().collect::<Vec<_>>() {
            ["ARG", image] if image.starts_with("DEBIAN=") => assert!(image.contains("@sha256:"), "{image}"),
            ["FROM", image, rest @ ..] => {
                assert!(*image == "$DEBIAN" || stages.contains(image), "{image} is no stage");
                stages.extend(rest.last());
            }
            ["RUN", "apt-get", "install", names @ ..] => {
                for name in names.iter().filter(|name| !name.starts_with('-')) {
                    packages += 1;
                    assert!(name.contains('='), "{name} has no version");
                }
            }
            ["ADD", ..] => panic!("{line}"),
            _ if line.contains("https://") => assert!(line.contains("| sha256sum --check"), "{line}"),
            _ => assert!(!line.contains("apt-get install"), "{line}"),
        }
    }
    assert!(stages == ["day", "root", "wheel"] && packages > 4, "{stages:?}, {packages} packages");
}
