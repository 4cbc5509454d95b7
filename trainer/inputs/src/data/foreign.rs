//! Data in forms that are not read, each with the command that converts it.

use std::path::Path;

use precast_core::shell::quoted;

/// Files that `save_to_disk` of the library datasets puts beside those with rows.
const SAVED: [&str; 2] = ["dataset_info.json", "state.json"];

/// Returns the reason for which a path is not read, with the command that makes data of it; none for an unknown form.
pub(super) fn foreign(path: &Path) -> Option<String> {
    let name = path.display().to_string();
    let to_parquet = |load: &str| {
        let out = format!("{}.parquet", name.trim_end_matches('/'));
        let code = format!("import datasets; datasets.{load}({name:?}).to_parquet({out:?})");
        format!("Arrow files are not read: python -c {}", quoted(&code))
    };
    if path.is_dir() {
        let splits = "a directory that save_to_disk wrote, of a directory for each split: name one of those";
        let is_saved = SAVED.iter().all(|file| path.join(file).exists());
        let has_splits = path.join("dataset_dict.json").exists();
        return is_saved.then(|| to_parquet("load_from_disk")).or(has_splits.then(|| splits.to_owned()));
    }
    match path.extension()?.to_str()? {
        "arrow" => Some(to_parquet("Dataset.from_file")),
        "gz" => Some(format!("of files that are compressed, .jsonl.gz and .csv.gz are read: gunzip {}", quoted(&name))),
        "zst" => {
            Some(format!("of files that are compressed, .jsonl.gz and .csv.gz are read: zstd -d {}", quoted(&name)))
        }
        _ => None,
    }
}
